# SPDX-License-Identifier: Apache-2.0
"""How a trace ends: by the target (exit, death, exec), by the user, by the tracer's own death."""
import os
import re
import signal
import subprocess
import time

import pytest

from harness import program, wait_until

pytestmark = pytest.mark.usefixtures("undisturbed")

# --- the attach -----------------------------------------------------------------------------------


def test_programs_are_brief(start, trace, any_python):
    """Attaching spends most of its time in the verifier, whose time grows with the number of loop
    iterations that it checks one by one."""
    run = trace("-p", start(any_python, "golden.py").pid)
    folder = "/proc/%d/fdinfo" % run.pid
    verified = []
    for fd in os.listdir(folder):
        try:
            with open(os.path.join(folder, fd)) as file:
                verified += re.findall(r"^verified_insns:\t(\d+)$", file.read(), re.M)
        except FileNotFoundError:  # no program's: those stay open
            pass
    if not verified:
        pytest.skip("this kernel does not tell what its verifier has looked at (before 5.16)")
    assert len(verified) >= 8 and max(map(int, verified)) < 150000, verified
    run.finish()


# --- the target's end -----------------------------------------------------------------------------


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_exit(start, trace, python):
    """The table is taken when the shutdown begins, not from the emptied heap after it."""
    target = start(python, "golden.py")
    run = trace("-p", target.pid)
    target.step()
    live = target.expect()
    assert target.finish() == 0
    assert run.wait() == 0
    report = run.report()
    assert report.marked("golden.py", live) == live
    assert report.data["moment"] == "finalizing"


@pytest.mark.versions("3.8", "3.11", "3.13")
@pytest.mark.parametrize("name", ("KILL", "SEGV"))
def test_death(start, trace, python, name):
    target = start(python, "segv.py", name)
    run = trace("-p", target.pid)
    target.step()
    live = target.expect()
    assert target.finish() == -getattr(signal, "SIG" + name)
    assert run.wait() == 0
    report = run.report()
    assert report.line("segv.py", "B") == live["B"]
    assert report.line("segv.py", "D")[1] <= 1, "at most the block that it was about to free"
    assert report.data["moment"] == "exited"


@pytest.mark.parametrize("children", (100, pytest.param(400, marks=pytest.mark.long)))
@pytest.mark.versions("3.8", "3.13")
def test_ends_at_once(trace, python, children):
    """Either of two threads can be the last to exit. Other threads may still run while the first
    thread is a zombie."""
    run = trace("--", python.path, program("race.py"), children, 3, attached=False)
    assert run.wait() == 0
    assert "is not traced" not in run.stderr
    processes = run.report().data["processes"]
    assert len(processes) == 1 + children
    for process in processes:
        assert process["coverage"], "its heap was not read"
        assert process["coverage"]["unread_ns"] < 1000000, "its heap was not read at its end"


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_exec(start, trace, python):
    """The report describes the old program. The new program continues untraced."""
    target = start(python, "execer.py")
    run = trace("-p", target.pid, "--no-follow")
    target.step()
    live = target.expect()
    target.step()
    target.read_until("again")
    assert run.wait() == 0
    report = run.report()
    assert report.line("execer.py", "B") == live["B"]
    assert report.data["moment"] == "execed"
    assert target.finish() == 0


def test_exec_while_it_is_attached_to(start, trace, any_python):
    """The trace is planned for one program, and the process execs another one before the attach:
    the figures describe the latter."""
    for _ in range(20):
        target = start(any_python, "exec_when_probed.py", program("golden.py"), ready=False)
        target.read_until("probe me")
        run = trace("-p", target.pid, "--no-follow")
        target.read_until("ready")
        target.step()
        live = target.expect()
        report = run.finish()
        if report.data["moment"] != "execed":  # the exec preceded the attach
            assert report.marked("golden.py", live) == live
            return
        assert target.finish() == 0
    pytest.fail("20 programs called exec too late, when they had been attached to")


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_fork(start, trace, python):
    """Children free the parent's blocks in their own copies. The parent's table does not show that.
    The children end normally."""
    target = start(python, "forker.py")
    run = trace("-p", target.pid)
    target.step()
    live = target.expect()
    report = run.finish("--pid", target.pid)
    assert report.marked("forker.py", live) == live
    assert target.finish() == 0, "a child was harmed"


def test_fork_of_a_command(trace, any_python):
    run = trace("--", any_python.path, program("forker.py"), stdin=subprocess.PIPE)
    run.step()
    live = run.expect()
    run.step()
    assert run.wait() == 0
    processes = run.report().data["processes"]
    (pid,) = {p["pid"] for p in processes} & {p["parent"] for p in processes}
    assert run.report("--pid", pid).marked("forker.py", live) == live


# --- the user ends it -----------------------------------------------------------------------------


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
def test_detach(start, trace, any_python, number):
    target = start(any_python, "golden.py")
    run = trace("-p", target.pid)
    target.step()
    live = target.expect()
    run.process.send_signal(number)
    assert run.wait() == 0
    report = run.report()
    assert report.marked("golden.py", live) == live
    assert report.data["moment"] == "running"
    assert target.finish() == 0


def test_duration(start, trace, any_python):
    target = start(any_python, "golden.py")
    run = trace("-p", target.pid, "-d", "0.5")
    assert run.wait() == 0
    assert run.report().data["moment"] == "running"
    target.step()
    target.expect()
    assert target.finish() == 0


def test_duration_ends_the_events(start, trace, any_python):
    """Events after the time of -d are not recorded, whatever the tracer is doing at that time. Here
    it is stopped."""
    before, after = start(any_python, "golden.py"), start(any_python, "golden.py")
    began = time.monotonic()
    run = trace("-p", "%d,%d" % (before.pid, after.pid), "-d", "2", "-m", "exact", attached=2)
    attached = time.monotonic()
    before.step()
    live = before.expect()
    run.process.send_signal(signal.SIGSTOP)
    time.sleep(6)
    after.step()
    assert after.expect()
    run.process.send_signal(signal.SIGCONT)
    assert run.wait() == 0
    assert run.report("--pid", before.pid).marked("golden.py", live) == live
    assert not any(
        sum(of) for of in run.report("--pid", after.pid).marked("golden.py", live).values()
    )
    assert re.search(r"^tracer: the report came \d+\.\d s after the last event: ", run.stderr, re.M)
    # With the time in which it was stopped it would be 4 s more.
    assert run.report().data["duration_ns"] <= (attached - began + 4) * 1e9


def test_interval(start, trace, any_python):
    target = start(any_python, "golden.py")
    run = trace("-p", target.pid, "--interval", "0.2", "--format", "json", "--top", 0)
    wait_until(lambda: len(run.printed_reports()) >= 2, "it has printed twice")
    target.step()
    live = target.expect()
    wait_until(
        lambda: run.printed_reports()[-1].marked("golden.py", live) == live,
        "it has printed what is live",
    )
    before = len(run.printed_reports())
    run.finish()
    assert len(run.printed_reports()) > before, "no report at the end"


# --- no probe stays -------------------------------------------------------------------------------


def probed_bytes(run_tracer, pid):
    """A function that reads the first byte of the target's instruction at each place of the plan:
    {symbol: byte}."""
    plan = run_tracer("--dry-run", "-p", pid)
    assert plan.returncode == 0, plan.stderr
    path = re.search(r" in (/\S+)", plan.stdout).group(1)
    sites = {
        name: int(offset, 16)
        for name, offset in re.findall(r"^  (\S+) +file offset (0x[0-9a-f]+)", plan.stdout, re.M)
    }
    assert sites, plan.stdout
    addresses = {}
    with open("/proc/%d/maps" % pid) as maps:
        for line in maps:
            span, mode, offset, _, _, *name = line.split()
            low, high = (int(n, 16) for n in span.split("-"))
            for symbol, site in sites.items():
                if (
                    name
                    and name[0] == path
                    and "x" in mode
                    and 0 <= site - int(offset, 16) < high - low
                ):
                    addresses[symbol] = low + site - int(offset, 16)
    assert set(addresses) == set(sites)

    def read():
        with open("/proc/%d/mem" % pid, "rb", buffering=0) as memory:
            return {
                symbol: os.pread(memory.fileno(), 1, address)
                for symbol, address in addresses.items()
            }

    return read


@pytest.mark.parametrize(
    "backend, number",
    (
        ("session", signal.SIGKILL),
        ("session", signal.SIGINT),
        ("multi", signal.SIGKILL),
        ("multi", signal.SIGTERM),
        # The kernel removes these one by one, which takes ten seconds.
        ("perf", signal.SIGKILL),
    ),
)
def test_no_probe_stays(start, trace, run_tracer, any_python, backend, number):
    """The end of the tracer, also by SIGKILL, removes every breakpoint from the target. The target
    continues and answers."""
    target = start(any_python, "golden.py", 5000)
    read = probed_bytes(run_tracer, target.pid)
    pristine = read()
    run = trace("-p", target.pid, "--backend", backend)
    assert all(
        read()[symbol] != byte for symbol, byte in pristine.items()
    ), "what is read here are not the probes"
    target.step()  # the tracer dies while the target works
    run.process.send_signal(number)
    assert run.wait() == (-signal.SIGKILL if number == signal.SIGKILL else 0)
    wait_until(lambda: read() == pristine, "the target's code is as it was")
    target.expect()
    assert target.finish() == 0


def test_killed_tracer_leaves_no_snapshot(start, trace, any_python):
    target = start(any_python, "golden.py")
    run = trace("-p", target.pid)
    run.kill()
    assert not os.path.exists(run.snapshot)


def test_trace_after_a_killed_tracer(start, trace, any_python):
    target = start(any_python, "golden.py")
    trace("-p", target.pid).kill()
    run = trace("-p", target.pid)
    target.step()
    live = target.expect()
    assert run.finish().marked("golden.py", live) == live


@pytest.mark.versions("3.8", "3.13")
@pytest.mark.parametrize("second", ("session", "perf"))
def test_two_tracers(start, trace, python, second):
    target = start(python, "golden.py")
    runs = [trace("-p", target.pid), trace("-p", target.pid, "--backend", second)]
    target.step()
    live = target.expect()
    for run in runs:
        assert run.finish().marked("golden.py", live) == live
    assert target.finish() == 0
