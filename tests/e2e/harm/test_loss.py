# SPDX-License-Identifier: Apache-2.0
"""Every loss is reported."""
import os
import signal
import subprocess

import pytest

from harness import ROOT, wait_until


def read_text(run):
    done = subprocess.run(
        [run.tracer, "report", run.snapshot], stdout=subprocess.PIPE, timeout=60, check=True
    )
    return done.stdout.decode()


@pytest.mark.versions("3.8", "3.11", "3.13")
@pytest.mark.parametrize("backend", ("session", "perf"))
def test_small_buffer(start, trace, python, backend):
    """A tracer that cannot keep up (here it is stopped) loses the events that do not fit into its
    ring buffer, and reports the loss."""
    target = start(python, "golden.py", 5000)
    run = trace("-p", target.pid, "--buffer", "64K", "--backend", backend)
    os.kill(run.pid, signal.SIGSTOP)
    target.step()
    live = target.expect()  # the target does not wait for the tracer
    os.kill(run.pid, signal.SIGCONT)
    report = run.finish()
    assert target.finish() == 0
    not_seen = report.data["not_seen"]
    assert report.lost_events > 1000
    assert (
        not_seen["lost_allocs"] > 0
        and not_seen["lost_alloc_bytes"] > 0
        and not_seen["lost_frees"] > 0
    )
    assert 0 < report.line("golden.py", "A")[1] < live["A"][1]
    text = [line for line in run.stdout.split("\n") if "lost events" in line]
    assert len(text) == 1 and "none" not in text[0] and "ring buffer full" in text[0]
    assert "blocks of lost allocations are not in the report" in text[0], (
        "what the loss means: " + text[0]
    )


def test_lost_frees(start, trace, any_python):
    """A heap walk finds the blocks whose free was not seen."""
    parts = 12
    target = start(any_python, "drop.py", parts, 5000)
    run = trace(
        "-p",
        target.pid,
        "-m",
        "exact",
        "--buffer",
        "2M",
        "--interval",
        "0.1",
        "--format",
        "json",
        "--top",
        "0",
    )
    for _ in range(parts):  # in parts that fit into the buffer
        target.step()
        kept = target.expect()
        wait_until(
            lambda: [r for r in run.printed_reports() if r.marked("drop.py", kept) == kept],
            "the table has them",
        )
    os.kill(run.pid, signal.SIGSTOP)
    target.step()
    live = target.expect()
    os.kill(run.pid, signal.SIGCONT)
    report = run.finish()
    not_seen = report.data["not_seen"]
    assert not_seen["lost_frees"] > 1000 > 100 * not_seen["lost_allocs"]
    # Their frees are lost, but a heap walk finds that the blocks are dead.
    assert report.line("drop.py", "B") == live["B"]
    assert "small blocks are checked against the heap" in read_text(run)


def test_said_while_running(start, trace, any_python):
    """Reports at intervals also state what is missing from them."""
    target = start(any_python, "golden.py", 5000)
    run = trace(
        "-p", target.pid, "--buffer", "64K", "--interval", "0.1", "--format", "json", "--top", "0"
    )
    os.kill(run.pid, signal.SIGSTOP)
    target.step()
    live = target.expect()
    os.kill(run.pid, signal.SIGCONT)
    wait_until(
        lambda: [r for r in run.printed_reports() if r.line("golden.py", "A")[1]],
        "it has printed some of it",
    )
    printed = run.printed_reports()[-1]
    assert printed.line("golden.py", "A")[1] < live["A"][1]
    assert printed.lost_events > 0


@pytest.mark.versions("3.8", "3.13")
def test_default_buffer(trace, python):
    """An allocation-heavy program at full speed."""
    run = trace(
        "--", python.path, os.path.join(ROOT, "tools", "bench", "workloads", "w1.py"), 0, 20000
    )
    assert run.wait() == 0
    report = run.report()
    assert report.lost_events == 0
    assert report.total["count"] > 20000
    assert "lost events: none" in run.stdout or "no event lost" in run.stdout


@pytest.fixture
def named(any_python, tmp_path):
    """An interpreter whose processes have a unique name."""
    path = tmp_path / ("blind%d" % (os.getpid() % 100000))
    path.symlink_to(any_python.path)
    return path


def trace_stopped(start, trace, named, *program, options=()):
    """A run whose ring buffer is filled by other processes before the target does anything."""
    target = start(str(named), *program)
    target.wait_reading()
    run = trace("--comm", named.name, "--buffer", "4K", "--layer", "python", *options)
    os.kill(run.pid, signal.SIGSTOP)
    for _ in range(100):  # more than 4 KiB of records
        subprocess.run(["true"], check=True)
    target.step()
    live = target.expect()
    target.wait_reading()
    os.kill(run.pid, signal.SIGCONT)
    return target, run, live


def test_nothing_seen(start, trace, named):
    """An empty report of a program that allocated is an error: it looks like the report of a
    program that did nothing."""
    target, run, live = trace_stopped(start, trace, named, "golden.py", 5000)
    report = run.finish(status=1)
    assert live["A"][1] > 0 and report.line("golden.py", "A") == (0, 0)
    assert report.data["not_seen"]["lost_allocs"] > 1000
    assert "Total: size=0 B" in run.stdout, "the report is there all the same"
    (line,) = [line for line in run.stderr.splitlines() if "no block was seen" in line]
    assert (
        line.startswith("tracer: trace: ")
        and "ring buffer" in line
        and line.endswith("fewer events")
        and "--buffer" in line
    )
    assert target.finish() == 0


def test_something_seen(start, trace, named):
    """Later events suffice for a report."""
    target, run, _ = trace_stopped(
        start, trace, named, "drop.py", 2, 5000, options=("--interval", "0.1", "--format", "json")
    )
    wait_until(lambda: [r for r in run.printed_reports() if r.lost_events], "there is room again")
    target.step()
    target.expect()
    report = run.finish()
    assert report.lost_events > 1000 and report.data["total"]["count"] > 0


def test_nothing_done(start, trace, any_python):
    """A program that only waits has an empty report, which is correct."""
    target = start(any_python, "golden.py")
    target.wait_reading()
    run = trace("-p", target.pid, "--layer", "python")
    report = run.finish()
    assert report.total["count"] == 0 and "no block was seen" not in run.stderr
