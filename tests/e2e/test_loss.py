# SPDX-License-Identifier: Apache-2.0
"""Nothing is lost in silence."""
import os
import signal
import subprocess

import pytest

from harness import ROOT, wait_until


def read_text(run):
    done = subprocess.run([run.tracer, "report", run.snapshot], stdout=subprocess.PIPE, timeout=60, check=True)
    return done.stdout.decode()


@pytest.mark.versions("3.8", "3.11", "3.13")
@pytest.mark.parametrize("backend", ("session", "perf"))
def test_small_buffer(start, trace, python, backend):
    """A tracer that cannot keep up (here it is stopped) loses what its ring buffer has no room for, and says so."""
    target = start(python, "golden.py", 5000)
    run = trace("-p", target.pid, "--buffer", "64K", "--backend", backend)
    os.kill(run.pid, signal.SIGSTOP)
    target.step()
    live = target.expect()  # the target does not wait for it
    os.kill(run.pid, signal.SIGCONT)
    report = run.finish()
    assert target.finish() == 0
    not_seen = report.data["not_seen"]
    assert report.lost_events > 1000
    assert not_seen["lost_allocs"] > 0 and not_seen["lost_alloc_bytes"] > 0 and not_seen["lost_frees"] > 0
    assert 0 < report.line("golden.py", "A")[1] < live["A"][1]
    text = [line for line in run.stdout.split("\n") if "lost events" in line]
    assert len(text) == 1 and "none" not in text[0] and "ring buffer full" in text[0]
    assert "blocks of lost allocations are in no line" in text[0], "what the loss means: " + text[0]


def test_lost_frees(start, trace, any_python):
    """Of blocks whose death was not seen the heap tells that they are dead."""
    parts = 12
    target = start(any_python, "drop.py", parts, 5000)
    run = trace("-p", target.pid, "-m", "exact", "--buffer", "2M", "--interval", "0.1", "--format", "json", "--top", "0")
    for _ in range(parts):  # in parts that the buffer has room for
        target.step()
        kept = target.expect()
        wait_until(lambda: [r for r in run.printed_reports() if r.marked("drop.py", kept) == kept], "the table has them")
    os.kill(run.pid, signal.SIGSTOP)
    target.step()
    live = target.expect()
    os.kill(run.pid, signal.SIGCONT)
    report = run.finish()
    not_seen = report.data["not_seen"]
    assert not_seen["lost_frees"] > 1000 > 100 * not_seen["lost_allocs"]
    # Their frees are lost, but the heap tells that they are dead.
    assert report.line("drop.py", "B") == live["B"]
    assert "only what the heap shows is live" in read_text(run)


def test_said_while_running(start, trace, any_python):
    """What is printed at intervals, too, tells what is missing from it."""
    target = start(any_python, "golden.py", 5000)
    run = trace("-p", target.pid, "--buffer", "64K", "--interval", "0.1", "--format", "json", "--top", "0")
    os.kill(run.pid, signal.SIGSTOP)
    target.step()
    live = target.expect()
    os.kill(run.pid, signal.SIGCONT)
    wait_until(lambda: [r for r in run.printed_reports() if r.line("golden.py", "A")[1]], "it has printed some of it")
    printed = run.printed_reports()[-1]
    assert printed.line("golden.py", "A")[1] < live["A"][1]
    assert printed.lost_events > 0


@pytest.mark.versions("3.8", "3.13")
def test_default_buffer(trace, python):
    """An allocation-heavy program at full speed."""
    run = trace("--", python.path, os.path.join(ROOT, "tools", "workloads", "w1.py"), 0, 20000)
    assert run.wait() == 0
    report = run.report()
    assert report.lost_events == 0
    assert report.total["count"] > 20000
    assert "lost events: none" in run.stdout
