# SPDX-License-Identifier: Apache-2.0
"""--by task: the asyncio task that has allocated what is alive, against a program that counts."""
import csv
import io
import re

import pytest

import parity
from harness import error_line, marked_line, pprof, read_report

LINE = "*/task_owners.py:%d" % marked_line("task_owners.py", "K")
CHOSEN = "--by", "task", "--include", LINE, "--top", 0
SHOWN = 64  # characters of a name of more than 128 bytes that CPython stores two bytes each


def shown(name):
    return name if len(name) <= SHOWN else name[:SHOWN] + "…"


def tells(python):
    return tuple(map(int, python.version.split("."))) >= (3, 14)


def within(python):
    return ("chroot", python.root)


def finished(target, run):
    """The rows of the line, once they are those that the program has printed."""
    target.step()
    live = {shown(name): pair for name, pair in target.expect().items()}
    whole = run.finish()
    assert whole.lost_events == 0 and whole.data["not_seen"]["records_malformed"] == 0
    rows = read_report(run.tracer, run.snapshot, *CHOSEN).statistics
    assert {row["task"]: (row["size"], row["count"]) for row in rows} == live
    assert len(rows) == len(live) and {row["pid"] for row in rows} == {target.pid}
    return rows, whole


@pytest.mark.parametrize("mode", ("exact", "census"))
@pytest.mark.parametrize("when", ("early", "late"))
def test_tasks(start, trace, tracer, run_tracer, root_python, mode, when):
    if not tells(root_python):
        pytest.skip("CPython %s does not tell" % root_python.version)
    arguments = ["late"] if when == "late" else []
    target = start(root_python.path, "task_owners.py", *arguments, prefix=within(root_python))
    run = trace("-p", target.pid, "-m", mode, "--by", "task")
    rows, whole = finished(target, run)
    by_task = read_report(tracer, run.snapshot, "--by", "task")
    assert by_task.total == {key: whole.total[key] for key in ("size", "count")}
    # Threads are told as without it.
    threads = read_report(tracer, run.snapshot, "--by", "thread", "--include", LINE)
    assert threads.total["count"] == sum(row["count"] for row in rows)
    assert sum(row["count"] for row in threads.statistics) == threads.total["count"]
    text = run_tracer("report", run.snapshot, *CHOSEN).stdout
    assert "\x1b" not in text and "\u202e" not in text
    alpha = next(row for row in rows if row["task"] == "alpha")
    assert "\n  alpha: size=%.1f KiB, count=%d\n" % (alpha["size"] / 1024, alpha["count"]) in text
    assert "\n  (no task): size=" in text
    table = run_tracer("report", run.snapshot, *CHOSEN, "--format", "csv").stdout
    read = csv.DictReader(io.StringIO(table, newline=""))
    assert {row["task"]: int(row["count"]) for row in read} == {
        row["task"]: row["count"] for row in rows
    }
    tagged = "-top", "-nodefraction=0", "-sample_index=thread_objects", "-tagfocus=task=^alpha$"
    focused = re.search(r"accounting for (\d+),", pprof(*tagged, run.snapshot))[1]
    report = read_report(tracer, run.snapshot, "--by", "task", "--top", 0)
    assert int(focused) == next(
        row["count"] for row in report.statistics if row["task"] == "alpha"
    )


def test_free_threaded(packed, run_tracer):
    with parity.target_of(packed("nogil314:python3.14t"), "task_owners.py", "late") as target:
        error = error_line(run_tracer("-p", target.pid, "-m", "exact", "--by", "task"), 1)
    assert "builds with the GIL only" in error


def test_refused(start, run_tracer, root_python):
    if tells(root_python):
        pytest.skip("CPython %s tells" % root_python.version)
    target = start(root_python.path, "task_owners.py", prefix=within(root_python))
    run = run_tracer("-p", target.pid, "--by", "task", "-d", 1)
    assert "CPython %s does not tell which asyncio task runs" % root_python.version in error_line(
        run, 1
    )
    target.step()
    target.expect()
    assert target.finish() == 0


def test_refused_here(start, run_tracer, any_python):
    target = start(any_python, "task_owners.py")
    error = error_line(run_tracer("-p", target.pid, "--by", "task"), 1)
    assert "does not tell which asyncio task runs, as 3.14 and later do" in error


def test_unknown(start, trace, run_tracer, any_python):
    """A trace that was begun without it."""
    target = start(any_python, "golden.py", 10)
    run = trace("-p", target.pid)
    target.step()
    target.expect()
    run.finish()
    error = error_line(run_tracer("report", run.snapshot, "--by", "task"), 2)
    assert "only a trace that was begun with --by task does" in error
