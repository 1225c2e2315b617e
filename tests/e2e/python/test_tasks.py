# SPDX-License-Identifier: Apache-2.0
"""--by task: the asyncio task that has allocated what is alive, against a program that counts."""
import csv
import io
import re
import subprocess

import pytest

import parity
from harness import error_line, marked_line, pprof, read_report, wait_until

LINE = "*/task_owners.py:%d" % marked_line("task_owners.py", "K")
CHOSEN = "--by", "task", "--include", LINE, "--top", 0
SHOWN = 64  # characters of a name of more than 128 bytes that CPython stores two bytes each


def shown(name):
    return name if len(name) <= SHOWN else name[:SHOWN] + "…"


FIRST = "3.14"  # of the versions whose thread states have the running task


def within(python):
    return ("chroot", python.root)


def is_older(python):
    return tuple(map(int, python.version.split("."))) < (3, 14)


def finished(target, run, late=False, found=False):
    """The rows of the line, once they are those that the program has printed. late: asyncio is
    loaded only now; found: before 3.14 the tracer then finds its tasks."""
    target.step()
    if late:
        target.read_until("looped")
        if found:
            wait_until(lambda: "found what --by asks for" in run.stderr, "the tasks are found")
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
    target = start(root_python.path, "task_owners.py", when, prefix=within(root_python))
    run = trace("-v", "-p", target.pid, "-m", mode, "--by", "task")
    rows, whole = finished(target, run, when == "late", is_older(root_python))
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
    assert int(focused) == next(row["count"] for row in report.statistics if row["task"] == "alpha")


@pytest.mark.parametrize("mode", ("exact", "census"))
@pytest.mark.parametrize("when", ("early", "late"))
def test_outside(start, trace, python, mode, when):
    target = start(python, "task_owners.py", when)
    run = trace("-v", "-p", target.pid, "-m", mode, "--by", "task")
    finished(target, run, when == "late", is_older(python))
    is_late = when == "late" and is_older(python)
    assert ("it has not imported asyncio yet" in run.stderr) == is_late


@pytest.mark.whole
@pytest.mark.parametrize("when", ("early", "late"))
def test_stripped(start, trace, debian_python, when):
    target = start(debian_python, "task_owners.py", when)
    run = trace("-v", "-p", target.pid, "--by", "task")
    finished(target, run, when == "late", is_older(debian_python))


@pytest.mark.parametrize("when", ("early", "late"))
def test_names_are_probed(start, trace, root_python, when):
    """Task.set_name() has a probe if asyncio was loaded before; else names are read."""
    code = "import sys; print('_asyncio' in sys.builtin_module_names)"
    built_in = subprocess.check_output([*within(root_python), root_python.path, "-c", code])
    target = start(root_python.path, "task_owners.py", when, prefix=within(root_python))
    run = trace("-v", "-p", target.pid, "--by", "task")
    finished(target, run, when == "late", is_older(root_python))
    is_late = when == "late" and built_in == b"False\n"
    assert ("Task.set_name() has no probe" in run.stderr) == is_late


def test_name_setter_moved(start, trace, root_python):
    """A process that says of an instruction's middle that set_name() begins there gets no probe in
    it, which others may run."""
    target = start(root_python.path, "setter_moved.py", prefix=within(root_python))
    run = trace("-v", "-p", target.pid, "--by", "task")
    run.finish()
    assert "Task.set_name() has no probe" in run.stderr
    assert target.finish() == 0


@pytest.mark.parametrize("alone", (True, False))
def test_forked(start, trace, tracer, root_python, alone):
    """If another process has the files, too, probes are in the traced one, and not in its child."""
    if not alone:
        start(root_python.path, "task_owners.py", prefix=within(root_python))
    target = start(root_python.path, "task_owners.py", "forked", prefix=within(root_python))
    run = trace("-v", "-p", target.pid, "--by", "task")
    target.step()
    target.read_until("forked")
    said = "forked by PID %d, is traced, too" % target.pid
    wait_until(lambda: said in run.stderr, "the child has its probes")
    target.step()
    live = {shown(name): pair for name, pair in target.expect().items()}
    whole = run.finish()
    assert whole.lost_events == 0
    rows = read_report(tracer, run.snapshot, *CHOSEN).statistics
    assert {row["task"]: (row["size"], row["count"]) for row in rows} == live
    assert target.pid not in {row["pid"] for row in rows}


def test_free_threaded(packed, run_tracer):
    with parity.target_of(packed("nogil314:python3.14t"), "task_owners.py", "late") as target:
        error = error_line(run_tracer("-p", target.pid, "-m", "exact", "--by", "task"), 1)
    assert "builds with the GIL only" in error


@pytest.mark.versions("3.8")
def test_other_layout(start, run_tracer, python):
    """A process whose asyncio has tasks of another size."""
    if not is_older(python):
        pytest.skip("its asyncio publishes the layout")
    target = start(python, "task_resized.py")
    error = error_line(run_tracer("-p", target.pid, "--by", "task"), 1)
    assert "its asyncio.Task has 4096 bytes, which is none that is known of its version" in error
    target.step()
    assert target.finish() == 0


@pytest.mark.versions("3.8", "3.13")
def test_forged(start, trace, tracer, python):
    """A dict that says of itself that it has billions of entries."""
    if not is_older(python):
        pytest.skip("its threads' states have the task")
    target = start(python, "task_forged.py")
    run = trace("-p", target.pid, "-m", "exact", "--by", "task")
    target.step()
    target.read_until("kept")
    run.finish()
    assert target.finish() == 0
    line = "*/task_forged.py:%d" % marked_line("task_forged.py", "F")
    rows = read_report(tracer, run.snapshot, "--by", "task", "--include", line).statistics
    assert [(row["task"], row["count"]) for row in rows] == [("<unknown>", 100)]


def test_followed(start, trace, tracer, any_python, packed):
    """A program that it starts, whose CPython does not tell, is traced, and the report says so."""
    other = packed("nogil314:python3.14t")
    if other.root:
        pytest.skip("it is in a root file system of its own")
    target = start(any_python, "runner.py", "spawn", other.path)
    run = trace("-p", target.pid, "-m", "exact", "--by", "task")
    target.step()
    pid = target.expect()["pid"][0]
    target.read_until("again")
    run.wait_attached(2)
    said = "PID %d is traced without what --by asks for: it is a free-threaded build" % pid
    assert said in run.stderr
    target.step()
    live = target.expect()["K"]
    run.finish()  # what such a build has at its end is freed before it is seen
    assert target.finish() == 0
    line = "*/runner.py:%d" % marked_line("runner.py", "K")
    rows = read_report(tracer, run.snapshot, "--by", "task", "--include", line).statistics
    assert [(row["pid"], row["task"], row["size"], row["count"]) for row in rows] == [
        (pid, "<not told>", *live)
    ]


@pytest.mark.long
def test_everything(start, trace, tracer, any_python, whole_machine):
    """Under -a a process that has one thread, and no asyncio."""
    target = start(any_python, "golden.py", 10)
    run = trace("-a", "--by", "task", "--layer", "python")
    target.step()
    target.expect()
    run.finish()
    report = read_report(tracer, run.snapshot, "--by", "task", "--top", 0)
    rows = [row for row in report.statistics if row["pid"] == target.pid]
    assert [row["task"] for row in rows] == [""] and rows[0]["count"] > 10


def test_unknown(start, trace, run_tracer, any_python):
    """A trace that was begun without it."""
    target = start(any_python, "golden.py", 10)
    run = trace("-p", target.pid)
    target.step()
    target.expect()
    run.finish()
    error = error_line(run_tracer("report", run.snapshot, "--by", "task"), 2)
    assert "only a trace that was begun with --by task does" in error
