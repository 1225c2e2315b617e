# SPDX-License-Identifier: Apache-2.0
"""A session that is talked to: what tracer ctl can do, and what nobody can do to a session."""
import contextlib
import glob
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile

import pytest

from harness import (
    TIMEOUT,
    error_line,
    marked_line,
    memory_cgroup,
    program,
    read_report,
    wait_until,
)

PLACE = "/run/tracer"


@pytest.fixture
def ctl(run_tracer):
    """ctl(pid, word, …): the parsed answers of `tracer ctl`, of which there must be one a line."""

    def run(pid, *words):
        done = run_tracer("ctl", "--format", "json", pid, *words)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def socket_of(run):
    return os.path.join(PLACE, "%d.sock" % run.pid)


@contextlib.contextmanager
def connection(run):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(TIMEOUT)
        client.connect(socket_of(run))
        yield client


def ask(client, **request):
    client.sendall(json.dumps(request).encode() + b"\n")
    return json.loads(client.makefile().readline())


# --- what it answers ------------------------------------------------------------------------------


@pytest.mark.versions("3.8", "3.13")
def test_phases(start, trace, ctl, tracer, run_tracer, tmp_path, python):
    """Snapshots between the phases of a program that grows, shrinks and leaks; the session ends
    when it is told to."""
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


def test_status(start, trace, ctl, run_tracer, any_python):
    """As tracemalloc's get_traced_memory() and its like have it; and for people."""
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
    """What is forgotten stays so, what comes counts; a capture that is replayed says the same."""
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
    """The process id of the command that a tracer started: its other children are itself."""
    own = os.readlink("/proc/%d/exe" % run.pid)
    with open("/proc/%d/task/%d/children" % (run.pid, run.pid)) as children:
        (pid,) = (
            pid for pid in children.read().split() if os.readlink("/proc/%s/exe" % pid) != own
        )
    return int(pid)


@pytest.mark.versions("3.9", "3.11", "3.12", "3.13")
def test_lookup(trace, ctl, python):
    """id() names an object's line, whatever lies before the object in its block; no block is older
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
    assert not wrong
    (inside,) = ctl(pid, "lookup", hex(ids["large"][1] + 50000))
    assert inside["block"]["offset"] == 50000 and inside["traceback"][0]["lineno"] == marked_line(
        "kinds.py", "large"
    )
    assert ctl(pid, "lookup", 4096) == [{"address": 4096, "block": None}]


def test_command(trace, ctl, any_python):
    """A command that the tracer started is let go by stop."""
    run = trace("--", any_python.path, program("golden.py"), stdin=subprocess.PIPE)
    pid = command_of(run)
    assert ctl(pid, "status")[0]["from_start"] is True
    assert ctl(pid, "stop") == [{}]
    assert run.wait() == 0
    os.kill(pid, 0)  # it runs on
    os.kill(pid, signal.SIGKILL)


# --- several of them ------------------------------------------------------------------------------


def test_two_sessions(start, trace, ctl, run_tracer, any_python):
    """Each process's own session answers for it; two on one process are told apart by name."""
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
    """Of one process, which is said, or of all that the session has."""
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


# --- bad clients ----------------------------------------------------------------------------------


def test_bad_clients(start, trace, ctl, any_python):
    """One that hangs in a line, one that reads nothing, one that sends garbage: the trace is
    complete in spite of them."""
    target = start(any_python, "golden.py", 20000)
    run = trace("-p", target.pid)
    with connection(run) as hanging, connection(run) as deaf, connection(run) as garbage:
        hanging.sendall(b'{"request": "sta')
        deaf.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                deaf.send(b'{"request": "status"}\n' * 100)
        garbage.sendall(b"\x00\xff" * 500 + b"\n")
        target.step()
        live = target.expect()
        answers = garbage.makefile().read()
        assert answers == '{"error": "not a JSON object"}\n'
        assert ctl(target.pid, "status")[0]["is_tracing"]
        assert "does not end its line" in hanging.makefile().read()
        wait_until(lambda: "does not take its answer" in run.stderr, "who reads nothing is dropped")
    dropped = [line for line in run.stderr.splitlines() if "is dropped" in line]
    assert len(dropped) == 3, dropped
    report = run.finish()
    assert report.marked("golden.py", live) == live and report.lost_events == 0


def test_client_that_leaves(start, trace, ctl, any_python):
    """Its snapshot's writer ends with it, and the session goes on."""
    target = start(any_python, "phases.py")
    run = trace("-p", target.pid)
    reader, writer = os.pipe()
    while True:  # full: who writes to it waits
        os.set_blocking(writer, False)
        try:
            os.write(writer, bytes(4096))
        except BlockingIOError:
            break
    os.set_blocking(writer, True)

    def children():
        with open("/proc/%d/task/%d/children" % (run.pid, run.pid)) as file:
            return set(file.read().split())

    others = children()
    with connection(run) as client:
        socket.send_fds(client, [b'{"request": "snapshot"}\n'], [writer])
        wait_until(lambda: children() - others, "it is being written")
        assert ctl(target.pid, "status")[0]["is_tracing"]
    wait_until(lambda: children() == others, "its writer has ended")
    os.close(reader)
    os.close(writer)
    assert ctl(target.pid, "status")[0]["is_tracing"]


@pytest.fixture
def for_everybody(tracer):
    """A copy of the tracer that every user can run."""
    folder = tempfile.mkdtemp()
    os.chmod(folder, 0o755)
    yield shutil.copy(tracer, folder)
    shutil.rmtree(folder)


def test_another_user(start, trace, any_python, for_everybody):
    """Neither by name nor by a capability that opens every door."""
    target = start(any_python, "phases.py")
    run = trace("-p", target.pid)
    assert stat.S_IMODE(os.stat(PLACE).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(socket_of(run)).st_mode) == 0o600
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    done = subprocess.run(
        [*nobody, for_everybody, "ctl", str(target.pid), "status"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT,
    )
    assert "Permission denied" in error_line(done, 1)
    code = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.makefile().read())"
    caps = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
    done = subprocess.run(
        [*nobody, *caps, "/usr/bin/python3", "-c", code, socket_of(run)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.stdout.strip() == '{"error": "another user\'s session"}', done.stderr


# --- sessions and targets that end ----------------------------------------------------------------


def test_dead_session(start, trace, ctl, run_tracer, any_python):
    """The socket of a killed tracer goes; of one that is left nobody takes it for a session, and
    the next session removes it."""
    target = start(any_python, "phases.py")
    dead = trace("-p", target.pid)
    dead.kill()
    wait_until(lambda: not os.path.exists(socket_of(dead)), "its socket is gone")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(socket_of(dead))
    assert "no session traces PID %d" % target.pid in error_line(
        run_tracer("ctl", target.pid, "status"), 1
    )
    run = trace("-p", target.pid)
    assert not os.path.exists(socket_of(dead))
    assert ctl(target.pid, "status")[0]["session"] == run.pid


def test_stopped_session(start, trace, run_tracer, any_python):
    """One that does not answer does not hang its client for ever."""
    target = start(any_python, "phases.py")
    run = trace("-p", target.pid)
    os.kill(run.pid, signal.SIGSTOP)
    try:
        assert "did not answer" in error_line(run_tracer("ctl", target.pid, "status"), 1)
    finally:
        os.kill(run.pid, signal.SIGCONT)


def test_target_ends(start, trace, any_python):
    """Whatever is asked meanwhile is answered, or the connection ends."""
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


@pytest.mark.unprivileged
@pytest.mark.parametrize(
    "words",
    (
        (),
        ("1",),
        ("x", "status"),
        ("1", "dance"),
        ("1", "snapshot"),
        ("1", "lookup"),
        ("1", "status", "--all"),
        ("1", "lookup", "0x"),
        ("1", "lookup", "0"),
        ("1", "status", "more"),
        ("0", "status"),
        ("1", "status", "--format", "csv"),
        ("1", "status", "--session", "x"),
    ),
)
def test_wrong_words(run_tracer, words):
    error_line(run_tracer("ctl", *words), 2)


def test_wrong_file(start, trace, tracer, run_tracer, any_python, tmp_path):
    """The file is the client's affair: nothing is asked of the session for one that cannot be."""
    target = start(any_python, "phases.py")
    trace("-p", target.pid)
    assert "is a directory" in error_line(run_tracer("ctl", target.pid, "snapshot", tmp_path), 1)
    error_line(run_tracer("ctl", target.pid, "snapshot", tmp_path / "nowhere" / "file"), 1)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [tracer, "ctl", str(target.pid), "snapshot", "-"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT,
        )
    assert "No space left" in error_line(done, 1)


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


def test_killed_tracer_leaves_its_last_snapshot(start, trace, tracer, any_python):
    target = start(any_python, "phases.py")
    run = trace("-p", target.pid, "--snapshot-every", "0.1", "--keep", 1)
    target.step()
    live = target.expect()
    wait_until(
        lambda: os.path.exists(run.snapshot)
        and read_report(tracer, run.snapshot).marked("phases.py", live) == live,
        "there is one of now",
    )
    run.kill()
    assert run.report().marked("phases.py", live) == live


def test_snapshots_that_cannot_be(start, trace, any_python):
    """Said each time, and the session goes on to its end."""
    target = start(any_python, "phases.py")
    run = trace("-p", target.pid, "--snapshot-every", "0.2")
    os.mkdir(run.snapshot + ".1")
    wait_until(
        lambda: "is not a regular file" in run.stderr, "the second cannot push the first away"
    )
    os.rmdir(run.snapshot + ".1")
    wait_until(lambda: os.path.exists(run.snapshot + ".1"), "it goes on")
    run.finish()


def test_out_of_memory(start, trace, any_python, tmp_path):
    """The kernel kills the target at its limit; the tables are ours, and say what had filled it."""
    hog = tmp_path / "hog.py"
    hog.write_text(
        "import os\nos.write(1, b'ready\\n')\nos.read(0, 100)\nkept = []\nwhile True:\n    kept.append(bytearray(b'x') * 100000)\n"
    )
    with memory_cgroup(100 << 20) as cgroup:
        target = start(any_python, str(hog))
        run = trace("-p", target.pid, "--snapshot-every", "0.2", "--keep", 2)
        with open(os.path.join(cgroup, "cgroup.procs"), "w") as file:
            file.write(str(target.pid))
        target.step()
        assert target.process.wait(TIMEOUT) == -signal.SIGKILL
        assert run.wait() == 0
    report = run.report()
    assert report.data["moment"] == "exited" and report.lost_events == 0
    assert report.lines()[(str(hog), 6)][0] > 50 << 20


@pytest.mark.unprivileged
@pytest.mark.parametrize(
    "options",
    (
        ("--snapshot-every", "1"),
        ("--keep", "2", "-o", "x"),
        ("--snapshot-every", "1", "-o", "-"),
        ("--snapshot-every", "0", "-o", "x"),
        ("--snapshot-every", "1", "--keep", "0", "-o", "x"),
    ),
)
def test_wrong_options(run_tracer, tmp_path, options):
    error_line(run_tracer("-p", os.getpid(), *options, cwd=str(tmp_path)), 2)
    assert not os.listdir(tmp_path)
