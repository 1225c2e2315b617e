# SPDX-License-Identifier: Apache-2.0
"""CPythons of other distributions, run in their own root file systems: the checks of the other
tests, on each available build."""
import json
import subprocess

import pytest

from harness import environment, program


def within(python):
    return ("chroot", python.root)


def check(report, name, live):
    assert report.lost_events == 0
    assert report.marked(name, live) == live
    assert report.data["not_seen"]["records_malformed"] == 0


@pytest.mark.parametrize("name", ("golden.py", "threads.py", "realloc.py"))
def test_attach(start, trace, root_python, name):
    target = start(root_python.path, name, prefix=within(root_python))
    run = trace("-p", target.pid)
    target.step()
    live = target.expect()
    check(run.finish(), name, live)
    assert target.finish() == 0, "the target was harmed"


def test_launch(trace, root_python):
    run = trace(
        "-n",
        25,
        "--",
        *within(root_python),
        root_python.path,
        program("golden.py"),
        stdin=subprocess.PIPE
    )
    run.step()
    live = run.expect()
    run.step()
    assert run.wait() == 0
    check(run.report(), "golden.py", live)
    assert run.report().data["python"].startswith(root_python.version + ".")


def test_coverage(start, trace, root_python):
    target = start(root_python.path, "mixed.py", prefix=within(root_python))
    run = trace("-p", target.pid)
    target.step()
    target.expect()
    report = run.finish()
    coverage = report.data["coverage"]
    assert report.contradictions() == []
    assert coverage["new_blocks"] > 2000
    assert 0.999 <= coverage["seen_blocks"] / coverage["new_blocks"] <= 1
    assert 0.999 <= coverage["seen_bytes"] / coverage["new_bytes"] <= 1
    assert coverage["large_seen"] >= coverage["large_new"] > 0


def test_heap(start, run_tracer, root_python):
    target = start(root_python.path, "objects.py", 20000, prefix=within(root_python), ready=False)
    blocks = int(target.read_line())
    target.wait_reading()
    done = run_tracer("heap", "--format", "json", "--top", 0, "-p", target.pid)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    heap = json.loads(done.stdout)
    assert heap["total"]["count"] + heap["raw_blocks"] == blocks
    assert heap["pools_unreadable"] == 0
    assert [s["count"] for s in heap["statistics"] if s["type"] == "Node"] == [20000]


def test_interpreters(start, trace, root_python):
    target = start(root_python.path, "interpreters.py", prefix=within(root_python))
    run = trace("-p", target.pid)
    target.step()
    live = target.expect()
    report = run.finish()
    assert report.marked("interpreters_work.py", live) == live
    assert report.data["coverage"]["seen_blocks"] >= 0.999 * report.data["coverage"]["new_blocks"]


# test_exact.py has every combination of program and allocator.
@pytest.mark.parametrize(
    "name, allocator",
    (("golden.py", "debug"), ("threads.py", "malloc_debug"), ("realloc.py", "debug")),
)
def test_debug_hooks(start, trace, root_python, name, allocator):
    target = start(
        root_python.path, name, prefix=within(root_python), env=environment(PYTHONMALLOC=allocator)
    )
    run = trace("-p", target.pid)
    target.step()
    live = target.expect()
    check(run.finish(), name, live)
    assert target.finish() == 0


LOAD = """
import pickle, sys
snapshot = pickle.load(sys.stdin.buffer)  # as tracemalloc.Snapshot.load() does
total = sum(s.size for s in snapshot.statistics("lineno")), sum(s.count for s in snapshot.statistics("lineno"))
print(snapshot.traceback_limit, *total)
"""


def test_tracemalloc_file(start, trace, run_tracer, root_python, tmp_path):
    """The newest of these CPythons can also load the files that the tracer writes for
    tracemalloc."""
    target = start(root_python.path, "golden.py", prefix=within(root_python))
    run = trace("-p", target.pid, "-n", 7)
    target.step()
    target.expect()
    total = run.finish().data["total"]
    path = tmp_path / "snapshot.pickle"
    done = run_tracer("export", run.snapshot, "--format", "tracemalloc", "-o", path)
    assert done.returncode == 0, done.stderr
    loaded = subprocess.run(
        [*within(root_python), root_python.path, "-c", LOAD],
        stdin=open(str(path), "rb"),
        stdout=subprocess.PIPE,
        env=environment(),
        check=True,
        timeout=60,
    )
    assert loaded.stdout.split() == [b"7", b"%d" % total["size"], b"%d" % total["count"]]
