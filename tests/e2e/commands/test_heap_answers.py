# SPDX-License-Identifier: Apache-2.0
"""tracer heap: how answers name types and paths, and which objects they put together."""
import json
import re

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
    for name, count in (("deque", N // 20), ("inner.Item", N // 5), ("queue.SimpleQueue", 1)):
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
    paths = ask(run_tracer, "why", "list", "--top", 0, dump)["paths"]
    sizes = [path["retained_size"] for path in paths]
    assert sizes == sorted(sizes, reverse=True)
    grid = [p for p in paths if p.get("expression", "").startswith(MAIN + "grid")]
    assert sorted(row["count"] for row in grid) == [1, 50]
    assert all(row["retained_size"] >= 50 * 20 * 24 for row in grid), grid


def check_repeated(run_tracer, dump):
    """The nodes of a list, and of a tree whose nodes have lists, are one kind each."""
    nodes = ask(run_tracer, "why", "Node", "--top", 0, dump)["paths"]
    assert [(p["count"], p["expression"]) for p in nodes] == [
        (1, MAIN + "head"),
        (999, MAIN + "head.next"),
    ]
    # The first node alone holds all of them.
    assert nodes[0]["retained_size"] > nodes[1]["retained_size"] >= nodes[1]["size"]
    assert "repeated" not in nodes[1]["steps"][1]
    step = nodes[1]["steps"][-1]
    assert (step["name"], step["repeated"], step["repeated_most"]) == ("next", 1, 999)
    (_, branches) = ask(run_tracer, "why", "Branch", dump)["paths"]
    assert branches["count"] == 50
    assert [(s["name"], s.get("repeated_most")) for s in branches["steps"]] == [
        ("__main__", None),
        ("tree", None),
        ("branches", 50),
        ("0", 50),
    ]
    state = ask(run_tracer, "why", "dict", "--top", 0, dump)["paths"]
    (state,) = [p for p in state if p.get("expression", "").startswith(MAIN + "waiting[")]
    assert state["count"] == 9  # the last generator is a variable of the module, too
    assert state["steps"][-2]["function"] == "generate"
    text = run_tracer("heap", "why", "Node", dump).stdout
    assert "\n    attribute next {1,999} -> __main__.Node at 0x" in text
    assert max(map(len, text.splitlines())) < 150


QUERIES = (
    # query, objects: at least, at most
    ("type = Node", 1000, 1000),
    ("type = other.inner.Item or type = one.Item", 3 * N // 10, 3 * N // 10),
    ("type = Item and not module = __main__", 0, 0),
    (r'type = dict and path ~ "^sys.modules\[.__main__.\]\.kept\[\*\]$"', N, N),
    (r'type = dict and path ~ "\.kept\[\*\]$" and retained >= 100', N, N),
    ('type = str and path ~ "kept" and size > 140 and depth > 2', N, N),
    ("type ~ ^__main__ and type != Node and not (type = Branch or type = Server)", 0, 0),
    ("root = frame and type = bytes and size >= 1000", 390, 410),
    ("address = 0x1", 0, 0),
)


def check_query(run_tracer, dump):
    """The objects for which a condition is true."""
    for query, least, most in QUERIES:
        answer = ask(run_tracer, "query", query, dump, "--top", 5)
        assert least <= answer["total"]["count"] <= most, (query, answer)
        retained = [each["retained_size"] for each in answer["objects"]]
        assert retained == sorted(retained, reverse=True) and len(retained) == min(5, most), query
    head = ask(run_tracer, "query", "type = Node", dump)
    # The first node holds the others: they are freed once.
    assert head["objects"][0]["path"] == MAIN + "head"
    assert head["total"]["retained_size"] == head["objects"][0]["retained_size"]
    value = ("query", "value = %0100d" % 77)
    (found,) = ask(run_tracer, *value, "--values", dump)["objects"]
    assert found["path"] == MAIN + "kept[77]['text']", found
    assert "--values" in error_line(run_tracer("heap", *value, dump), 2)
    text = run_tracer("heap", "query", "type = Node", dump, "--top", 2).stdout
    assert "\n1000 of " in text and "\n998 others: --top N shows more\n" in text


def check_merged(run_tracer, dump):
    """What no module leads to is one row for each kind of root, and function."""
    # Up to 3.10 a code object has no qualified name.
    answer = ask(run_tracer, "--by", "path", "--top", 0, dump)
    minor = int(answer["python_version"].split(".")[1])
    serve = "serve" if minor <= 10 else "Server.serve"
    rows = answer["statistics"]
    names = [row["path"] for row in rows]
    assert len(set(names)) == len(names)
    # Old addresses in free memory may hide a few.
    lost = sum(r["count"] for r in rows if r["path"] in ("lost reference", "native code"))
    assert lost >= 2 * (N // 4) * 0.95
    (frames,) = [row for row in rows if row["path"] == "frame of " + serve]
    assert frames["count"] >= 4 * 100 and frames["size"] >= 4 * 100 * 1000
    containers = ask(run_tracer, "--by", "container", "--top", 0, dump)["statistics"]
    names = {row["container"]: row for row in containers}
    frame = ("frame log of " + serve, "frame of serve, local log")  # the second one up to 3.10
    logs = [row for row in containers if row["container"] in frame]
    assert [(row["count"], row["type"]) for row in logs] == [(4, "list")]
    # A step that Python has no expression for follows those before it. From 3.13 on a queue has no
    # list, but a buffer of its own.
    queue = ("simple, field items", "list") if minor <= 12 else ("simple", "_queue.SimpleQueue")
    simple = names[MAIN + queue[0]]
    assert simple["type"] == queue[1] and simple["retained_size"] >= N // 10 * 1000
    chain = [name for name in names if name.startswith(MAIN + "head(.next){")]
    assert len(chain) in (0, 997), len(chain)  # up to 3.10 each node has a dict


def test_plain(start, run_tracer, any_python):
    """Types have their modules in the plain walk, too; `own size` is that of the blocks alone."""
    target = start(any_python, "heap_answers.py", N)
    target.wait_reading()
    plain = ask(run_tracer, "--top", 0, "-p", target.pid)["statistics"]
    whole = ask(run_tracer, "--retained", "--top", 0, "-p", target.pid)["statistics"]
    counts = {row["type_name"]: row["count"] for row in plain}
    assert (counts["one.Item"], counts["other.inner.Item"]) == (N // 10, N // 5)
    assert {row["type"] for row in plain if row["type_name"] == "one.Item"} == {"Item"}
    assert counts["__main__.Node"] == 1000 and counts["collections.deque"] >= N // 20
    # Types whose objects are all on the walked heap have one name in both answers.
    names = {row["type_address"]: row["type_name"] for row in whole}
    assert all(names.get(row["type_address"]) in (row["type_name"], None) for row in plain)
    sizes = {row["type_name"]: row["size"] for row in whole}
    for row in plain:
        if row["type_name"] in ("dict", "list"):
            assert row["own_size"] == row["size"] < sizes[row["type_name"]]
    text = run_tracer("heap", "--top", 0, "-p", target.pid).stdout
    assert "\n  other.inner.Item: own size=" in text and "\n  dict: own size=" in text
    assert "\n  dict: retained=" in run_tracer("heap", "--retained", "-p", target.pid).stdout
    assert target.finish() == 0


def test_several(start, run_tracer, any_python):
    """An answer for each process; the proof stands below it."""
    targets = sorted((start(any_python, "heap_answers.py", 200) for _ in "ab"), key=lambda t: t.pid)
    pids = [target.pid for target in targets]
    for question in (("--by", "path"), ("why", "SimpleQueue")):
        done = run_tracer("heap", *question, "--top", 3, "-p", "%d,%d" % tuple(pids))
        assert done.returncode == 0 and done.stderr == "", done.stderr
        answers = done.stdout.split("\n\n")
        assert len(answers) == 2
        for pid, answer in zip(pids, answers):
            first, *_, last = [line for line in answer.splitlines() if "others no more" not in line]
            assert "(PID %d)" % pid in first and last.startswith(("References: of ", "It ran"))
    done = run_tracer("heap", "holders", "dict", "--format", "json", "-p", "%d,%d" % tuple(pids))
    assert [json.loads(line)["pid"] for line in done.stdout.splitlines()] == pids
    done = run_tracer("heap", "--by", "root", "-p", "%d,1" % pids[0])
    assert done.returncode == 1 and "PID 1" in done.stderr and "(PID %d)" % pids[0] in done.stdout
    for arguments in (("-o", "/tmp/unused.dump"), ("--format", "pprof")):
        error_line(run_tracer("heap", "--by", "root", *arguments, "-p", "%d,%d" % tuple(pids)), 2)
    for question in ((), ("why",)):
        text = run_tracer("heap", *question, "--help").stdout
        for word in ("why", "holders", "show", "waste", "cycles", "diff"):
            assert re.search(r"^  %s  +[a-z].{20}" % word, text, re.M), word
    for target in targets:
        assert target.finish() == 0


@pytest.mark.versions("3.8", "3.13")
def test_answers(answers, run_tracer, python):
    dump = answers(python)
    check_names(run_tracer, dump)
    check_retained(run_tracer, dump)
    check_repeated(run_tracer, dump)
    check_query(run_tracer, dump)
    check_merged(run_tracer, dump)
