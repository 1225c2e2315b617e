# SPDX-License-Identifier: Apache-2.0
"""tracer heap: references, retained sizes and paths of a whole heap, held against what the
interpreter itself says of it."""
import json
import os
import stat
import struct
import subprocess

import pytest

from harness import error_line, wait_reading

COUNT = 2000
EXACT, ALL_FOUND = 0.99, 0.999


def ask(run_tracer, *arguments):
    done = run_tracer("heap", "--format", "json", *arguments)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout.count("\n") == 1
    return json.loads(done.stdout)


def check_proof(answer):
    proof = answer["references"]
    assert proof["objects"] > 50000
    assert proof["exact"] >= EXACT * proof["objects"], proof
    assert proof["all_found"] >= ALL_FOUND * proof["objects"], proof
    assert answer["cut"] is False and answer["pools_unreadable"] == 0


def check_paths(run_tracer, target, kinds):
    """Each path that has an expression leads to the object whose address it ends at."""
    replayed = 0
    for kind in kinds:
        paths = ask(run_tracer, "why", kind, "--top", 20, "-p", target.pid)["paths"]
        assert paths, kind
        for path in paths:
            assert path["steps"][-1]["type"] == kind and path["count"] > 0
            if "expression" not in path:
                continue
            os.write(target.process.stdin.fileno(), (path["expression"] + "\n").encode())
            assert int(target.read_line()) == path["steps"][-1]["address"], path
            replayed += 1
    return replayed


@pytest.fixture
def builtins(start):
    def make(python):
        target = start(python, "graph_builtins.py", COUNT)
        target.wait_reading()
        return target

    return make


@pytest.mark.versions()
def test_references(builtins, run_tracer, python):
    target = builtins(python)
    answer = ask(run_tracer, "--retained", "--top", 0, "-p", target.pid)
    check_proof(answer)
    assert answer["by"] == "type"
    assert answer["total"]["count"] == sum(s["count"] for s in answer["statistics"])
    assert answer["total"]["size"] == sum(s["size"] for s in answer["statistics"])
    for entry in answer["statistics"]:
        assert entry["retained_count"] >= entry["count"] or entry["retained_size"] > 0
    kinds = "A S D E SubT SubS generator cell deque str tuple dict module"
    kinds = kinds.replace("deque", "collections.deque").split()
    assert check_paths(run_tracer, target, kinds) >= len(kinds)
    paths = ask(run_tracer, "why", "Held", "--top", 0, "-p", target.pid)["paths"]
    held = {path["expression"].partition("'].")[2] for path in paths}
    assert held == {
        "Keeps.plain[0]", "Keeps.table[1]", "Keeps._Keeps__mangled[0]", "Keeps.ends[0]",
        "Keeps.__dict__['get'][0]", "Keeps.method.__defaults__[0][0]", "KeepsAbc.registry[0]",
        "Hides.__dict__['hidden'][0]",
    }  # fmt: skip
    assert check_paths(run_tracer, target, ["Held"]) == len(held)
    assert target.finish() == 0


def test_references_stripped(builtins, run_tracer, debian_python):
    target = builtins(debian_python)
    check_proof(ask(run_tracer, "--by", "root", "-p", target.pid))
    assert check_paths(run_tracer, target, ("A", "S", "generator", "cell")) >= 4


@pytest.mark.versions("3.8", "3.13")
def test_malloc(start, run_tracer, python, debian_python):
    """The heap of malloc may be large, and of several maps."""
    for which in (python, debian_python):
        target = start(which, "graph_malloc.py", ready=False)
        address = target.read_line().strip()
        target.read_until("ready")
        target.wait_reading()
        answer = ask(run_tracer, "--retained", "--top", 0, "-p", target.pid)
        check_proof(answer)
        by_type = {entry["type"]: entry for entry in answer["statistics"]}
        assert by_type["member_descriptor"]["size"] < 128 * by_type["member_descriptor"]["count"]
        shown = ask(run_tracer, "show", address, "-p", target.pid)
        assert shown["references_out_total"] == 200000
        assert target.finish() == 0


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_known_sizes(start, run_tracer, python):
    target = start(python, "graph_known.py", ready=False)
    known = json.loads(target.read_line())
    target.read_until("ready")
    for name in ("numbers", "mapping", "big", "tuples"):
        shown = ask(run_tracer, "show", hex(known[name]["address"]), "-p", target.pid)
        size, count = known[name]["size"], known[name]["count"]
        # Blocks are multiples of 16 bytes; the table of a dict or list has a block of its own.
        # malloc maps the largest by the page.
        most = size + 16 * (count + 2) + (4096 if name == "big" else 64)
        assert size <= shown["retained_size"] <= most, (name, shown)
    answer = ask(run_tracer, "--retained", "--top", 0, "-p", target.pid)
    by_type = {entry["type"]: entry for entry in answer["statistics"]}
    assert by_type["Tree"]["count"] == 63 and by_type["Ring"]["count"] == 2
    # The tree holds, beside its nodes, a text and a list for each of them.
    assert by_type["Tree"]["retained_count"] >= 3 * 63
    assert by_type["Tree"]["retained_size"] > by_type["Tree"]["size"]
    (ring,) = ask(run_tracer, "why", hex(known["ring"]["address"]), "-p", target.pid)["paths"]
    assert ring["expression"] == "sys.modules['__main__'].ring.value"
    assert ring["retained_size"] >= by_type["Ring"]["size"]


BORROWED = """
import ctypes, sys
class cython_function_or_method:
    __slots__ = ("ml", "self")
kept = cython_function_or_method()
kept.self = kept
ctypes.pythonapi.Py_DecRef(ctypes.py_object(kept))
print(id(kept), flush=True)
sys.stdin.read()
"""


def test_borrowed_self(run_tracer, debian_python):
    """Functions of Cython refer to themselves without a count."""
    command = [debian_python.path, "-c", BORROWED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as target:
        address = target.stdout.readline().decode().strip()
        wait_reading(target.pid)  # before, the frame's stack may refer to it
        shown = ask(run_tracer, "show", address, "-p", target.pid)
        assert shown["refcount"] == shown["found"] == 1, shown
        target.kill()


def test_groups(builtins, run_tracer, any_python):
    target = builtins(any_python)
    total = None
    for by in ("module", "root", "size", "type"):
        answer = ask(run_tracer, "--by", by, "--retained", "--top", 0, "-p", target.pid)
        assert answer["by"] == by
        assert answer["total"]["size"] == sum(s["size"] for s in answer["statistics"])
        assert answer["total"]["count"] == sum(s["count"] for s in answer["statistics"])
        # The program waits, but its collector or an import lock may have moved a few objects.
        total = total or answer["total"]["count"]
        assert abs(answer["total"]["count"] - total) < 100
        names = [s["from" if by == "size" else by] for s in answer["statistics"]]
        assert len(names) == len(set(map(str, names))) or by == "type"
        if by == "module":
            assert "sys.modules['__main__']" in names
    containers = ask(run_tracer, "--by", "container", "--top", 10, "-p", target.pid)["statistics"]
    sizes = [s["retained_size"] for s in containers]
    assert sizes == sorted(sizes, reverse=True)
    assert "sys.modules['__main__'].cache" in [s["container"] for s in containers]


def test_holders_and_show(builtins, run_tracer, any_python):
    target = builtins(any_python)
    holders = ask(run_tracer, "holders", "D", "--top", 0, "-p", target.pid)["holders"]
    assert {h["type"] for h in holders} <= {"A", "dict"}
    assert sum(h["count"] for h in holders) == COUNT // 5
    (path, *_) = ask(run_tracer, "why", "__main__.S", "-p", target.pid)["paths"]
    types = ask(run_tracer, "--retained", "--top", 0, "-p", target.pid)["statistics"]
    names = {t["type_name"] for t in types}
    assert names >= {
        "__main__.D",
        "__main__.NT",
        "__main__.Outer.Inner",
        "collections.deque",
        "str",
    }
    address = path["steps"][-1]["address"]
    shown = ask(run_tracer, "show", address, "--top", 0, "-p", target.pid)
    assert shown["type"] == "S" and shown["refcount"] == shown["found"] == 1
    assert {r["name"] for r in shown["references_out"]} >= {"a", "b", "__class__"}
    (holder,) = shown["references_in"]
    assert holder["name"] == "peer"
    text = next(r for r in shown["references_out"] if r["name"] == "a")
    inner = ask(run_tracer, "show", text["address"], "--top", 0, "-p", target.pid)
    assert [r["kind"] for r in inner["references_out"]] == ["index", "index"]
    os.write(target.process.stdin.fileno(), b"sys.modules['__main__'].bigs\n")
    big = ask(run_tracer, "show", target.read_line().strip(), "-p", target.pid)
    assert big["type"] == "str" and big["size"] > 100000 and big["value"] is None


def test_dump(builtins, run_tracer, any_python, tmp_path):
    """A dump answers as the process did."""
    target, dump = builtins(any_python), str(tmp_path / "heap.dump")
    before = ask(run_tracer, "--retained", "--top", 0, "-o", dump, "-p", target.pid)
    assert stat.S_IMODE(os.stat(dump).st_mode) == 0o600
    target.kill()
    assert ask(run_tracer, "--retained", "--top", 0, dump) == before
    paths = ask(run_tracer, "why", "A", dump)["paths"]
    assert sum(p["count"] for p in paths) > COUNT
    assert ask(run_tracer, "holders", "D", dump)["holders"]


KEPT = "sys.modules['__main__'].kept"
GROW = (
    "sys.modules['__main__'].__dict__.setdefault('kept', []).extend("
    "sys.modules['__main__'].A(i) for i in range(%d)) or "
    "sys.modules['__main__'].__dict__.__setitem__('passing', "
    "[sys.modules['__main__'].S() for i in range(%d)])"
)


def test_diff(builtins, run_tracer, any_python, tmp_path):
    """What came and stayed is told from what came and went."""
    target, dumps = builtins(any_python), [str(tmp_path / name) for name in "abc"]
    for dump, grow in zip(dumps, (None, (500, 300), (70, 0))):
        if grow:
            os.write(target.process.stdin.fileno(), (GROW % grow + "\n").encode())
            target.read_line()
        ask(run_tracer, "--retained", "-o", dump, "-p", target.pid)
    target.kill()
    rows = {r["type"]: r for r in ask(run_tracer, "diff", *dumps[:2], "--top", 0)["statistics"]}
    assert (rows["A"]["count_diff"], rows["S"]["count_diff"]) == (500, 300)
    assert rows["A"]["size_diff"] > 0 and "stayed_count" not in rows["A"]
    assert rows["A"]["type_name"] == "__main__.A"
    rows = {r["type"]: r for r in ask(run_tracer, "diff", *dumps, "--top", 0)["statistics"]}
    assert rows["A"]["stayed_count"] == 500 and rows["S"]["stayed_count"] == 0
    everything = {}
    for by, main, count in (("module", "sys.modules['__main__']", 800), ("path", KEPT, 500)):
        answer = ask(run_tracer, "diff", "--by", by, *dumps, "--top", 0)
        assert answer["by"] == by
        rows = {r[by]: r for r in answer["statistics"]}
        assert len(rows) == len(answer["statistics"])
        # Instances, their names, and the tables that hold them.
        assert rows[main]["count_diff"] >= count and rows[main]["stayed_count"] >= 500, rows[main]
        everything[by] = sum(r["size_diff"] for r in answer["statistics"])
    assert everything["module"] == everything["path"]
    text = run_tracer("heap", "diff", "--by", "path", *dumps[:2]).stdout
    assert "\n  %s: size=" % KEPT in text


def test_heapsnapshot(builtins, run_tracer, any_python, tmp_path):
    """The arrays are consistent, names are there, and no content of a text is."""
    target, dump = builtins(any_python), str(tmp_path / "heap.dump")
    total = ask(run_tracer, "--retained", "-o", dump, "-p", target.pid)["total"]
    done = run_tracer("heap", "--format", "heapsnapshot", dump)
    assert done.returncode == 0 and done.stderr == ""
    heap = json.loads(done.stdout)
    head, nodes, edges, strings = (heap[k] for k in ("snapshot", "nodes", "edges", "strings"))
    node, edge = (head["meta"][k] for k in ("node_fields", "edge_fields"))
    assert len(nodes) == len(node) * head["node_count"] == len(node) * (total["count"] + 1)
    assert len(edges) == len(edge) * head["edge_count"]
    assert sum(nodes[node.index("edge_count") :: len(node)]) == head["edge_count"]
    assert sum(nodes[node.index("self_size") :: len(node)]) == total["size"]
    ids = nodes[node.index("id") :: len(node)]
    assert len(set(ids)) == len(ids)
    types = [nodes[to + 1] for to in edges[2::3]]
    assert all(to % len(node) == 0 for to in edges[2::3])
    properties = {
        (strings[edges[i + 1]], strings[types[i // 3]])
        for i in range(0, len(edges), 3)
        if edges[i] == head["meta"]["edge_types"][0].index("property")
    }
    assert {("peer", "S"), ("cache", "dict"), ("cell_contents", "str")} <= properties
    assert not {"held by a frame alone", "'held by a frame alone'", "'1999'", "1999"} & set(strings)
    error_line(run_tracer("heap", "why", "A", dump, "--format", "heapsnapshot"), 2)


def test_dump_damaged(builtins, run_tracer, any_python, tmp_path):
    target, dump = builtins(any_python), str(tmp_path / "heap.dump")
    ask(run_tracer, "--retained", "-o", dump, "-p", target.pid)
    with open(dump, "rb") as file:
        data = file.read()
    bad = tmp_path / "bad.dump"
    for content, reason in (
        (b"", "it ends within"),
        (data[:100000], "it ends within"),
        (b"x" + data[1:], "no dump of a heap"),
        (data[:8] + b"\xff" * 16 + data[24:], "another version"),
        (data[:24] + b"\xff" * 16 + data[40:], "impossible"),
    ):
        bad.write_bytes(content)
        assert reason in error_line(run_tracer("heap", "--retained", str(bad)), 1)


def test_dump_of_the_format_before(builtins, run_tracer, any_python, tmp_path):
    """Its time is in seconds."""
    target, new, old = builtins(any_python), tmp_path / "new.dump", tmp_path / "old.dump"
    ask(run_tracer, "--retained", "-o", new, "-p", target.pid)
    data = bytearray(new.read_bytes())
    (nanoseconds,) = struct.unpack_from("<Q", data, 104)
    assert struct.unpack_from("<I", data, 8) == (6,)
    struct.pack_into("<I", data, 8, 5)
    struct.pack_into("<Q", data, 104, nanoseconds // 10**9 - 5)
    old.write_bytes(data)
    answer = json.loads(run_tracer("leaks", old, new, "--format", "json").stdout)
    assert answer["seconds"] == pytest.approx(5 + nanoseconds % 10**9 / 10**9, abs=0.02)


@pytest.mark.parametrize("kind", ("lists", "dicts", "types", "shared"))
def test_hostile(start, run_tracer, any_python, kind):
    target = start(any_python, "graph_hostile.py", kind)
    target.wait_reading()
    for question in (("--retained",), ("--by", "module"), ("why", "list"), ("holders", "dict")):
        done = run_tracer("heap", *question, "-p", target.pid)
        assert done.returncode == 0 and done.stderr == "", done.stderr
    if kind == "shared":
        assert "beyond the limit of work" in done.stdout
    assert target.process.poll() is None


def test_ends_half_way(start, run_tracer, any_python):
    """The process ends while its memory is copied: a result, or one line."""
    for _ in range(5):
        target = start(any_python, "graph_builtins.py", COUNT)
        os.kill(target.pid, 9)
        done = run_tracer("heap", "--retained", "-p", target.pid)
        if done.returncode:
            assert str(target.pid) in error_line(done, 1)


def test_freeze(builtins, run_tracer, any_python):
    target = builtins(any_python)
    answer = ask(run_tracer, "--retained", "--freeze", "-p", target.pid)
    assert answer["frozen_ns"] > 0
    check_proof(answer)
    assert target.finish() == 0


def test_refused(builtins, run_tracer, any_python):
    target = builtins(any_python)
    assert "no object has a type" in error_line(
        run_tracer("heap", "why", "NoSuchType", "-p", target.pid), 1
    )
    assert "no object begins" in error_line(run_tracer("heap", "why", "0x10", "-p", target.pid), 1)
    assert "address" in error_line(run_tracer("heap", "show", "dict", "-p", target.pid), 1)
    for wrong in (("diff", "a"), ("why", "A"), ("why",), ("why", "A", "x", "-p", target.pid)):
        error_line(run_tracer("heap", *wrong), 2)


def test_values(builtins, run_tracer, any_python):
    """The contents of texts are shown only on request."""
    target = builtins(any_python)
    for expression, text in (
        ("sys.modules['__main__'].cache['1999'].name", "'1999'"),
        ("sys.modules['__main__'].cache", "'1998'"),
    ):
        os.write(target.process.stdin.fileno(), (expression + "\n").encode())
        address = target.read_line().strip()
        show = ("show", address, "--top", 0, "-p", target.pid)
        for form in ("text", "json"):
            hidden = run_tracer("heap", "--format", form, *show).stdout
            assert hidden and text not in hidden
            assert text in run_tracer("heap", "--format", form, "--values", *show).stdout
    os.write(target.process.stdin.fileno(), b"sys.modules['__main__'].cache['7'].i\n")
    number = ask(run_tracer, "show", target.read_line().strip(), "-p", target.pid)
    assert number["value"] == "7000021"


def test_pprof(builtins, tracer, run_tracer, any_python, tmp_path):
    """The dominator tree as stacks: each object once, below what retains it."""
    target, dump, profile = builtins(any_python), tmp_path / "heap.dump", tmp_path / "heap.pb.gz"
    total = ask(run_tracer, "--retained", "-o", dump, "-p", target.pid)["total"]
    with open(profile, "wb") as file:
        command = [tracer, "heap", "--format", "pprof", str(dump)]
        assert subprocess.run(command, stdout=file, timeout=60).returncode == 0
    report = run_tracer(
        "report", "--format", "json", "--top", 0, "--group-by", "traceback", profile
    )
    assert report.returncode == 0, report.stderr
    report = json.loads(report.stdout)
    assert sum(s["count"] for s in report["statistics"]) == total["count"]
    assert sum(s["size"] for s in report["statistics"]) == total["size"]
    stacks = {}
    for entry in report["statistics"]:
        stacks[";".join(f["function"] for f in reversed(entry["traceback"]))] = entry["count"]
    # Texts of objects of A in the dictionary `cache`.
    assert any(";dict;A" in stack and stack.endswith(";str") for stack in stacks), stacks
    assert not any(";list;list;" in stack + ";" for stack in stacks)
    error_line(run_tracer("heap", "why", "A", dump, "--format", "pprof"), 2)
