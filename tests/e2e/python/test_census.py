# SPDX-License-Identifier: Apache-2.0
"""The heap walk compared with the target's own account, for targets that change the heap during the
walk."""
import re
import signal
import subprocess
import threading
import time

import pytest

from harness import program, wait_until

COUNT = 5000


def account(start, trace, python, *options):
    """Every block of the heap is traced, older than the trace, or new and not seen. No block is
    omitted."""
    target = start(python, "account.py", COUNT)
    target.step()
    before = int(target.read_line())
    target.wait_reading()
    run = trace("-p", target.pid, *options)
    target.step()
    target.step()
    target.read_line()
    blocks = int(target.read_line())
    target.wait_reading()
    report = run.finish()
    counts = report.data["coverage"]
    assert counts["pools_unreadable"] == 0
    assert counts["live_blocks"] + counts["large_blocks"] == blocks
    assert counts["live_blocks"] == counts["old_blocks"] + counts["new_blocks"]
    assert counts["new_blocks"] > 5 * COUNT and 0 < counts["old_blocks"] <= before
    assert counts["new_blocks"] >= counts["seen_blocks"] >= 0.999 * counts["new_blocks"]
    assert target.finish() == 0
    return run, counts


@pytest.mark.versions()
@pytest.mark.parametrize("mode", ("census", "exact"))
def test_every_block(start, trace, python, mode):
    account(start, trace, python, "--mode", mode)


def test_every_block_inlined(start, trace, debian_python):
    account(start, trace, debian_python)


def test_frozen(start, trace, any_python):
    """--freeze reports how long the target was stopped. Without it, nothing is reported."""
    run, counts = account(start, trace, any_python, "--freeze")
    assert 0 < counts["elapsed_ns"] <= counts["frozen_ns"]
    assert re.search(r"with the target stopped for \d+\.\d ms", run.stdout)
    run, counts = account(start, trace, any_python)
    assert counts["frozen_ns"] == 0 and "stopped" not in run.stdout


@pytest.mark.versions()
def test_launch_interrupted(trace, python):
    run = trace("--", python.path, program("golden.py"), stdin=subprocess.PIPE)
    run.step()
    live = run.expect()
    # The first Ctrl-C belongs to the command. A second one ends the trace; a third one would end
    # the last walk of the heap.
    run.interrupt()
    time.sleep(0.5)
    run.interrupt()
    run.wait()
    report = run.finish()
    assert report.lost_events == 0
    assert report.marked("golden.py", live) == live


def check_said(run, report):
    """If the heap cannot be read any more when a process is killed (kernels before 6.16), the
    report states how old its figures are."""
    coverage = report.data["coverage"]
    last = run.stdout[run.stdout.rindex("Not seen:") :]
    unread = coverage is None or coverage["unread_ns"] >= 1000000
    assert any("before the end" in said for said in report.data.get("warnings", ())) == unread
    if coverage is None:
        assert (
            "  the heap was not read before the end: small blocks that were freed are counted as "
            "live" in last
        )
    else:
        said = re.search(
            r"^  the heap was last read [\d.]+ ms before the end: small blocks freed since then are "
            r"counted as live$",
            last,
            re.M,
        )
        assert bool(said) == (coverage["unread_ns"] >= 1000000)


@pytest.mark.versions()
def test_killed(start, trace, python):
    target = start(python, "golden.py")
    run = trace("-p", target.pid, "--interval", "0.1")
    target.step()
    live = target.expect()
    wait_until(
        lambda: re.search(r"\d new small blocks traced|  heap: ", run.stdout),
        "the heap has been read",
    )
    target.process.send_signal(signal.SIGKILL)
    assert run.wait() == 0
    report = run.report()
    assert report.data["moment"] == "exited"
    assert report.marked("golden.py", live) == live
    check_said(run, report)


def test_killed_at_once(trace, any_python):
    """A process that ends before the session's first periodic heap walk."""
    suicide = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    run = trace("--", any_python.path, "-S", "-c", suicide, attached=False)
    assert run.wait() == 128 + signal.SIGKILL
    check_said(run, run.report())


def check_unrest(report, live, threads):
    """Blocks of line K stay. For line R, each thread may be about to replace a block."""
    assert report.lost_events == 0
    assert report.line("unrest.py", "K") == live["K"]
    size, count = report.line("unrest.py", "R")
    assert live["R"][1] - threads <= count <= live["R"][1] + threads
    assert abs(size - live["R"][0]) <= threads * 200
    assert report.line("unrest.py", "T")[1] <= threads


@pytest.mark.versions()
@pytest.mark.parametrize("options", ((), ("--freeze",)), ids=("running", "frozen"))
def test_unrest(start, trace, python, options):
    threads = 4
    target = start(python, "unrest.py", threads, 500)
    run = trace("-p", target.pid, *options)
    target.step()
    live = target.expect()
    check_unrest(run.finish(), live, threads)
    assert target.finish() == 0


@pytest.mark.parametrize("options", ((), ("--freeze",)), ids=("running", "frozen"))
def test_unrest_inlined(start, trace, debian_python, options):
    target = start(debian_python, "unrest.py", 4, 500)
    run = trace("-p", target.pid, *options)
    target.step()
    live = target.expect()
    check_unrest(run.finish(), live, 4)


@pytest.mark.versions()
def test_idle(start, trace, python):
    """When a thread sleeps, its last operation is complete: its last block is freed, however
    recently that happened."""
    target = start(python, "idle.py")
    run = trace("-p", target.pid)
    for _ in range(3):
        target.step()
    target.wait_reading()
    report = run.finish()
    assert report.line("idle.py", "K") == (3 * 333, 3)
    assert report.line("idle.py", "T") == (0, 0)


class Hammer:
    """Requests heap walks continuously while it is entered."""

    def __init__(self, run_tracer, pid):
        self.readings, self.failed, self._over = 0, [], threading.Event()
        self._thread = threading.Thread(target=self._run, args=(run_tracer, pid))

    def _run(self, run_tracer, pid):
        while not self._over.is_set():
            done = run_tracer("ctl", pid, "reset-peak")
            if done.returncode:
                self.failed.append(done.stderr)
                break
            self.readings += 1

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


def hammer(start, trace, run_tracer, python, name, arguments, *options):
    target = start(python, name, *arguments)
    run = trace("-p", target.pid, *options)
    with Hammer(run_tracer, target.pid) as readings:
        target.step()
        live = target.expect()
        wait_until(
            lambda: readings.readings >= 5 or readings.failed, "the heap has been read a few times"
        )
    assert not readings.failed
    report = run.finish()
    assert report.lost_events == 0
    assert report.marked(name, live) == live
    assert target.finish() == 0


@pytest.mark.versions()
@pytest.mark.parametrize(
    "name, arguments", (("golden.py", (20000,)), ("threads.py", (8, 4000)), ("realloc.py", ()))
)
@pytest.mark.long
def test_hammered(start, trace, run_tracer, python, name, arguments):
    """Heap walks during allocations and frees lose no live block."""
    hammer(start, trace, run_tracer, python, name, arguments)


@pytest.mark.parametrize(
    "options", ((), ("--freeze",), ("--mode", "exact")), ids=("census", "frozen", "exact")
)
@pytest.mark.long
def test_hammered_inlined(start, trace, run_tracer, debian_python, options):
    hammer(start, trace, run_tracer, debian_python, "threads.py", (8, 4000), *options)


@pytest.mark.long
def test_stopped(start, trace, run_tracer, any_python):
    """A stopped target may remain between a record and the operation that the record describes for
    any length of time."""
    target = start(any_python, "threads.py", 8, 20000)
    run = trace("-p", target.pid)
    target.step()
    for _ in range(20):
        target.process.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        assert run_tracer("ctl", target.pid, "reset-peak").returncode == 0
        target.process.send_signal(signal.SIGCONT)
        time.sleep(0.02)
    live = target.expect()
    report = run.finish()
    assert report.lost_events == 0
    assert report.marked("threads.py", live) == live


def corrupt(start, trace, python, kind):
    target = start(python, "corrupt.py", kind)
    run = trace("-p", target.pid)
    target.step()
    live = target.expect()
    report = run.finish()
    assert report.data["coverage"]["pools_unreadable"] == 3
    size, count = report.line("corrupt.py", "K")
    # Only blocks that were freed in the corrupt pools may be counted as live.
    assert live["K"][1] <= count <= live["K"][1] + 3
    assert size * live["K"][1] == live["K"][0] * count
    assert "pools that could not be read: 3, where traced blocks are counted as live" in run.stdout
    assert target.finish() == 0


@pytest.mark.versions()
@pytest.mark.parametrize("kind", ("cycle", "wild", "header"))
def test_corrupt(start, trace, python, kind):
    corrupt(start, trace, python, kind)


def test_corrupt_inlined(start, trace, debian_python):
    corrupt(start, trace, debian_python, "cycle")


def test_one_analysis(start, trace, debian_python):
    """The code of one interpreter is decoded once for two processes."""
    targets = [start(debian_python, "golden.py") for _ in range(2)]
    run = trace(
        "-v", "-p", ",".join(str(target.pid) for target in targets), output=False, attached=2
    )
    # The first process is planned while the programs are loaded, before it is attached to.
    assert run.stderr.count("the plan is that of the same file before") == 2
    for target in targets:
        target.step()
        target.expect()
    run.interrupt()
    assert run.wait() == 0


@pytest.mark.versions("3.10", "3.11")
def test_lost_heap(start, trace, python):
    """The heap cannot be read any more, so that census mode would not see any free. Earlier figures
    are dropped, later ones are exact."""
    target = start(python, "lost_heap.py")
    run = trace("-p", target.pid, "--mode", "census")
    target.step()
    target.read_until("lost")
    wait_until(lambda: "exact mode from here on" in run.stderr, "the session has given the heap up")
    assert "arenas" in run.stderr
    target.step()
    target.read_until("done")
    report = run.finish()
    assert [mode["mode"] for mode in report.data["modes"]] == ["census", "exact"]
    assert (
        "Figures cover the time since" in run.stdout and "its heap could not be read" in run.stdout
    )
    assert report.line("lost_heap.py", "K")[1] in range(1000, 1010)
    assert report.line("lost_heap.py", "D")[1] < 10
    assert target.finish() == 0
