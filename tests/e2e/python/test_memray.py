# SPDX-License-Identifier: Apache-2.0
"""Peak, temporary blocks, totals and threads against memray's figures of the same program, in
Debian 13's Python. memray records in the process, with Python's allocators; the tracer traces
another run of the program from outside."""
import json
import os
import shutil
import subprocess
import tempfile

import pytest

from harness import (
    TIMEOUT,
    agreement,
    environment,
    marked_line,
    program,
    pythons,
    read_report,
)

PRIVATE = ("unshare", "--mount", "--propagation", "private")
PROGRAM, READER = "as_memray.py", "memray_figures.py"
# Within a root, with /proc in it: memray reads its own memory there.
WITH_PROC = 'mount --bind /proc "$0/proc" && exec chroot "$0" "$@"'
MEMRAY = "usr/lib/python3/dist-packages/memray"


class Root:
    """A Python with memray in a root file system, and copies of the programs in it."""

    def __init__(self, root, path):
        self.root, self.path = root, path
        self.prefix = ("chroot", root)
        self.host_folder = tempfile.mkdtemp(prefix="tracer-memray-", dir=os.path.join(root, "tmp"))
        self.folder = self.host_folder[len(root) :]
        for name in (PROGRAM, READER):
            shutil.copy(program(name), self.host_folder)

    def inside(self, name):
        return os.path.join(self.folder, name)

    def run(self, name, *args, said=None):
        done = subprocess.run(
            [*PRIVATE, "sh", "-c", WITH_PROC, self.root, self.path, self.inside(name), *args],
            input=said,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=TIMEOUT,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().splitlines()

    def start(self, start):
        return start(self.path, self.inside(PROGRAM), prefix=self.prefix)


@pytest.fixture(scope="module")
def root():
    found = [
        (root.rstrip("/"), path)
        for root, path in pythons.in_roots().values()
        if os.path.exists(os.path.join(root, MEMRAY)) and not path.endswith("d")
    ]
    if not found:
        pytest.skip("no root file system with python3-memray: run make roots (HACKING.md)")
    made = Root(*found[0])
    yield made
    shutil.rmtree(made.host_folder)


@pytest.fixture(scope="module")
def memray(root):
    """(what the program says, what memray has recorded of it)"""
    ready, said = root.run(PROGRAM, root.inside("memray.bin"), said=b"go\ngo\n")
    assert ready == "ready"
    (figures,) = root.run(READER, root.inside("memray.bin"))
    return json.loads(said), json.loads(figures)


@pytest.fixture
def traced(start, trace, root):
    """(what the program says, the snapshot)"""
    target = root.start(start)
    run = trace("-p", target.pid, "-m", "exact")
    target.step()
    said = json.loads(target.read_line())
    target.wait_reading()
    assert run.finish().lost_events == 0
    return said, run.snapshot


def lines(entries):
    """memray's by line; blocks without a Python frame as the tracer names them."""
    return {(file or "<unknown>", line): (size, count) for file, line, size, count in entries}


def marked(by_line, root, marks):
    return {
        mark: list(by_line[root.inside(PROGRAM), marked_line(PROGRAM, mark)]) for mark in marks
    }


def total(by_line):
    return [sum(column) for column in zip(*by_line.values())]


def alike(ours, theirs):
    """Within 1 %, in total and by line, of bytes and of blocks."""
    differ = {
        key: (ours.get(key), theirs.get(key))
        for key in {*ours, *theirs}
        if ours.get(key) != theirs.get(key)
    }
    print("ours %s, memray's %s" % (total(ours), total(theirs)))
    for one, other in zip(total(ours), total(theirs)):
        assert abs(one - other) <= 0.01 * other, differ
    assert min(agreement(ours, theirs)) >= 0.99, differ


def allocated(report, what):
    return {
        key: pair
        for key, pair in (
            (
                (entry["traceback"][0]["filename"], entry["traceback"][0]["lineno"]),
                (entry[what + "_size"], entry[what + "_count"]),
            )
            for entry in report.statistics
        )
        if pair[1]
    }


def test_peak(tracer, root, memray, traced):
    """At the end most of it is gone. The high-water mark is the highest total."""
    said, snapshot = traced
    peak = read_report(tracer, snapshot, "--at-peak")
    theirs = lines(memray[1]["peak"])
    for figures in (peak.lines(), theirs):
        found = marked(figures, root, "HP")
        assert found["H"] == said["peak"]["H"]
        assert 0 <= found["P"][0] - said["peak"]["P"][0] < 1000
    alike(peak.lines(), theirs)
    assert abs(peak.total["size"] - memray[1]["peak_size"]) <= 0.01 * memray[1]["peak_size"]
    end = read_report(tracer, snapshot)
    assert end.total["size"] < peak.total["size"] / 5
    assert end.data["peak_size"] == peak.total["size"]


def test_temporary(tracer, root, memray, traced):
    """memray's rule lets one other allocation come before the free (--temporary 1)."""
    said, snapshot = traced
    report = read_report(tracer, snapshot, "--sort", "temporary", "--temporary", 1)
    ours, theirs = allocated(report, "temporary"), lines(memray[1]["temporary"])
    assert marked(ours, root, "T")["T"] == said["allocated"]["T"]
    alike(ours, theirs)
    # By the other rule, fewer: numbers that are passed to a call live for one more allocation.
    strict = read_report(tracer, snapshot).total["temporary_count"]
    assert said["allocated"]["T"][1] <= strict < total(ours)[1]


def test_allocated(tracer, root, memray, traced):
    said, snapshot = traced
    ours = allocated(read_report(tracer, snapshot, "--sort", "allocated"), "allocated")
    theirs = lines(memray[1]["allocated"])
    for figures in (ours, theirs):
        found = marked(figures, root, said["allocated"])
        for mark, (size, count) in said["allocated"].items():
            # Line H also allocates a number of 32 bytes for each block.
            assert size <= found[mark][0] <= size + 33 * count
            assert count <= found[mark][1] <= 2 * count + 2
    alike(ours, theirs)


def test_threads(tracer, memray, traced):
    """What is alive at the end, by the thread that has allocated it."""
    said, snapshot = traced
    report = read_report(tracer, snapshot, "--by", "thread")
    names = {tid: name for name, tid in said["threads"].items()}
    ours = {
        names[entry["tid"]]: (entry["size"], entry["count"])
        for entry in report.statistics
        if entry["tid"] in names
    }
    theirs = {
        name: (size, count)
        for name, size, count in memray[1]["threads"]
        if name in said["threads"]
    }
    assert set(ours) == set(theirs) == set(said["threads"])
    alike(ours, theirs)
