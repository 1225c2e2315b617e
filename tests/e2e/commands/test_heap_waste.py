# SPDX-License-Identifier: Apache-2.0
"""tracer heap waste, cycles and --retained --depth, held against a program that knows."""
import json
import re

import pytest

from harness import error_line
from test_heap_graph import ask

MAIN = "sys.modules['__main__']."


@pytest.fixture
def wasteful(start):
    def make(python):
        target = start(python, "wasteful.py", ready=False)
        known = json.loads(target.read_line())
        target.read_until("ready")
        target.wait_reading()
        return target, known

    return make


def check_waste(waste, known):
    def entry(name, kind):
        (found,) = [
            one
            for one in waste["statistics"]
            if one["kind"] == kind and one["example"].startswith(MAIN + name + "[")
        ]
        return found

    for name in ("texts", "raw"):
        found = entry(name, "duplicate")
        count, size = known[name]
        assert found["count"] == count and "value" not in found
        # Blocks are multiples of 16 bytes.
        assert (count - 1) * size <= found["size"] <= (count - 1) * (size + 15)
    for name, kind in (
        ("empty_dicts", "empty"),
        ("sparse_dicts", "spare"),
        ("sparse_sets", "spare"),
        ("spare_lists", "spare"),
    ):
        found = entry(name, kind)
        assert found["count"] == 50 and abs(found["size"] / known[name] - 1) < 0.01, (name, found)
    assert waste["waste"] == sum(kind["size"] for kind in waste["kinds"])
    assert waste["waste"] == sum(one["size"] for one in waste["statistics"])
    assert waste["statistics_total"] == len(waste["statistics"])


def check_cycles(cycles, collected):
    def entry(kind):
        (found,) = [one for one in cycles["statistics"] if set(one["types"]) - {"dict"} == {kind}]
        return found

    plain, watched = entry("Ring"), entry("Watched")
    assert (plain["cycles"], plain["garbage"], plain["finalized"]) == (600, 100, [])
    assert (watched["cycles"], watched["garbage"]) == (110, 10)
    assert watched["finalized"] == ["Watched"] and watched["finalized_count"] == 220
    # What the collector then found: two instances a ring, and their dictionaries up to 3.10.
    assert collected == 110 * plain["count"] / plain["cycles"]
    total = cycles["total"]
    for key in ("cycles", "count", "size", "garbage", "finalized_count"):
        assert total[key] == sum(one[key] for one in cycles["statistics"])


def check_tree(tree, reference):
    """Nodes below one node retain no more than it does, and all objects are in the outermost."""

    def check(node):
        assert len(node["children"]) == node["children_total"]
        below = sum(child["retained_size"] for child in node["children"])
        assert below + node["size"] <= node["retained_size"]
        for child in node["children"]:
            check(child)

    outermost = tree["tree"]["children"]
    assert sum(node["retained_size"] for node in outermost) == reference["total"]["size"]
    assert sum(node["retained_count"] for node in outermost) == reference["total"]["count"]
    for node in outermost:
        check(node)
    (main,) = [node for node in outermost if node["name"] == MAIN + "__dict__"]
    by_name = {node["name"]: node for node in main["children"]}
    assert by_name["attribute sparse_dicts"]["type"] == "list"
    (dicts,) = by_name["attribute sparse_dicts"]["children"]
    assert dicts["type"] == "dict" and dicts["count"] == 50 and dicts["children_total"] == 0
    assert dicts["retained_count"] == 50


@pytest.mark.versions("3.8", "3.12", "3.13")
def test_waste_and_cycles(wasteful, run_tracer, python, tmp_path):
    target, known = wasteful(python)
    dump = str(tmp_path / "heap.dump")
    every = ("--top", 0)
    check_waste(ask(run_tracer, "waste", "-o", dump, *every, "-p", target.pid), known)
    check_tree(
        ask(run_tracer, "--retained", "--depth", 3, *every, dump),
        ask(run_tracer, "--by", "root", dump),
    )
    cycles = ask(run_tracer, "cycles", *every, dump)
    target.step()
    check_cycles(cycles, int(target.read_line()))
    text = run_tracer("heap", "waste", dump).stdout
    assert "duplicate str: size=" in text and "the same text" not in text
    text = run_tracer("heap", "waste", "--values", dump).stdout
    assert "30 characters: 'the same text, many times over'\n" in text
    text = run_tracer("heap", "cycles", "--top", 0, dump).stdout
    assert re.search(r", garbage=10 \(retained=[^)]*\), with __del__: __main__.Watched\n", text)
    text = run_tracer("heap", "--retained", "--depth", 2, dump).stdout
    assert "\n    attribute empty_dicts -> list: retained=" in text
    for usage in (
        ("waste", "str", dump),
        ("--depth", "3", dump),
        ("--retained", "--depth", "0", dump),
    ):
        error_line(run_tracer("heap", *usage), 2)
    assert target.finish() == 0
