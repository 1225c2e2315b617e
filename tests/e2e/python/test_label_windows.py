# SPDX-License-Identifier: Apache-2.0
"""Estimates by a variable's value, a task and a thread, from windows, against a program that counts.
No test here checks a duration."""
import json
import math

import pytest

from harness import error_line, marked_line, read_report, wait_until

pytestmark = pytest.mark.usefixtures("undisturbed")

LINE = "*/labels_steady.py:%d" % marked_line("labels_steady.py", "L")
BY = {
    "context": "context shop.path",
    "local": "local handle:path",
    "task": "task",
    "thread": "thread",
}
# Of all of the line, which the heap's own counts give; of each row, in standard errors. Chance alone
# exceeds so many of them once in some 30,000 rows.
TOTAL, ERRORS = 0.05, 4.2


def rows_of(report, kind):
    key = {"task": "task", "thread": "tid"}.get(kind, "value")
    return {str(row[key]): row for row in report.statistics}


def check(tracer, run, truth, kind):
    report = read_report(tracer, run.snapshot, "--by", BY[kind], "--include", LINE, "--top", 0)
    rows = rows_of(report, kind)
    total = sum(size for size, _ in truth.values())
    told = sum(row["size"] for row in rows.values())
    untold = report.data["windows"]["unseen"]["size"]
    assert (1 - TOTAL) * total <= told + untold and told <= (1 + TOTAL) * total, (rows, truth)
    for name, (size, count) in truth.items():
        row = rows[name]
        assert abs(row["size"] - size) <= ERRORS * row["size_error"] + untold, (name, rows, truth)
        assert abs(row["count"] - count) <= ERRORS * row["count_error"] + untold / 100
        assert 0 < row["size_error"] < total
    assert math.isclose(report.total["size"], told, rel_tol=1e-9)


def traced(trace, target, windows, *options):
    """The run, and what the program has counted."""
    run = trace("-v", "--window", "40/200", "-p", target.pid, *options)
    target.step()
    wait_until(lambda: run.stderr.count(": a window of") >= windows, "windows are over")
    target.step()
    truth = json.loads(target.read_line())
    assert run.finish().data["mode"] == "windows"
    return run, truth


@pytest.mark.versions("3.8", "3.11", "3.13")
@pytest.mark.parametrize("kind", ("context", "local", "thread"))
def test_windows(start, trace, tracer, run_tracer, python, kind):
    target = start(python, "labels_steady.py", kind)
    run, truth = traced(trace, target, 25, "--by", BY[kind])
    check(tracer, run, truth, kind)
    done = run_tracer("report", run.snapshot, "--by", BY[kind], "--include", LINE)
    assert (kind == "thread" or "/export" in done.stdout) and " ± " in done.stdout, done.stderr
    if kind != "thread":
        said = "in windows a trace by %s tells no threads" % BY[kind]
        assert said in error_line(run_tracer("report", run.snapshot, "--by", "thread"), 2)


@pytest.mark.root_versions(since="3.14")
@pytest.mark.parametrize("kind", ("context", "task"))
def test_newer(start, trace, tracer, root_python, kind):
    if root_python.py_debug:
        pytest.skip("a build with assertions is traced all the time, not in windows")
    target = start(root_python.path, "labels_steady.py", kind, prefix=("chroot", root_python.root))
    run, truth = traced(trace, target, 25, "--by", BY[kind])
    check(tracer, run, truth, kind)


def test_not_asked(start, trace, run_tracer, any_python):
    """Nobody has asked for threads when the trace began."""
    target = start(any_python, "labels_steady.py", "thread")
    run, _ = traced(trace, target, 3)
    error = error_line(run_tracer("report", run.snapshot, "--by", "thread"), 2)
    assert "in windows only a trace that was begun with --by thread does" in error


def test_growth_refused(run_tracer):
    error = error_line(run_tracer("-p", 1, "-m", "growth", "--by", "thread"), 2)
    assert "not in growth mode" in error
