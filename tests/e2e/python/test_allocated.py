# SPDX-License-Identifier: Apache-2.0
"""What was allocated, alive or not, against a program that counts its own allocations."""
import re

import pytest

from harness import error_line, marked_line, pprof, program, read_report

SCALE = 1000
D = 2 * SCALE  # line D allocates so many blocks of bytes(600), and drops each at once


def of(report, mark):
    key = program("golden.py"), marked_line("golden.py", mark)
    for entry in report.statistics:
        frame = entry["traceback"][0]
        if (frame["filename"], frame["lineno"]) == key:
            return entry["allocated_size"], entry["allocated_count"]
    return None


@pytest.mark.parametrize("mode", ("census", "exact"))
def test_allocated(start, trace, tracer, any_python, mode):
    target = start(any_python, "golden.py", SCALE)
    run = trace("-p", target.pid, "-m", mode)
    target.step()
    live = target.expect()
    report = run.finish()
    assert of(report, "D") is None, "a line that holds nothing"
    for mark in "ABE":  # nothing of them has died
        assert of(report, mark) == live[mark]
    everything = read_report(tracer, run.snapshot, "--sort", "allocated")
    assert of(everything, "D") == (D * 633, D)
    lines = {
        mark: entry
        for mark in "AD"
        for entry in everything.statistics
        if entry["traceback"][0]["lineno"] == marked_line("golden.py", mark)
    }
    line = lines["D"]
    if mode == "exact":
        assert (line["temporary_size"], line["temporary_count"]) == (D * 633, D)
        rows = read_report(tracer, run.snapshot, "--group-by", "lifetime").statistics
        assert sum(row["count"] for row in rows) == report.total["allocated_count"]
        alive = {row["lifetime"]: row["count"] for row in rows}["still alive"]
        assert alive == report.total["count"]
    else:
        assert "temporary_count" not in report.total
        # Those of the tick in which a walk begins are not counted.
        assert D / 2 < line["short_lived_count"] <= D
        assert line["short_lived_size"] == 633 * line["short_lived_count"]
        assert lines["A"]["short_lived_count"] == 0
    size, count = of(everything, "C")
    assert count > live["C"][1] and size > live["C"][0]
    total = everything.total
    assert total == report.total
    for key in ("allocated_size", "allocated_count"):
        assert sum(entry[key] for entry in everything.statistics) == total[key]


@pytest.mark.parametrize("mode", ("census", "exact"))
def test_peak(start, trace, tracer, run_tracer, any_python, tmp_path, mode):
    """The program's cache is dropped before the report; at the peak it was there."""
    target = start(any_python, "phases.py")
    run = trace("-p", target.pid, "-m", mode)
    target.step()
    grown = target.expect()["G"]
    if mode == "census":  # which knows heap walks, as one is made for each snapshot
        run_tracer("ctl", target.pid, "snapshot", tmp_path / "grown.pb.gz")
    target.step()
    target.expect()
    target.step()
    left = target.expect()
    report = run.finish()
    peak = read_report(tracer, run.snapshot, "--at-peak")
    assert report.marked("phases.py", left) == left
    assert peak.line("phases.py", "G") == tuple(grown)
    assert peak.line("phases.py", "L") == (0, 0)
    assert peak.data["at_peak"] and "at_peak" not in report.data
    assert report.data["peak"] == {key: peak.total[key] for key in ("size", "count")}
    if mode == "exact":
        assert peak.total["size"] == report.data["peak_size"]


@pytest.mark.parametrize("mode", ("census", "exact"))
def test_threads(start, trace, tracer, any_python, mode):
    target = start(any_python, "thread_owners.py")
    run = trace("-p", target.pid, "-m", mode)
    target.step()
    live = target.expect()
    whole = run.finish()
    line = "*/thread_owners.py:%d" % marked_line("thread_owners.py", "K")
    rows = read_report(tracer, run.snapshot, "--by", "thread", "--include", line).statistics
    owners = {"%(thread)s %(tid)d" % row: (row["size"], row["count"]) for row in rows}
    assert owners == live
    report = read_report(tracer, run.snapshot, "--by", "thread")
    assert report.total == {key: whole.total[key] for key in ("size", "count")}


def test_pprof(start, trace, any_python):
    """As Go's heap profiles name them."""
    target = start(any_python, "golden.py", 100)
    run = trace("-p", target.pid)
    target.step()
    target.expect()
    total = run.finish().total
    for index, key in (("alloc_space", "allocated_size"), ("inuse_objects", "count")):
        text = pprof("-top", "-unit=B", "-sample_index=" + index, run.snapshot)
        assert re.search(r"% of (\d+)B? total", text).group(1) == str(total[key])
