# SPDX-License-Identifier: Apache-2.0
"""Counts of blocks in targets whose allocators do more, or less, than pymalloc alone."""
import subprocess

import pytest

from harness import environment, marked_line, program, read_report

WITHOUT_POOLS = ("malloc", "malloc_debug")


def check_exact(report, live):
    assert report.data["mode"] == "exact"
    assert report.marked("golden.py", live) == live
    assert report.data.get("warnings", []) == []
    assert report.total["size"] <= report.data["peak_size"]
    assert "temporary_count" in report.total


@pytest.mark.versions()
@pytest.mark.parametrize("allocator", WITHOUT_POOLS)
def test_without_pools(start, trace, python, allocator):
    """Without pymalloc each free is seen: census mode is exact, and no heap has to be read."""
    target = start(python, "golden.py", env=environment(PYTHONMALLOC=allocator))
    run = trace("-p", target.pid, "-m", "census")
    target.step()
    live = target.expect()
    check_exact(run.finish(), live)


@pytest.mark.parametrize("allocator", WITHOUT_POOLS)
def test_without_pools_from_start(trace, debian_python, allocator):
    env = environment(PYTHONMALLOC=allocator)
    run = trace(
        "-m", "census", "--", debian_python.path, program("golden.py"), stdin=subprocess.PIPE, env=env
    )
    run.step()
    live = run.expect()
    run.step()
    assert run.wait() == 0, run.stderr
    check_exact(run.report(), live)


@pytest.mark.versions()
@pytest.mark.parametrize("mode", ("census", "exact"))
def test_free_lists(start, trace, tracer, python, mode):
    """An object that is taken from a free list counts as allocated, and the one before it as freed:
    no line has more blocks alive and gone than it was given."""
    target = start(python, "reuse.py")
    run = trace("-p", target.pid, "-m", mode)
    target.step()
    live = target.expect()
    run.finish()
    everything = read_report(tracer, run.snapshot, "--sort", "allocated").statistics
    lines = {entry["traceback"][0]["lineno"]: entry for entry in everything}
    for kind, (_, count) in live.items():
        line = lines[marked_line("reuse.py", kind)]
        assert line["count"] == count, kind
        assert line["allocated_count"] == count, kind
    gone = "short_lived_count" if mode == "census" else "temporary_count"
    for entry in everything:
        assert entry["count"] + entry[gone] <= entry["allocated_count"], entry


def check_tracemalloc(start, trace, python, when, mode, **more):
    target = start(python, "traced_twice.py", when, **more)
    run = trace("-p", target.pid, "-m", mode)
    target.step()
    live = target.expect()
    report = run.finish()
    assert report.marked("traced_twice.py", live) == live
    assert report.contradictions() == []
    assert target.finish() == 0, "the target was harmed"


# A run has each of these: from 3.12 on, tracemalloc's code reads its allocators through _PyRuntime.
@pytest.mark.versions("3.8", "3.11", "3.12", "3.13")
@pytest.mark.parametrize("mode", ("census", "exact"))
@pytest.mark.parametrize("when", ("on", "later"))
def test_tracemalloc(start, trace, python, when, mode):
    """What tracemalloc allocates for its own records is at no line of the program."""
    check_tracemalloc(start, trace, python, when, mode)


@pytest.mark.parametrize("when", ("on", "later"))
def test_tracemalloc_stripped(start, trace, debian_python, when):
    check_tracemalloc(start, trace, debian_python, when, "census")


@pytest.mark.parametrize("allocator", ("debug", "malloc"))
def test_tracemalloc_and_hooks(start, trace, debian_python, allocator):
    env = environment(PYTHONMALLOC=allocator)
    check_tracemalloc(start, trace, debian_python, "on", "census", env=env)
