# SPDX-License-Identifier: Apache-2.0
"""tracer heap: how answers name types and paths, and which objects they put together."""
import pytest

from harness import error_line
from test_heap_graph import ask

N = 2000
MAIN = "sys.modules['__main__']."


@pytest.fixture
def answers(start, run_tracer, tmp_path):
    """A dump of the program's heap."""

    def make(python):
        target, dump = start(python, "heap_answers.py", N), str(tmp_path / "heap.dump")
        target.wait_reading()
        ask(run_tracer, "--by", "root", "-o", dump, "-p", target.pid)
        assert target.finish() == 0
        return dump

    return make


def check_names(run_tracer, dump):
    """A type is found by its whole name, or from one of its dots on."""
    for name, count in (
        ("deque", N // 20),
        ("inner.Item", N // 5),
        ("queue.SimpleQueue", 1),
    ):
        paths = ask(run_tracer, "why", name, "--top", 0, dump)["paths"]
        # The standard library has deques of its own.
        assert count <= sum(path["count"] for path in paths) <= count + 10, name
    (holder,) = ask(run_tracer, "holders", "Item", dump)["holders"]
    assert holder["count"] == 3 * N // 10, holder
    for wrong, near in (("NOD", "__main__.Node"), ("eque", "collections.deque")):
        line = error_line(run_tracer("heap", "why", wrong, dump), 1)
        assert line.strip().endswith("did you mean %s?" % near), line
    assert "--top 0" in error_line(run_tracer("heap", "holders", "ZZZZZZ", dump), 1)


def check_retained(run_tracer, dump):
    """An object counts once within its row, whatever holds it above."""
    first = ask(run_tracer, "why", "dict", dump)["paths"][0]
    assert first["expression"].startswith(MAIN + "kept["), first
    # Each dict has a text of its own, of 100 characters.
    assert first["count"] == N and first["retained_size"] >= first["size"] + 100 * N, first
    for kind, name in (("list", "grid"), ("Node", "head"), ("Branch", "tree")):
        paths = ask(run_tracer, "why", kind, "--top", 0, dump)["paths"]
        sizes = [path["retained_size"] for path in paths]
        assert sizes == sorted(sizes, reverse=True)
        assert all(path["retained_size"] >= path["size"] for path in paths if path["count"] == 1)
        assert any(path.get("expression", "").startswith(MAIN + name) for path in paths)
    rows = [p for p in paths if p.get("expression", "").startswith(MAIN + "tree")]
    assert sum(row["count"] for row in rows) == 51
    whole = next(row for row in rows if row["expression"] == MAIN + "tree")
    assert whole["retained_size"] >= sum(row["size"] for row in rows) + 50 * 40
    grid = [
        p
        for p in ask(run_tracer, "why", "list", "--top", 0, dump)["paths"]
        if p.get("expression", "").startswith(MAIN + "grid")
    ]
    assert sorted(row["count"] for row in grid) == [1, 50]
    assert all(row["retained_size"] >= 50 * 20 * 24 for row in grid), grid


@pytest.mark.versions("3.8", "3.13")
def test_answers(answers, run_tracer, python):
    dump = answers(python)
    check_names(run_tracer, dump)
    check_retained(run_tracer, dump)
