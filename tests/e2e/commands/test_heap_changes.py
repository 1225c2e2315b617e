# SPDX-License-Identifier: Apache-2.0
"""tracer heap: what a process changes while it is copied, and references that nothing holds."""
import pytest

from test_heap_graph import ask

COUNT = 20000
# On a busy machine the target may have no processor for the milliseconds of a copy.
ATTEMPTS = 20
LOST = 1000


def test_changing(start, run_tracer, any_python):
    """What changed is copied again, and the table that it is in is whole."""
    target = start(any_python, "changing_heap.py", COUNT)
    for _ in range(ATTEMPTS):
        answer = ask(run_tracer, "--retained", "--top", 0, "-p", target.pid)
        if answer["bytes_changed"]:
            break
    assert answer["bytes_changed"] > 0 and answer["references"]["lost"] == 0
    (items,) = [s for s in answer["statistics"] if s["type"] == "Item"]
    # One may be on its way into the table.
    assert COUNT * 0.99 <= items["count"] <= COUNT * 1.01, items
    proof = answer["references"]
    assert proof["all_found"] >= 0.98 * proof["objects"], proof
    for _ in range(ATTEMPTS):
        text = run_tracer("heap", "--retained", "-p", target.pid).stdout
        if "It ran meanwhile: " in text:
            break
    assert "It ran meanwhile: " in text and "changed and were copied again" in text
    frozen = ask(run_tracer, "--retained", "--top", 0, "--freeze", "-p", target.pid)
    assert frozen["bytes_changed"] == 0
    proof = frozen["references"]
    assert proof["all_found"] >= 0.999 * proof["objects"], proof
    target.kill()


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_lost(start, run_tracer, python):
    """Objects whose count is higher than what any word of the memory refers to are told apart."""
    target = start(python, "lost_references.py", LOST)
    target.wait_reading()
    answer = ask(run_tracer, "--by", "root", "--top", 0, "-p", target.pid)
    assert answer["bytes_changed"] == 0
    # Addresses of some are in memory that is free again.
    assert answer["references"]["lost"] >= 0.9 * LOST
    rows = {row["root"]: row for row in answer["statistics"]}
    assert rows["lost reference"]["count"] >= 0.9 * LOST
    (path, *_) = ask(run_tracer, "why", "Lost", "-p", target.pid)["paths"]
    assert path["count"] >= 0.9 * LOST
    assert (path["steps"][0]["kind"], path["steps"][0]["name"]) == ("lost reference", "1 reference")
    text = run_tracer("heap", "--by", "root", "-p", target.pid).stdout
    assert "no more references are in its memory: C code has lost them" in text
