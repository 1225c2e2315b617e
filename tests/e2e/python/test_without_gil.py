# SPDX-License-Identifier: Apache-2.0
"""The heap of builds without the GIL, which is mimalloc's, held against what the interpreter says of
it."""
import json
import os

import pytest

import parity

THREADS, COUNT = 12, 2000
OBJECTS = THREADS * COUNT
# Blocks that came after the number was made: itself, its text, buffers to read the input.
LATER = 8


@pytest.fixture
def waiting(packed):
    """The program, once its threads wait, and the number of blocks that it had just before."""
    started = []

    def make(*arguments):
        python = packed("nogil314:python3.14t")
        target = parity.target_of(python, "graph_threads.py", COUNT, *arguments, ready=False)
        started.append(target)
        blocks = int(target.read_line())
        target.read_until("ready")
        target.wait_reading()
        return target, blocks

    yield make
    for target in started:
        target.kill()


def ask(run_tracer, command, *arguments):
    done = run_tracer(command, "--format", "json", *arguments)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return json.loads(done.stdout)


def test_references(waiting, run_tracer):
    """Counts of owners, of other threads, deferred ones and those that threads keep for themselves
    add up to the references that are found."""
    target, _ = waiting()
    answer = ask(run_tracer, "heap", "--retained", "--top", 0, "-p", target.pid)
    proof = answer["references"]
    assert proof["objects"] > 5 * OBJECTS
    assert proof["exact"] >= 0.999 * proof["objects"], proof
    assert proof["all_found"] >= 0.999 * proof["objects"], proof
    assert answer["pools_unreadable"] == 0 and answer["cut"] is False
    counts = {entry["type"]: entry["count"] for entry in answer["statistics"]}
    assert counts["A"] == OBJECTS + 100 and counts["S"] == OBJECTS
    for kind in ("A", "S", "collections.deque", "bytearray", "cell"):
        paths = ask(run_tracer, "heap", "why", kind, "--top", 5, "-p", target.pid)["paths"]
        told = [path for path in paths if "expression" in path]
        assert told, kind
        for path in told:
            os.write(target.process.stdin.fileno(), (path["expression"] + "\n").encode())
            assert int(target.read_line()) == path["steps"][-1]["address"], path


def test_blocks(waiting, run_tracer):
    """As many blocks as sys.getallocatedblocks() says."""
    target, blocks = waiting()
    heap = ask(run_tracer, "heap", "--by", "class", "--top", 0, "-p", target.pid)
    assert abs(heap["total"]["count"] - blocks) <= LATER
    assert heap["raw_blocks"] is None and heap["pools_unreadable"] == 0
    assert heap["total"]["size"] == sum(s["size"] for s in heap["statistics"])
    assert max(s["class"] for s in heap["statistics"]) > 2048


def test_memory(waiting, run_tracer):
    """Its memory adds up, and the heap's blocks in it are those that the heap has."""
    target, blocks = waiting()
    memory = ask(run_tracer, "memory", "-p", target.pid)
    assert "python_refused" not in memory
    parts = {part["name"]: part for part in memory["children"]}
    assert memory["size"] == sum(part["size"] for part in memory["children"])
    python = {part["name"]: part for part in parts["python"]["children"]}
    waits = python.get("to be freed once no thread reads them", {"count": 0})
    assert abs(python["live blocks"]["count"] + waits["count"] - blocks) <= LATER
    assert "could not be read" not in python
    assert parts.get("other anonymous memory", {"size": 0})["size"] < 0.02 * memory["size"]


def test_busy(waiting, run_tracer):
    """Eight threads that allocate and free meanwhile: what does not change is still found."""
    target, _ = waiting("spin")
    heap = ask(run_tracer, "heap", "--top", 0, "-p", target.pid)
    counts = {entry["type"]: entry["count"] for entry in heap["statistics"]}
    assert counts["S"] >= 0.9 * OBJECTS
    assert heap["pools_unreadable"] < 0.2 * heap["pools"]
