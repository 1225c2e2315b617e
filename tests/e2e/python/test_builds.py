# SPDX-License-Identifier: Apache-2.0
"""All available CPythons, including those of the root file systems: nearly every new block is seen,
whatever its type, and none is charged to another line."""
import os
import shutil

import pytest

import harness
import interpreters
import pythons

MODES = ("census", "exact")


@pytest.fixture
def cpython(request, tmp_path):
    if request.param == "distribution":
        path, root = pythons.distribution(), None
        if not path:
            pytest.skip("%s is no stripped distribution CPython" % pythons.DISTRIBUTION)
    elif request.param in pythons.in_roots():
        root, path = pythons.in_roots()[request.param]
    else:
        path, root = pythons.unstripped()[request.param], None
    python = interpreters.Python(path, str(tmp_path), root)
    yield python
    python.remove()


@pytest.fixture
def run(cpython, start, trace):
    """run(mode, program, arguments …): runs the target to its answer. Returns the answer and the
    report."""

    def run(mode, name, *args):
        shutil.copy(harness.program(name), cpython.host_folder)
        target = start(
            cpython.path, os.path.join(cpython.folder, name), *args, prefix=cpython.prefix
        )
        traced = trace("-p", target.pid, "-m", mode, "-n", 1)
        target.step()
        said = target.read_line()
        while said and not said.startswith(("{", "done")):  # a workload prints its duration first
            said = target.read_line()
        return said, traced.finish()

    return run


@pytest.mark.parametrize("mode", MODES)
def test_every_type(cpython, run, mode):
    _, report = run(mode, "hold.py", *cpython.workload("every_type", 300)[1:])
    coverage = report.data["coverage"]
    assert report.lost_events == 0
    assert coverage["new_blocks"] > 50000
    assert coverage["seen_blocks"] >= 0.999 * coverage["new_blocks"]
    assert coverage["seen_bytes"] >= 0.999 * coverage["new_bytes"]
    unknown = [s for s in report.statistics if s["traceback"][0]["filename"] == "<unknown>"]
    assert sum(s["count"] for s in unknown) <= 0.001 * coverage["new_blocks"]


@pytest.mark.parametrize("mode", MODES)
def test_known(cpython, run, mode):
    """Rounded sizes are marked, and rounded up to a size class."""
    said, report = run(mode, "known.py")
    lines = {
        line: pair for (name, line), pair in report.lines().items() if name.endswith("/known.py")
    }
    rounded = report.data["not_seen"]["rounded_blocks"]
    for kind, (size, count) in harness.json.loads(said).items():
        ours = lines.get(harness.marked_line("known.py", kind), (0, 0))
        assert ours[1] == count, "%s: %s instead of %s" % (kind, ours, (size, count))
        assert (
            ours[0] == size or rounded >= count and size < ours[0] <= size + 15 * count
        ), "%s: %s instead of %s" % (kind, ours, (size, count))


@pytest.mark.parametrize("mode", MODES)
def test_reuse(cpython, run, mode):
    """An object that CPython reuses from a free list is charged to the line that took it last."""
    said, report = run(mode, "reuse.py")
    lines = {
        line: pair[1] for (name, line), pair in report.lines().items() if name.endswith("/reuse.py")
    }
    for kind, (_, count) in harness.json.loads(said).items():
        ours = lines.get(harness.marked_line("reuse.py", kind), 0)
        assert ours == count, "%s: %s blocks instead of %s; all: %s" % (kind, ours, count, lines)
