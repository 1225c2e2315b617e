# SPDX-License-Identifier: Apache-2.0
"""--record: a snapshot every so often, of which each one can be read again."""
import glob
import json
import os
import signal

import pytest

from harness import error_line, marked_line, program, read_report, wait_until


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "shop.rec")


def recorded(tracer, path, live):
    """Waits until the recording's last snapshot is as the program says."""
    wait_until(lambda: os.path.exists(path), "the recording is there")
    wait_until(
        lambda: read_report(tracer, path).marked("phases.py", live) == live, "it has what is live"
    )


def test_killed(start, trace, tracer, any_python, path, run_tracer):
    """What was recorded until the tracer is killed can be read, and compared."""
    target = start(any_python, "phases.py")
    run = trace("-p", target.pid, "--record", path, "--every", 0.1, output=False)
    seen = []
    for _ in range(3):
        target.step()
        seen.append(target.expect())
        target.wait_reading()
        recorded(tracer, path, seen[-1])
    run.process.send_signal(signal.SIGKILL)
    run.wait()
    assert read_report(tracer, path).marked("phases.py", seen[2]) == seen[2]
    assert not glob.glob(os.path.join(os.path.dirname(path), ".tracer-*")), "left behind"
    # The beginning, before the first phase or within it.
    first = read_report(tracer, path, "--at", "start")
    assert first.line("phases.py", "L") == (0, 0)
    done = run_tracer("diff", path + "@start", path, "--format", "json", "--top", 0)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("of the recording") == 2
    text = run_tracer("timeline", path, "--format", "json", "--top", 0, "--points", 1000).stdout
    series = json.loads(text)
    assert series["total"]["size"][0] == first.total["size"]
    assert series["total"]["size"][-1] == read_report(tracer, path).total["size"]
    line = {"filename": program("phases.py"), "lineno": marked_line("phases.py", "G")}
    (cache,) = [entry for entry in series["lines"] if entry["traceback"] == [line]]
    # It grew, and shrank.
    assert cache["size"][-1] == seen[2]["G"][0] < max(cache["size"]) == seen[0]["G"][0]
    changed = read_report(tracer, path).total["size"] - first.total["size"]
    assert '"size_diff": %d' % changed in done.stdout


def test_peak_of(start, trace, tracer, run_tracer, any_python, path):
    """The program's cache grows and shrinks again: the highest moment of a range, as the series of
    all totals has it."""
    target = start(any_python, "phases.py")
    run = trace("-p", target.pid, "--record", path, "--every", 0.1, output=False)
    target.step()
    grown = target.expect()
    target.wait_reading()
    recorded(tracer, path, grown)
    target.step()
    target.expect()
    target.step()
    left = target.expect()
    target.wait_reading()
    recorded(tracer, path, left)
    run.interrupt()
    assert run.wait() == 0, run.stderr
    text = run_tracer("timeline", path, "--format", "json", "--points", 1000).stdout
    series = json.loads(text)
    totals = series["total"]["size"]
    peak = read_report(tracer, path, "--peak-of", "..")
    assert peak.total["size"] == max(totals)
    assert peak.line("phases.py", "G") == tuple(grown["G"]) and not peak.line("phases.py", "L")[0]
    # The end of the recording alone.
    assert read_report(tracer, path, "--peak-of", "end..").marked("phases.py", left) == left
    assert read_report(tracer, path + "@..").data == peak.data
    said = run_tracer("report", path, "--peak-of", "start..end").stderr
    assert "with the highest total of the %d in the range" % len(totals) in said
    for options in (("--at", "1s..2s"), ("--peak-of", "1s"), ("--peak-of", "..", "--at", "1s")):
        error_line(run_tracer("report", path, *options), 2)
    assert "ends before" in error_line(run_tracer("report", path, "--peak-of", "2s..1s"), 1)


def test_last(start, trace, tracer, any_python, path):
    """The last snapshot is that of -o, whatever the interval."""
    target = start(any_python, "phases.py")
    run = trace("-p", target.pid, "--record", path)
    target.step()
    target.expect()
    target.wait_reading()
    report = run.finish()
    last = read_report(tracer, path).data
    assert last == report.data
    assert last["total"]["count"] >= 2000


@pytest.mark.unprivileged
@pytest.mark.parametrize(
    "options, said",
    (
        (("--every", "1"), "--record FILE"),
        (("--record", "-"), "a recording is a file"),
        (("--record", "x", "--every", "0"), "seconds above 0"),
    ),
)
def test_refused(run_tracer, options, said):
    assert said in error_line(run_tracer("-p", os.getpid(), *options), 2)
