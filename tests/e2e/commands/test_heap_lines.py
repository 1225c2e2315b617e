# SPDX-License-Identifier: Apache-2.0
"""tracer heap --by line: objects by the line that allocated them, from a session's blocks."""
import json

import pytest

from ctl_client import ctl  # noqa: F401
from harness import error_line, marked_line, program
from test_heap_graph import ask

NAME = "held_lines.py"
LOST = ("lost reference", "native code")
BY_LINE = ("--by", "line", "--top", 0)


def row_of(answer, mark):
    line = "%s:%d" % (program(NAME), marked_line(NAME, mark))
    return next(row for row in answer["statistics"] if row["line"] == line)


def check(answer):
    statistics = answer["statistics"]
    assert answer["by"] == "line"
    assert answer["total"]["count"] == sum(row["count"] for row in statistics)
    assert answer["total"]["size"] == sum(row["size"] for row in statistics)
    for mark, holder, count, least in (
        ("ENTRY", "CACHE", 4000, 4000 * 32),
        ("TEXT", "CACHE", 4000, 4000 * 48),
        ("BIG", "KEPT", 1000, 4000 * 1000),
    ):
        row = row_of(answer, mark)
        assert count <= row["count"] <= 3 * count and row["size"] >= least, (mark, row)
        assert row["holder"] == "sys.modules['__main__'].%s" % holder
        assert 0.9 * row["size"] <= row["holder_size"] <= row["size"], (mark, row)
    # References that C code has lost are one holder, and so are those that it may have.
    lost = row_of(answer, "LOST")
    assert lost["holder"] in LOST and lost["holder_size"] >= 0.5 * lost["size"], lost
    older = [row for row in statistics if row["line"] is None]
    (main,) = [row for row in older if row["module"] == "sys.modules['__main__']"]
    assert main["count"] >= 3000 and main["holder"] == "sys.modules['__main__'].OLD"
    # What came with the trace is not told as older.
    assert main["size"] < 1000 * 4000


def check_report(done):
    assert done.returncode == 0 and done.stderr == "", done.stderr
    report = json.loads(done.stdout)
    assert report["heap"]["references"]["objects"] > 10000
    entries = {entry["traceback"][0]["lineno"]: entry for entry in report["statistics"]}
    for mark, holder, count in (
        ("ENTRY", "CACHE", 4000),
        ("TEXT", "CACHE", 4000),
        ("BIG", "KEPT", 1000),
    ):
        entry = entries[marked_line(NAME, mark)]
        first = entry["holders"][0]
        assert first["holder"] == "sys.modules['__main__'].%s" % holder, (mark, entry)
        # Buffers of the objects and tables of their containers are held in the same way.
        assert first["count"] >= count and first["size"] >= 0.99 * entry["held_size"], (mark, entry)
        assert 0.99 * first["size"] <= first["only_size"] <= first["size"], (mark, entry)
        assert entry["held_size"] == sum(h["size"] for h in entry["holders"]), (mark, entry)
        assert entry["held_count"] == sum(h["count"] for h in entry["holders"]), (mark, entry)
        assert 0.99 * entry["size"] <= entry["held_size"] <= 1.01 * entry["size"], (mark, entry)
    shared = entries[marked_line(NAME, "SHARED")]["holders"][0]
    assert shared["holder"].endswith(("FIRST", "SECOND")) and shared["size"] >= 500 * 2000
    # Two variables hold the objects. The list that holds them is the first one's alone.
    assert shared["only_size"] < 0.01 * shared["size"], shared
    lost = entries[marked_line(NAME, "LOST")]["holders"]
    assert {row["holder"] for row in lost} <= set(LOST) and 1 <= len(lost) <= 2, lost
    assert sum(row["count"] for row in lost) >= 800
    assert all(row["only_size"] >= 0.99 * row["size"] for row in lost), lost


def check_snapshot(done, answer):
    """Chrome's format has the stacks: objects and bytes by line are those of the report."""
    assert done.returncode == 0 and done.stderr == "", done.stderr
    snapshot = json.loads(done.stdout)
    strings, infos = snapshot["strings"], snapshot["trace_function_infos"]
    width = len(snapshot["snapshot"]["meta"]["trace_function_info_fields"])
    lines, ids = {}, set()

    def visit(tree, callers):
        for at in range(0, len(tree), 5):
            number, info, count, size, callees = tree[at : at + 5]
            _, name, script, _, line, _ = infos[info * width : (info + 1) * width]
            place = "%s:%d" % (strings[script], line)
            entry = lines.setdefault(place, [0, 0, set()])
            entry[0] += count
            entry[1] += size
            if count:
                entry[2].add(callers + (strings[name],))
            assert number not in ids
            ids.add(number)
            visit(callees, callers + (strings[name],))

    visit(snapshot["trace_tree"], ())
    for row in answer["statistics"]:
        if row["line"]:
            assert lines[row["line"]][:2] == [row["count"], row["size"]], row
    fill = "%s:%d" % (program(NAME), marked_line(NAME, "BIG"))
    assert lines[fill][2] == {("(root)", "<module>", "fill")}
    fields = snapshot["snapshot"]["meta"]["node_fields"]
    nodes = snapshot["nodes"][fields.index("trace_node_id") :: len(fields)]
    assert set(nodes) <= ids | {0} and sum(1 for node in nodes if node) == sum(
        row["count"] for row in answer["statistics"] if row["line"]
    )


@pytest.mark.versions("3.8", "3.12", "3.13")
def test_by_line(start, trace, ctl, run_tracer, python, tmp_path):
    target = start(python, NAME)
    run = trace("-p", target.pid, "--mode", "exact" if python.version == "3.12" else "census")
    target.step()
    target.read_line()
    target.wait_reading()
    check(ask(run_tracer, *BY_LINE, "--session", run.pid, "-p", target.pid))
    blocks, dump = str(tmp_path / "blocks"), str(tmp_path / "heap.dump")
    assert ctl(target.pid, "blocks", blocks) == [{"snapshot": True}]
    check(ask(run_tracer, *BY_LINE, "--trace", blocks, "-o", dump, "-p", target.pid))
    check(ask(run_tracer, *BY_LINE, "--trace", blocks, dump))
    check_snapshot(
        run_tracer("heap", *BY_LINE, "--trace", blocks, "--format", "heapsnapshot", dump),
        ask(run_tracer, *BY_LINE, "--trace", blocks, dump),
    )
    text = run_tracer("heap", *BY_LINE, "--trace", blocks, dump).stdout
    assert " of it through sys.modules['__main__'].CACHE\n" in text
    snapshot = str(tmp_path / "now.pb.gz")
    assert ctl(target.pid, "snapshot", snapshot)
    by_holder = ("report", snapshot, "--by-holder", "--top", 0)
    check_report(run_tracer(*by_holder, "--format", "json", "--session", run.pid))
    run.finish()
    check_report(run_tracer(*by_holder, "--format", "json", "--trace", blocks, "--heap", dump))
    text = run_tracer(*by_holder, "--trace", blocks, "--heap", dump).stdout
    assert "    100 % through sys.modules['__main__'].KEPT, 100 % only through it\n" in text
    assert "session" in error_line(run_tracer(*by_holder), 1)
    for usage in (("--heap", dump), ("--group-by", "filename"), ("--format", "csv"), (snapshot,)):
        error_line(run_tracer(*by_holder, *usage), 2)
    error_line(run_tracer("report", snapshot, "--trace", blocks), 2)
    assert target.finish() == 0


def test_of_objects(start, trace, ctl, run_tracer, any_python, tmp_path):
    """The lines of a type's objects, and the line and stack of one."""
    target = start(any_python, NAME)
    run = trace("-p", target.pid, "--mode", "exact")
    target.step()
    target.read_line()
    target.wait_reading()
    blocks, dump = str(tmp_path / "blocks"), str(tmp_path / "heap.dump")
    assert ctl(target.pid, "blocks", blocks) == [{"snapshot": True}]
    ask(run_tracer, *BY_LINE, "--trace", blocks, "-o", dump, "-p", target.pid)
    of_dump = ("--trace", blocks, dump)
    answer = ask(run_tracer, "lines", "Entry", *of_dump)
    (row,) = answer["statistics"]
    entry = "%s:%d" % (program(NAME), marked_line(NAME, "ENTRY"))
    assert (answer["by"], row["line"], row["count"]) == ("line", entry, 4000)
    assert answer["total"] == {"size": row["size"], "count": 4000}
    assert row["holder"] == "sys.modules['__main__'].CACHE" and row["holder_size"] == row["size"]
    assert ask(run_tracer, "lines", "Entry", "-p", target.pid)["statistics"] == [row]
    # Of those of another type some are older, and lines add up to all of them.
    answer = ask(run_tracer, "lines", "bytearray", "--top", 0, *of_dump)
    rows = {row["line"]: row["count"] for row in answer["statistics"]}
    assert rows["%s:%d" % (program(NAME), marked_line(NAME, "BIG"))] == 1000
    assert sum(r["count"] for r in answer["statistics"] if r["line"] is None) >= 3000
    (of_type,) = [
        r for r in ask(run_tracer, "--top", 0, dump)["statistics"] if r["type_name"] == "bytearray"
    ]
    assert answer["total"] == {key: of_type[key] for key in ("size", "count")}
    text = run_tracer("heap", "lines", "Entry", *of_dump).stdout
    assert "  %s: size=" % entry in text
    found = ask(run_tracer, "query", "type = Entry", "--top", 1, dump)["objects"]
    address = hex(found[0]["address"])
    shown = ask(run_tracer, "show", address, *of_dump)
    assert shown["line"] == entry
    assert [frame["function"] for frame in shown["traceback"]] == ["fill", "<module>"]
    assert shown["traceback"][0]["line"] == entry
    live = ask(run_tracer, "show", address, "--by", "line", "-p", target.pid)
    assert (live["line"], live["traceback"]) == (shown["line"], shown["traceback"])
    text = run_tracer("heap", "show", address, *of_dump).stdout
    caller = shown["traceback"][1]["line"]
    assert "  allocated at %s in fill\n    %s in <module>\n" % (entry, caller) in text
    assert [r["line"] for r in ask(run_tracer, "lines", address, *of_dump)["statistics"]] == [entry]
    # Before the trace, and without one.
    (kind,) = {
        r["type_address"]
        for r in ask(run_tracer, "--top", 0, dump)["statistics"]
        if r["type"] == "Entry"
    }
    shown = ask(run_tracer, "show", hex(kind), *of_dump)
    assert shown["line"] is None and shown["traceback"] == []
    assert "  older than the trace\n" in run_tracer("heap", "show", hex(kind), *of_dump).stdout
    assert "line" not in ask(run_tracer, "show", address, dump)
    run.finish()
    line = error_line(run_tracer("heap", "lines", "Entry", "-p", target.pid), 1)
    assert "session" in line
    for usage in (("lines", "Entry", dump), ("lines", "Entry"), ("lines", *of_dump)):
        error_line(run_tracer("heap", *usage), 2)
    assert "did you mean" in error_line(run_tracer("heap", "lines", "Entri", *of_dump), 1)
    assert target.finish() == 0


def test_refused(start, trace, ctl, run_tracer, any_python, tmp_path):
    target, wrong = start(any_python, NAME), tmp_path / "wrong"
    line = error_line(run_tracer("heap", *BY_LINE, "-p", target.pid), 1)
    assert "session" in line
    run = trace("-p", target.pid, "--mode", "growth")
    done = run_tracer("heap", *BY_LINE, "--session", run.pid, "-p", target.pid)
    assert "growth mode" in error_line(done, 1)
    for content in (
        b"",
        b"\x1f\x8b\x08" + bytes(100),
        b"tracer blocks 2 1\n",
        b"tracer blocks 1 %d\nl 1 1 a\n" % target.pid,
        b"tracer blocks 1 %d\nb 1000 10 0\n" % target.pid,
        b"tracer blocks 1 %d\nl 0 1 a\nb ffffffffffffffff 10 0\n" % target.pid,
        b"tracer blocks 1 %d\nl 0 1 a\nb -1 10 0\n" % target.pid,
        b"tracer blocks 1 %d\nl 0 1 %s\n" % (target.pid, b"a" * 10000),
        b"tracer blocks 1 %d\nl 0 1 a\nb 1000 10 0" % target.pid,
        b"tracer blocks 1 %d\n" % (target.pid + 1),
        b"tracer blocks 3 %d\n" % target.pid,
        b"tracer blocks 4 %d\n" % target.pid,
        b"tracer blocks 2 %d\nl 0 1 a\nb 1000 10 0\n" % target.pid,
        b"tracer blocks 2 %d\nl 0 1 a\nf 0 1 main\n" % target.pid,
        b"tracer blocks 2 %d\nl 0 1 a\nf 0 0 main\ns 0 1 0\n" % target.pid,
        b"tracer blocks 2 %d\nl 0 1 a\nf 0 0 main\ns 0 0 0\nb 1000 10 0 1\n" % target.pid,
        b"tracer blocks 2 %d\nl 0 1 a\nf 0 0 main\ns 0 0 0\n" % target.pid
        + b"".join(b"s %d %d 0\n" % (i, i - 1) for i in range(1, 2000)),
    ):
        wrong.write_bytes(content)
        done = run_tracer("heap", *BY_LINE, "--trace", wrong, "-p", target.pid)
        assert "tracer ctl PID blocks FILE" in error_line(done, 1)
    for usage in (
        ("--by", "line", str(wrong)),
        ("--trace", str(wrong), "-p", target.pid),
        ("--by", "line"),
    ):
        error_line(run_tracer("heap", *usage), 2)
