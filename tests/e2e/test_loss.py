# SPDX-License-Identifier: Apache-2.0
"""Nothing is lost in silence."""
import os
import signal

import pytest

from harness import ROOT, Target


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
    assert "upper bounds" in text[0], "what the loss means: " + text[0]


def test_only_frees_lost(start, trace, any_python):
    """Blocks whose death was not seen stay in the table: its figures are upper bounds."""
    target = start(any_python, "drop.py", 5000)
    run = trace("-p", target.pid, "--buffer", "64K")
    target.step()
    kept = target.expect()
    # Its table knows them before it is stopped.
    run_until_seen(run, kept)
    os.kill(run.pid, signal.SIGSTOP)
    target.step()
    live = target.expect()
    os.kill(run.pid, signal.SIGCONT)
    report = run.finish()
    assert report.data["not_seen"]["lost_frees"] > 0
    assert live["B"][1] < report.line("drop.py", "B")[1] <= kept["B"][1]
    assert "upper bounds" in run.stdout


@pytest.mark.versions("3.8", "3.13")
def test_default_buffer(trace, python, any_python):
    """An allocation-heavy program at full speed."""
    run = trace("--", python.path, os.path.join(ROOT, "tools", "workloads", "w1.py"), 0, 20000)
    assert run.wait() == 0
    report = run.report()
    assert report.lost_events == 0
    assert report.total["count"] > 20000
    assert "lost events: none" in run.stdout
