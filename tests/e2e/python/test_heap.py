# SPDX-License-Identifier: Apache-2.0
"""tracer heap: the contents of a running Python's heap, without a probe."""
import json
import re

import pytest

from harness import environment, error_line

COUNT = 20000


@pytest.fixture
def objects(start):
    """objects(python): a Target with its Nodes, and the number of blocks that it reports."""

    def make(python):
        target = start(python, "objects.py", COUNT, ready=False)
        blocks = int(target.read_line())
        target.wait_reading()
        target.read_until("ready")
        return target, blocks

    return make


def read(run_tracer, *arguments):
    done = run_tracer("heap", "--format", "json", *arguments)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout.count("\n") == 1
    return json.loads(done.stdout)


def check(run_tracer, target, blocks):
    heap = read(run_tracer, "-p", target.pid, "--top", 0)
    assert (heap["pid"], heap["by"], heap["pools_unreadable"]) == (target.pid, "type", 0)
    assert heap["total"]["count"] + heap["raw_blocks"] == blocks
    assert heap["raw_blocks"] >= COUNT
    for key in ("size", "count"):
        assert heap["total"][key] == sum(
            heap[part][key] for part in ("objects", "dead", "no_object")
        )
        assert heap["objects"][key] == sum(s[key] for s in heap["statistics"])
    (node,) = [s for s in heap["statistics"] if s["type"] == "Node"]
    assert node["count"] == COUNT and node["size"] == 48 * COUNT
    (tuples,) = [s for s in heap["statistics"] if s["type"] == "tuple"]
    assert tuples["count"] >= COUNT
    sizes = [s["size"] for s in heap["statistics"]]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.versions()
def test_types(objects, run_tracer, python):
    check(run_tracer, *objects(python))


def test_types_stripped(objects, run_tracer, debian_python):
    check(run_tracer, *objects(debian_python))


def test_classes(objects, run_tracer, any_python):
    target, blocks = objects(any_python)
    heap = read(run_tracer, "-p", target.pid, "--by", "class", "--top", 0)
    assert heap["by"] == "class"
    assert (
        heap["total"]["count"]
        == sum(s["count"] for s in heap["statistics"])
        == blocks - heap["raw_blocks"]
    )
    assert all(
        s["class"] % 16 == 0 and s["size"] == s["class"] * s["count"] for s in heap["statistics"]
    )
    assert sum(s["count"] for s in heap["statistics"] if s["class"] == 48) >= COUNT
    # The totals include entries that the list omits.
    top = read(run_tracer, "-p", target.pid, "--by", "class", "--top", 1)
    assert top["statistics"] == heap["statistics"][:1] and top["total"] == heap["total"]


def test_text(objects, run_tracer, any_python):
    target, blocks = objects(any_python)
    done = run_tracer("heap", "-p", target.pid, "--top", 5)
    assert done.returncode == 0 and done.stderr == ""
    head, title, *lines = done.stdout.splitlines()
    assert re.match(
        r"tracer: python\S* \(PID %d\), CPython %s" % (target.pid, re.escape(any_python.version)),
        head,
    )
    assert re.match(r"Top 5 types of \d+ by own size, in bytes of pymalloc's size classes; ", title)
    assert "  __main__.Node: own size=938 KiB, count=%d, average=48 B" % COUNT in lines[:5]
    assert re.match(r"  \d+ other: own size=", lines[5])
    assert lines[6].startswith("  no object ") and lines[7].startswith("  dead objects")
    total = int(re.match(r"Total: size=.*, count=(\d+)", lines[8]).group(1))
    assert lines[9] == "Not seen:"
    assert total + int(re.search(r"more than 512 bytes: (\d+)$", lines[10]).group(1)) == blocks
    assert re.match(r"  pools that could not be read: 0 of \d+$", lines[11]) and len(lines) == 12


def test_several(objects, run_tracer, start, any_python, debian_python):
    """One answer for each process, in the order of their PIDs. A process that cannot be read does
    not keep the others from being read."""
    targets = sorted(
        (objects(python)[0] for python in (any_python, debian_python)), key=lambda t: t.pid
    )
    pids = [target.pid for target in targets]
    done = run_tracer("heap", "--format", "json", "-p", "%d,%d" % tuple(pids))
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert [json.loads(line)["pid"] for line in done.stdout.splitlines()] == pids
    done = run_tracer("heap", "--top", 1, "-p", "%d,%d" % tuple(pids))
    assert [int(pid) for pid in re.findall(r"^tracer: .*\(PID (\d+)\)", done.stdout, re.M)] == pids
    other = start("/bin/cat", None, ready=False)
    done = run_tracer("heap", "--format", "json", "-p", "%d,%d" % (pids[0], other.pid))
    assert done.returncode == 1 and "PID %d" % other.pid in done.stderr
    assert json.loads(done.stdout)["pid"] == pids[0]
    line = error_line(run_tracer("heap"), 2)
    assert "no target is named" in line


def test_target_goes_on(objects, run_tracer, any_python):
    target, _ = objects(any_python)
    read(run_tracer, "-p", target.pid)
    assert target.finish() == 0


def test_other_allocator(start, run_tracer, any_python):
    target = start(any_python, "golden.py", env=environment(PYTHONMALLOC="malloc"))
    line = error_line(run_tracer("heap", "-p", target.pid), 1)
    assert "PYTHONMALLOC" in line and str(target.pid) in line
