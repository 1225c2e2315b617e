# SPDX-License-Identifier: Apache-2.0
"""What the state of an interpreter says of its objects: whose modules hold them, and what becomes
of those that nothing holds."""
import json

import pytest

from harness import environment
from test_heap_graph import ask, check_proof

COUNT, BYTES = 200, 50000  # of programs/heap/garbage.py


def garbage(start, run_tracer, python, how):
    """The answers of cycles and of why bytearray, and what a collection of its own found."""
    target = start(python, "garbage.py", how, ready=False)
    freed = int(target.read_line())
    target.read_until("ready")
    target.wait_reading()
    cycles = ask(run_tracer, "cycles", "--top", 1, "-p", target.pid)
    (path,) = [
        each
        for each in ask(run_tracer, "why", "bytearray", "-p", target.pid)["paths"]
        if each["count"] >= COUNT
    ]
    text = run_tracer("heap", "cycles", "--top", 1, "-p", target.pid).stdout
    assert target.finish() == 0
    return cycles, path, text, freed


def check_cycles(cycles, key):
    """The cycles with the buffers come first, and retain them."""
    (entry,) = cycles["statistics"]
    assert set(entry["types"]) - {"dict"} == {"Node"} and entry["cycles"] == COUNT
    counts = {each: entry[each] for each in ("garbage", "frozen", "in_gc_garbage")}
    assert counts == {**dict.fromkeys(counts, 0), key: COUNT}
    assert COUNT * BYTES < entry["retained_size"] < COUNT * (BYTES + 1000)
    held_by_nothing = 0 if key == "in_gc_garbage" else entry["retained_size"]
    assert entry["garbage_retained_size"] == held_by_nothing
    for each in counts:
        assert cycles[each + "_size"] >= (entry["retained_size"] if each == key else 0)


@pytest.mark.versions()
def test_garbage(start, run_tracer, python):
    cycles, path, text, _ = garbage(start, run_tracer, python, "on")
    check_cycles(cycles, "garbage")
    assert (cycles["collectors"], cycles["collectors_off"]) == (1, 0)
    assert path["steps"][0]["kind"] == "garbage" and path["steps"][0]["name"] == ""
    assert [step["kind"] for step in path["steps"]][1:] == ["attribute"]
    assert "\nGarbage: 200 cycles; a collection frees 9" in text and "collector is" not in text
    for how in ("off", "threshold"):
        cycles, path, text, _ = garbage(start, run_tracer, python, how)
        check_cycles(cycles, "garbage")
        assert (cycles["collectors"], cycles["collectors_off"]) == (1, 1)
        assert path["steps"][0]["name"] == "(the collector is off)"
        assert "; the collector is off\n" in text


@pytest.mark.versions()
def test_not_collected(start, run_tracer, python):
    cycles, path, text, freed = garbage(start, run_tracer, python, "frozen")
    assert freed == 0 and cycles["frozen_count"] > COUNT
    check_cycles(cycles, "frozen")
    assert path["steps"][0]["kind"] == "frozen garbage"
    assert "\nFrozen garbage: 200 cycles with 9" in text and "no collection frees them" in text
    cycles, path, text, kept = garbage(start, run_tracer, python, "listed")
    assert kept == COUNT
    check_cycles(cycles, "in_gc_garbage")
    assert path["expression"].startswith("sys.modules['gc'].garbage[")
    assert "\nIn gc.garbage: 200 cycles with 9" in text


@pytest.mark.versions()
def test_subinterpreters(start, run_tracer, python):
    target = start(python, "subinterpreters.py", ready=False)
    ids = json.loads(target.read_line())
    target.read_until("ready")
    target.wait_reading()
    paths = ask(run_tracer, "why", "bytes", "--top", 8, "-p", target.pid)["paths"]
    names = {path["expression"].rsplit("[", 1)[0]: path["count"] for path in paths[:4]}
    main = "sys.modules['__main__']."
    wanted = {main + "MAIN": 500}
    for number, each in enumerate(ids):
        wanted["interpreter %d: %sSUB%d" % (each, main, number)] = 300
    assert names.keys() == wanted.keys(), names
    assert all(0.99 * wanted[name] <= names[name] <= wanted[name] for name in wanted), names
    rows = ask(run_tracer, "--by", "module", "--top", 0, "-p", target.pid)["statistics"]
    sizes = {row["module"]: row["size"] for row in rows}
    assert sizes["sys.modules['__main__']"] > 500 * 2000
    for each in ids:
        assert sizes["interpreter %d: sys.modules['__main__']" % each] > 0.99 * 300 * 2000
    roots = {row["root"] for row in ask(run_tracer, "--by", "root", "-p", target.pid)["statistics"]}
    assert {"modules", "subinterpreter"} <= roots
    assert target.finish() == 0


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_without_pymalloc(start, run_tracer, python):
    """Objects of malloc are found by references and by the collector's lists."""
    target = start(python, "graph_builtins.py", 2000, env=environment(PYTHONMALLOC="malloc"))
    target.wait_reading()
    answer = ask(run_tracer, "--retained", "--top", 0, "-p", target.pid)
    check_proof(answer)
    assert answer["no_pymalloc"] is True
    types = {entry["type"]: entry for entry in answer["statistics"]}
    assert types["S"]["count"] > 0 and types["dict"]["retained_size"] > 1 << 20
    assert ask(run_tracer, "why", "S", "-p", target.pid)["paths"]
    text = run_tracer("heap", "--retained", "-p", target.pid).stdout
    assert "\nNot seen: objects that no reference and no list of the collector leads to" in text
    assert target.finish() == 0
