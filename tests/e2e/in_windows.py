# SPDX-License-Identifier: Apache-2.0
"""Traces in windows of probes."""
import subprocess

from harness import TIMEOUT, Traced, read_report, wait_until
from procfs import text_differs


def windows(run):
    return run.stderr.count(": a window of")


def wait_windows(run, count):
    seen = windows(run)
    wait_until(lambda: windows(run) >= seen + count, "%d windows are over" % count)


def wait_clean(pid):
    wait_until(lambda: not text_differs(pid), "no probe is in the text of PID %d" % pid)


def run_in_windows(tracer, tmp_path, target, *args):
    """(run, what is alive, report): the second step comes when 25 windows are over."""
    with Traced(tracer, tmp_path, "-v", *args, "-p", target.pid) as run:
        target.step()
        wait_windows(run, 25)
        target.step()
        live = target.expect()
        report = run.finish()
    wait_clean(target.pid)
    return run, live, report


def check_replay(tracer, tmp_path, capture, report):
    """The capture gives the same lines."""
    replayed = tmp_path / "replayed.pb.gz"
    done = subprocess.run(
        [tracer, "replay", capture, "-o", replayed], stdout=subprocess.PIPE, timeout=TIMEOUT
    )
    assert done.returncode == 0
    assert read_report(tracer, replayed).lines() == report.lines()
