# SPDX-License-Identifier: Apache-2.0
"""What tracer ctl does with a session."""
import contextlib
import glob
import json
import os
import signal
import stat
import subprocess

import pytest

from ctl_client import connection, ctl, socket_of  # noqa: F401
from harness import error_line, marked_line, program, read_report, wait_until


def ask(client, **request):
    client.sendall(json.dumps(request).encode() + b"\n")
    return json.loads(client.makefile().readline())


# --- what it answers ------------------------------------------------------------------------------


@pytest.mark.versions("3.8", "3.13")
def test_phases(start, trace, ctl, tracer, run_tracer, tmp_path, python):
    """Snapshots between the phases of a program that grows, shrinks and leaks. The session ends on
    request."""
    target = start(python, "phases.py")
    run = trace("-p", target.pid, "--capture", tmp_path / "events")
    for phase in ("grow", "shrink", "leak"):
        target.step()
        live = target.expect()
        target.wait_reading()
        path = tmp_path / phase
        assert ctl(target.pid, "snapshot", path) == [{"snapshot": True}]
        assert read_report(tracer, str(path)).marked("phases.py", live) == live
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    done = run_tracer("diff", tmp_path / "shrink", tmp_path / "leak", "--format", "json")
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)["statistics"][0]
    frame = first["traceback"][0]
    assert (frame["filename"], frame["lineno"]) == (
        program("phases.py"),
        marked_line("phases.py", "L"),
    ), "the leaking line"
    assert (first["size_diff"], first["count_diff"]) == live["L"]
    assert ctl(target.pid, "stop") == [{}]
    report = run.finish()
    assert report.marked("phases.py", live) == live
    assert not os.path.exists(socket_of(run))
    assert target.finish() == 0


def test_fleet(start, trace, ctl, run_tracer, tmp_path, any_python):
    """Several snapshots of one process are one of its fleet: the newest, in whatever order they are
    given and whichever session has made them. A process of the same program is another one."""
    target, other = start(any_python, "phases.py"), start(any_python, "phases.py")

    def step(each):
        each.step()
        each.expect()
        each.wait_reading()

    paths = [tmp_path / name for name in ("1", "2", "3", "4", "both")]
    for number in range(2):
        run = trace("-p", target.pid, "--mode", "exact")
        for _ in range(number + 1):  # it grows; then it shrinks and leaks
            step(target)
        for path in paths[2 * number : 2 * number + 2]:
            assert ctl(target.pid, "snapshot", path) == [{"snapshot": True}]
        ctl(target.pid, "stop")
        run.finish()
    run = trace("-p", "%d,%d" % (target.pid, other.pid), "-o", paths[4], "--mode", "exact")
    run.wait_attached(2)
    step(other)
    run.interrupt()
    assert run.wait() == 0

    def fleet(*files):
        words = ("fleet", *files, "--format", "json", "--by", "service")
        told = json.loads(run_tracer(*words).stdout)
        (row,) = told["statistics"]
        return told["snapshots"], told["older"], told["size"], row["highest"]

    (_, _, size, _) = fleet(paths[3])
    for files in (paths[:4], paths[3::-1]):
        assert fleet(*files) == (1, 3, size, str(paths[3]))
    (_, _, both, _) = fleet(paths[4])
    assert fleet(paths[0], paths[4]) == (1, 1, both, str(paths[4]))
    # Of an older snapshot of two processes the other one is left.
    run = trace("-p", target.pid, "-o", tmp_path / "last", "--mode", "exact")
    run.interrupt()
    assert run.wait() == 0
    assert fleet(paths[4], tmp_path / "last") == (2, 1, both, str(paths[4]))
    text = run_tracer("fleet", *paths[:4]).stdout
    assert "\n3 older snapshots of a process left out: its newest one counts\n" in text


def test_status(start, trace, ctl, run_tracer, any_python):
    """The status has the figures of tracemalloc's get_traced_memory() and related functions. There
    is also a text form."""
    target = start(any_python, "phases.py")
    run = trace("-p", target.pid, "-n", 7, "--mode", "exact")
    for _ in range(2):
        target.step()
        live = target.expect()
    target.wait_reading()
    (status,) = ctl(target.pid, "status")
    assert (
        status["is_tracing"] is True
        and status["session"] == run.pid
        and status["pid"] == target.pid
    )
    assert (
        status["traceback_limit"] == 7 and status["mode"] == "exact" and status["lost_events"] == 0
    )
    assert status["traced_memory"]["size"] >= live["G"][0]
    assert status["traced_memory"]["peak"] >= status["traced_memory"]["size"] + 1000 * 900
    assert status["tracer_memory"] > 0 and status["uptime"] > 0
    done = run_tracer("ctl", target.pid, "status")
    assert (
        done.returncode == 0
        and "PID %d (" % target.pid in done.stdout
        and "traceback limit: 7\n" in done.stdout
    )


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_clear_and_peak(start, trace, ctl, run_tracer, tmp_path, python):
    """Cleared blocks stay cleared, and later blocks are counted. A replayed capture gives the same
    result."""
    target = start(python, "phases.py")
    run = trace("-p", target.pid, "--capture", tmp_path / "events")
    for _ in range(2):
        target.step()
        live = target.expect()
    target.wait_reading()
    assert ctl(target.pid, "reset-peak") == [{}]
    (status,) = ctl(target.pid, "status")
    assert status["traced_memory"]["peak"] == status["traced_memory"]["size"] > 0
    assert ctl(target.pid, "clear") == [{}]
    (status,) = ctl(target.pid, "status")
    assert status["traced_memory"] == {"size": 0, "peak": 0}
    target.step()
    live = dict(target.expect(), G=(0, 0))
    report = run.finish()
    assert report.marked("phases.py", live) == live
    assert (
        report.data["peak_size"] < report.total["size"] + 100000
    ), "what the program says costs something, too"
    coverage = report.data["coverage"]
    assert coverage["seen_blocks"] == coverage["new_blocks"], "what was cleared counts as old"
    replayed = run_tracer("replay", tmp_path / "events", "--format", "json", "--top", 0)
    assert replayed.returncode == 0, replayed.stderr
    again = json.loads(replayed.stdout)
    assert (
        again["statistics"] == report.statistics and again["peak_size"] == report.data["peak_size"]
    )


def command_of(run):
    """The process ID of the command that a tracer started. The tracer's other children run its own
    executable."""
    own, found = os.readlink("/proc/%d/exe" % run.pid), []
    with open("/proc/%d/task/%d/children" % (run.pid, run.pid)) as children:
        for pid in children.read().split():
            try:
                found += [int(pid)] * (os.readlink("/proc/%s/exe" % pid) != own)
            except FileNotFoundError:  # one of those others has ended
                pass
    (pid,) = found
    return pid


@pytest.mark.versions("3.9", "3.11", "3.12", "3.13")
def test_lookup(trace, ctl, python):
    """id() finds an object's line, whatever precedes the object in its block. No block is older
    than the trace."""
    run = trace("--", python.path, program("kinds.py"), 1000, stdin=subprocess.PIPE)
    run.step()
    ids, pid = run.expect(), command_of(run)
    expected = [(address, mark) for mark, addresses in ids.items() for address in addresses]
    assert len(expected) >= 1000
    answers = ctl(pid, "lookup", *(address for address, _ in expected))
    wrong = {}
    for (address, mark), answer in zip(expected, answers):
        assert answer["address"] == address
        line = answer["traceback"][0]["lineno"] if answer["block"] else None
        if line != marked_line("kinds.py", mark):
            wrong.setdefault(mark, []).append(line)
        if answer["block"]:
            assert 0 <= address - answer["block"]["address"] == answer["block"]["offset"] <= 32
            assert answer["total_nframe_exact"] is True
    assert not wrong
    (inside,) = ctl(pid, "lookup", hex(ids["large"][1] + 50000))
    assert inside["block"]["offset"] == 50000 and inside["traceback"][0]["lineno"] == marked_line(
        "kinds.py", "large"
    )
    assert ctl(pid, "lookup", 4096) == [{"address": 4096, "block": None}]


def test_command(trace, ctl, any_python):
    """`stop` detaches from a command that the tracer started, and the command runs on."""
    run = trace("--", any_python.path, program("golden.py"), stdin=subprocess.PIPE)
    pid = command_of(run)
    assert ctl(pid, "status")[0]["from_start"] is True
    assert ctl(pid, "stop") == [{}]
    assert run.wait() == 0
    os.kill(pid, 0)  # it still runs
    os.kill(pid, signal.SIGKILL)


# --- several of them ------------------------------------------------------------------------------


def test_two_sessions(start, trace, ctl, run_tracer, any_python):
    """Each process's own session answers for it. Two sessions on one process are distinguished by
    name."""
    targets = [start(any_python, "phases.py") for _ in range(2)]
    runs = [trace("-p", target.pid) for target in targets]
    for target, run in zip(targets, runs):
        assert ctl(target.pid, "status")[0]["session"] == run.pid
    third = trace("-p", targets[0].pid)
    line = error_line(run_tracer("ctl", targets[0].pid, "status"), 1)
    assert "both trace it" in line and "--session" in line
    assert ctl(targets[0].pid, "status", "--session", third.pid)[0]["session"] == third.pid
    assert ctl(targets[0].pid, "stop", "--session", runs[0].pid) == [{}]
    assert runs[0].wait() == 0
    assert ctl(targets[0].pid, "status")[0]["session"] == third.pid


def test_one_session_of_two(start, trace, ctl, any_python):
    targets = [start(any_python, "phases.py") for _ in range(2)]
    run = trace("-p", ",".join(str(target.pid) for target in targets), attached=2, output=False)
    for target in targets:
        assert ctl(target.pid, "status")[0]["pid"] == target.pid
    with connection(run) as client:
        assert "traces 2 processes" in ask(client, request="status")["error"]
    ctl(targets[0].pid, "clear")
    assert targets[0].finish() == 0
    wait_until(
        lambda: not ctl(targets[0].pid, "status")[0]["is_tracing"], "it is seen to have ended"
    )
    assert ctl(targets[1].pid, "status")[0]["is_tracing"]
    targets[1].step()
    live = targets[1].expect()
    assert ctl(targets[1].pid, "status")[0]["traced_memory"]["size"] >= live["G"][0]


def test_snapshot_of_two(start, trace, ctl, tracer, run_tracer, any_python, tmp_path):
    """A snapshot contains one process, if it is named, or all processes of the session."""
    targets = [start(any_python, "phases.py") for _ in range(2)]
    trace("-p", ",".join(str(target.pid) for target in targets), attached=2, output=False)
    for target in targets:
        target.step()
        target.expect()
        target.wait_reading()
    path = tmp_path / "now"
    assert ctl(targets[0].pid, "snapshot", path) == [{"snapshot": True, "processes": 1, "of": 2}]
    assert [s["pid"] for s in read_report(tracer, path, "--by", "process").statistics] == [
        targets[0].pid
    ]
    assert ctl(targets[0].pid, "snapshot", "--all", path) == [
        {"snapshot": True, "processes": 2, "of": 2}
    ]
    assert {s["pid"] for s in read_report(tracer, path, "--by", "process").statistics} == {
        target.pid for target in targets
    }
    assert "one of 2 processes" in run_tracer("ctl", targets[0].pid, "snapshot", path).stderr
    assert "all 2 processes" in run_tracer("ctl", targets[1].pid, "snapshot", path, "--all").stderr


def test_two_clients(start, trace, any_python):
    target = start(any_python, "phases.py")
    run = trace("-p", target.pid)
    with connection(run) as one, connection(run) as other:
        for _ in range(50):
            assert ask(one, request="status")["pid"] == target.pid
            assert ask(other, request="lookup", address=4096)["block"] is None


def test_target_ends(start, trace, any_python):
    """Every request during the target's exit is answered, or the connection is closed."""
    target = start(any_python, "phases.py")
    run = trace("-p", target.pid)
    with connection(run) as client:
        lines = client.makefile()
        assert ask(client, request="status")["is_tracing"]
        target.process.stdin.close()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while True:
                client.sendall(b'{"request": "status"}\n')
                line = lines.readline()
                if not line:
                    break
                assert "is_tracing" in json.loads(line)
    assert run.wait() == 0


# --- snapshots every so often ---------------------------------------------------------------------


def rotated(run):
    return sorted(name for name in glob.glob(run.snapshot + "*"))


def test_rotation(start, trace, tracer, any_python):
    target = start(any_python, "phases.py")
    run = trace("-p", target.pid, "--snapshot-every", "0.2", "--keep", 3)
    target.step()
    live = target.expect()
    target.wait_reading()
    wait_until(lambda: len(rotated(run)) == 3, "there are three")
    wait_until(
        lambda: read_report(tracer, run.snapshot).marked("phases.py", live) == live,
        "the newest is of now",
    )
    target.step()
    live = target.expect()
    report = run.finish()
    assert report.marked("phases.py", live) == live
    assert rotated(run) == [run.snapshot, run.snapshot + ".1", run.snapshot + ".2"]
    for path in rotated(run):
        read_report(tracer, path)
    assert not glob.glob(os.path.join(os.path.dirname(run.snapshot), ".tracer-*")), "left behind"
