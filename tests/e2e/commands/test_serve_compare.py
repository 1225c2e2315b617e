# SPDX-License-Identifier: Apache-2.0
"""tracer serve: what it compares is what tracer diff and tracer heap diff print, and so is its page."""
import json
import os
import shutil
import time

import pytest

from ctl_client import ctl  # noqa: F401
from harness import ROOT, error_line, marked_line, program
from test_heap_graph import ask
from test_serve import PYTHON, dump, serve  # noqa: F401
from test_serve_page import ROWS, Page, size_text

NAME = "compared.py"
DATA = os.path.join(ROOT, "tests", "unit", "data", "snapshots")
N = 400

chromium = pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium")


def step(target):
    target.step()
    assert target.read_line() == "done"
    target.wait_reading()


def line_of(mark):
    return "%s:%d" % (program(NAME), marked_line(NAME, mark))


@pytest.fixture
def snapshots(start, trace, ctl, tmp_path):  # noqa: F811
    """An older and a newer one of a process."""
    target = start(PYTHON, NAME, N)
    trace("-p", target.pid, "-m", "exact", "--layer", "python")
    paths = []
    for name in ("old", "new"):
        step(target)
        paths.append(str(tmp_path / (name + ".pb.gz")))
        ctl(target.pid, "snapshot", paths[-1])
    assert target.finish() == 0
    return paths


@pytest.fixture
def dumps(start, run_tracer, tmp_path):
    """Three of a process."""
    target, paths = start(PYTHON, NAME, N), []
    for name in ("a", "b", "c"):
        step(target)
        paths.append(str(tmp_path / (name + ".dump")))
        ask(run_tracer, "--by", "root", "-o", paths[-1], "-p", target.pid)
    assert target.finish() == 0
    return paths


def get(served, path, **arguments):
    status, _, body = served.get(path, **arguments)
    assert status == 200, body
    return json.loads(body)


def printed(run_tracer, *words):
    done = run_tracer(*words, "--format", "json")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return json.loads(done.stdout)


def test_snapshots(serve, run_tracer, snapshots, dump, tmp_path):  # noqa: F811
    old, new = snapshots
    served = serve(old, dump, new)
    for by in ("lineno", "function", "filename"):
        for top in (1, 50):
            answer = get(served, "/api/compare", a=0, b=2, by=by, top=top)
            words = ("diff", old, new, "--group-by", by, "--top", top)
            assert answer == printed(run_tracer, *words)
    rows = {
        "%(filename)s:%(lineno)d" % row["traceback"][0]: row
        for row in get(served, "/api/compare", a=0, b=2)["statistics"]
    }
    assert rows[line_of("GROWN")]["count_diff"] >= N
    assert rows[line_of("SHRUNK")]["count_diff"] == -N // 2
    # The page is that of tracer export, and only a page of this server may have it in a frame.
    page = str(tmp_path / "page.html")
    assert run_tracer("export", new, old, "--format", "html", "-o", page).returncode == 0
    status, headers, body = served.get("/compare", a=0, b=2)
    with open(page, "rb") as file:
        assert status == 200 and body == file.read()
    assert headers["X-Frame-Options"] == "SAMEORIGIN"
    assert headers["Content-Security-Policy"] in body.decode()
    # The same answer when it is asked again, and the other way round.
    assert served.get("/compare", a=0, b=2)[2] == body
    swapped = get(served, "/api/compare", a=2, b=0)
    assert swapped == printed(run_tracer, "diff", new, old, "--top", 100)
    served.end()


def test_processes(serve, run_tracer, start, trace, tmp_path):  # noqa: F811
    """Two processes of one snapshot: as the snapshots of each."""
    targets = [start(PYTHON, NAME, n) for n in (N, 2 * N)]
    pids = [target.pid for target in targets]
    run = trace("-p", "%d,%d" % tuple(pids), "-m", "exact", "--layer", "python", attached=2)
    for target in targets:
        step(target)
    run.finish()
    served, parts = serve(run.snapshot), []
    for pid in pids:
        parts.append(str(tmp_path / ("%d.pb.gz" % pid)))
        assert run_tracer("filter", run.snapshot, "--pid", pid, "-o", parts[-1]).returncode == 0
    listed = get(served, "/api/parts", source=0)["parts"]
    by_process = printed(run_tracer, "report", run.snapshot, "--by", "process")["statistics"]
    assert [
        (part["pid"], part["size"], part["count"]) for part in listed if part["kind"] == "process"
    ] == [(row["pid"], row["size"], row["count"]) for row in by_process]
    a, b = ("0/process/%d" % pid for pid in pids)
    answer = get(served, "/api/compare", a=a, b=b, top=10000)
    expected = printed(run_tracer, "diff", *parts, "--top", 10000)
    assert answer["statistics"] == expected["statistics"] and answer["total"] == expected["total"]
    assert any(row["count_diff"] == N for row in answer["statistics"])
    served.end()


def check_owners(served, run_tracer, path, kind, by):
    """The sums of parts are those of tracer report --by, and all of them together those of each
    line."""
    rows = printed(run_tracer, "report", path, "--by", by, "--top", 0)["statistics"]
    parts = [p for p in get(served, "/api/parts", source=0)["parts"] if p["kind"] == kind]
    figures = ("pid", "size", "count")
    assert [(part["name"], *(part[key] for key in figures)) for part in parts] == [
        (row[kind], *(row[key] for key in figures)) for row in rows
    ]
    lines = {}
    for part in parts:
        answer = get(served, "/api/compare", a=parts[0]["part"], b=part["part"], top=10000)
        assert answer["total"]["size"] == part["size"]
        assert answer["total"]["size_diff"] == part["size"] - parts[0]["size"]
        assert answer["total"]["count_diff"] == part["count"] - parts[0]["count"]
        for row in answer["statistics"]:
            where = json.dumps(row["traceback"])
            lines[where] = lines.get(where, 0) + row["size"]
    whole = printed(run_tracer, "report", path, "--top", 0)["statistics"]
    told = {json.dumps(row["traceback"]): row["size"] for row in whole}
    assert {where: size for where, size in lines.items() if size} == told


@pytest.mark.parametrize("kind", ("thread", "task"))
def test_owners(serve, run_tracer, kind):  # noqa: F811
    path = os.path.join(DATA, kind + "s.pb.gz")
    served = serve(path)
    check_owners(served, run_tracer, path, kind, kind)
    served.end()


def test_values(serve, run_tracer, start, trace):  # noqa: F811
    """The values of a context variable, of which each is a part."""
    by, target = "context shop.path", start(PYTHON, "labels_steady.py", "context")
    run = trace("-p", target.pid, "-m", "exact", "--layer", "python", "--by", by)
    target.step()
    time.sleep(1)
    target.step()
    kept = json.loads(target.read_line())
    run.finish()
    served = serve(run.snapshot)
    check_owners(served, run_tracer, run.snapshot, "value", by)
    parts = get(served, "/api/parts", source=0)["parts"]
    names = {part["name"]: part["part"] for part in parts if part["kind"] == "value"}
    assert set(kept) <= set(names)
    # A value has what was kept for it, of the line that all share.
    answer = get(served, "/api/compare", a=names["/cart"], b=names["/export"])
    line = marked_line("labels_steady.py", "L")
    (row,) = [r for r in answer["statistics"] if r["traceback"][0]["lineno"] == line]
    assert row["count"] >= kept["/export"][1]
    assert row["count_diff"] >= 0.9 * (kept["/export"][1] - kept["/cart"][1])
    served.end()


def test_heaps(serve, run_tracer, dumps):  # noqa: F811
    served = serve(*dumps)
    for by in ("type", "module", "path"):
        for top in (2, 100):
            options = ("--by", by, "--top", top)
            two = get(served, "/api/heap/diff", a=0, b=1, by=by, top=top)
            assert two == ask(run_tracer, "diff", *dumps[:2], *options)
            three = get(served, "/api/heap/diff", a=0, b=1, c=2, by=by, top=top)
            assert three == ask(run_tracer, "diff", *dumps, *options)
    rows = {
        row["type_name"]: row for row in get(served, "/api/heap/diff", a=0, b=1, c=2)["statistics"]
    }
    assert rows["__main__.Item"]["stayed_count"] == rows["__main__.Item"]["count_diff"] == N
    served.end()


def test_wrong(serve, dumps):  # noqa: F811
    served = serve(os.path.join(DATA, "threads.pb.gz"), *dumps[:2])
    for path, status in {
        "/api/compare": 400,
        "/api/compare?a=0": 400,
        "/api/compare?a=0&b=-1": 400,
        "/api/compare?a=0&b=x": 400,
        "/api/compare?a=0&b=0x": 400,
        "/api/compare?a=0&b=99999999999999999999": 404,
        "/api/compare?a=0&b=7": 404,
        "/api/compare?a=0&b=1": 404,
        "/api/compare?a=0&b=0/": 400,
        "/api/compare?a=0&b=0/thread": 400,
        "/api/compare?a=0&b=0/thread/x": 400,
        "/api/compare?a=0&b=0/thread/1": 404,
        "/api/compare?a=0&b=0/task/0": 400,
        "/api/compare?a=0&b=0/value/0": 400,
        "/api/compare?a=0&b=0/process/1": 404,
        "/api/compare?a=0&b=0&by=traceback": 400,
        "/api/compare?a=0&b=0&top=0": 400,
        "/api/compare?a=0&b=0&c=0": 400,
        "/compare?a=1&b=2": 404,
        "/compare?a=0&b=0&top=5": 400,
        "/api/heap/diff?a=1": 400,
        "/api/heap/diff?a=0&b=1": 404,
        "/api/heap/diff?a=1&b=2&c=0": 404,
        "/api/heap/diff?a=1&b=2/thread/1": 404,
        "/api/heap/diff?a=1&b=2&by=line": 400,
        "/api/parts?source=9": 404,
    }.items():
        answer = served.get(path)
        assert answer[0] == status, (path, answer)
        assert answer[2].count(b"\n") == 1, answer
    assert get(served, "/api/parts", source=1)["parts"] == []
    served.end()


@pytest.fixture
def allocated(start, trace, ctl, run_tracer, tmp_path):  # noqa: F811
    """(a traced process, a dump of it, what tracer ctl blocks has written)"""
    target = start(PYTHON, "held_lines.py")
    trace("-p", target.pid, "-m", "exact", "--layer", "python")
    target.step()
    target.read_line()
    target.wait_reading()
    blocks, path = str(tmp_path / "now.blocks"), str(tmp_path / "now.dump")
    ctl(target.pid, "blocks", blocks)
    ask(run_tracer, "--by", "root", "-o", path, "-p", target.pid)
    yield target, path, blocks
    assert target.finish() == 0


def lines_check(served, run_tracer, path, blocks, number):
    known = ("--trace", blocks, path)
    by_line = served.heap("by", key="line", source=number, top=50)
    assert by_line == ask(run_tracer, "--by", "line", "--top", 50, *known)
    lines = served.heap("lines", what="Entry", source=number)
    assert lines == ask(run_tracer, "lines", "Entry", *known)
    rows = ask(run_tracer, "query", "type = Entry", "--top", 1, path)["objects"]
    shown = served.heap("show", address=hex(rows[0]["address"]), source=number)
    assert shown == ask(run_tracer, "show", hex(rows[0]["address"]), "--top", 100, *known)
    assert shown["line"] == lines["statistics"][0]["line"] and len(shown["traceback"]) == 2


def test_lines(serve, run_tracer, allocated, dump, tmp_path):  # noqa: F811
    """Blocks are of the heap before them; a process that is traced is asked."""
    target, path, blocks = allocated
    served = serve(dump, path, blocks)
    assert [one["lines"] for one in get(served, "/api/sources")["sources"]] == [False, True]
    lines_check(served, run_tracer, path, blocks, 1)
    for question in ("by?key=line", "lines?what=Node"):
        status, _, body = served.get("/api/heap/" + question)
        assert status == 400 and b"not known" in body
    assert "line" not in served.heap("show", address=hex(types_of(served)["Node"]))
    served.end()
    served = serve("-p", target.pid)
    (source,) = get(served, "/api/sources")["sources"]
    assert source["lines"] is True
    (row,) = served.heap("lines", what="Entry")["statistics"]
    assert row == ask(run_tracer, "lines", "Entry", "--trace", blocks, path)["statistics"][0]
    served.end()
    # Of another process, before a heap, of no heap, and damaged.
    error_line(run_tracer("serve", dump, blocks), 1)
    assert "before it" in error_line(run_tracer("serve", blocks, path), 1)
    assert "before it" in error_line(
        run_tracer("serve", os.path.join(DATA, "tasks.pb.gz"), blocks), 1
    )
    cut = tmp_path / "cut.blocks"
    with open(blocks, "rb") as file:
        cut.write_bytes(file.read()[:-3])
    error_line(run_tracer("serve", path, cut), 1)


def types_of(served):
    rows = served.heap("by", key="type", top=10000)["statistics"]
    return {row["type"]: row["type_address"] for row in rows}


# --- the page ------------------------------------------------------------------------------------

FRAME = "document.querySelector('iframe').contentDocument"


def number_of(text):
    return int(text.replace("−", "-").replace(",", ""))


def signed(number, text):
    return ("+" if number > 0 else "−" if number < 0 else "") + text(abs(number))


@chromium
def test_page_snapshots(serve, run_tracer, snapshots):  # noqa: F811
    served = serve(*snapshots)
    with Page(served) as browser:
        browser.view("Compare", "Compare")
        expected = printed(run_tracer, "diff", *snapshots, "--top", 10000)
        (shown,) = browser.run(ROWS)
        count = "{:,}".format
        assert [cells[:2] + cells[3:] for cells in shown] == [
            [
                size_text(row["size"]),
                signed(row["size_diff"], size_text),
                count(row["count"]),
                signed(row["count_diff"], count),
                "%(filename)s:%(lineno)d" % row["traceback"][0],
            ]
            for row in expected["statistics"]
        ]
        share = 100 * expected["statistics"][0]["size"] / expected["total"]["size"]
        assert shown[0][2] == "%.1f %%" % share
        total = expected["total"]
        assert signed(total["size_diff"], size_text) in browser.text("dl")
        # Sorted by the growth of blocks, then filtered: the order stays.
        browser.run("[...document.querySelectorAll('th button')][4].click()")
        diffs = sorted((row["count_diff"] for row in expected["statistics"]), reverse=True)
        assert [cells[4] for cells in browser.run(ROWS)[0]] == [signed(d, count) for d in diffs]
        browser.run("document.getElementById('filter').focus()")
        browser.type(line_of("SHRUNK").upper())
        (found,) = browser.run(ROWS)
        assert [cells[5] for cells in found] == [line_of("SHRUNK")]
        assert browser.text("main p[role=status]") == "1 row"
        browser.run("document.getElementById('filter').select()")
        browser.type(NAME.upper())
        growth = [number_of(cells[4]) for cells in browser.run(ROWS)[0]]
        assert len(growth) >= 2 and growth == sorted(growth, reverse=True)
        # The address keeps what is chosen.
        browser.run("document.querySelector('#by').value = 'function'")
        browser.run("document.querySelector('#by').dispatchEvent(new Event('change'))")
        browser.true("document.querySelector('td:last-child')?.textContent.startsWith('shrink (')")
        assert browser.run("document.getElementById('filter').value") == NAME.upper()
        assert all(NAME in cells[5] for cells in browser.run(ROWS)[0])
        # The flame graph is the page of the two, with signs and stripes.
        browser.true(FRAME + "?.getElementById('totals')?.textContent.includes('compared with')")
        legend = browser.run(FRAME + ".getElementById('colors').textContent")
        assert "▲" in legend and "▼" in legend and "stripes" in legend
        assert browser.errors == []
    served.end()


@chromium
def test_page_parts(serve, run_tracer):  # noqa: F811
    """Of one snapshot: its tasks, with hostile names as text."""
    path = os.path.join(DATA, "tasks.pb.gz")
    served = serve(path)
    with Page(served) as browser:
        browser.view("Compare", "Compare")
        options = browser.run("[...document.querySelectorAll('#a option')].map((o) => o.text)")
        parts = get(served, "/api/parts", source=0)["parts"]
        assert len(options) == len(parts) > 60
        assert any("\\u202e<script>" in option for option in options)
        tasks = [part for part in parts if part["kind"] == "task"]
        for select, part in (("a", tasks[0]), ("b", tasks[2])):
            browser.run(
                "document.getElementById('%s').value = %s" % (select, json.dumps(part["part"]))
            )
            browser.run("document.querySelector('h2').setAttribute('data-old', '')")
            browser.run("document.getElementById('%s').dispatchEvent(new Event('change'))" % select)
            browser.true("document.querySelector('h2') && !document.querySelector('[data-old]')")
            browser.idle()
        facts = browser.text("dl")
        assert size_text(tasks[0]["size"]) in facts and size_text(tasks[2]["size"]) in facts
        assert browser.run("document.querySelectorAll('main script, main img').length") == 0
        # Swapped, the growth has the other sign.
        growth = browser.run(ROWS)[0][0][1]
        browser.run("document.querySelector('#compared button').click()")
        browser.true("document.getElementById('a').value === %s" % json.dumps(tasks[2]["part"]))
        browser.idle()
        assert browser.run("document.querySelector('td:nth-child(2)').textContent")[0] != growth[0]
        assert browser.errors == []
    served.end()


@chromium
def test_page_heaps(serve, run_tracer, dumps):  # noqa: F811
    served = serve(*dumps)
    with Page(served) as browser:
        browser.view("Compare", "Compare")
        expected = ask(run_tracer, "diff", *dumps[:2], "--top", 10000)["statistics"]
        (shown,) = browser.run(ROWS)
        assert [(cells[1], cells[4]) for cells in shown] == [
            (signed(row["size_diff"], size_text), row["type_name"]) for row in expected
        ]
        browser.go("#compare?a=0&b=1&c=2&by=path")
        expected = ask(run_tracer, "diff", *dumps, "--by", "path", "--top", 10000)["statistics"]
        (shown,) = browser.run(ROWS)
        assert [(cells[0], cells[6]) for cells in shown] == [
            (size_text(row["stayed_size"]), row["path"]) for row in expected
        ]
        # A type leads to its objects in B.
        browser.go("#compare?a=0&b=1&by=type")
        browser.run(
            "[...document.querySelectorAll('td a')].find((a) => a.textContent === '__main__.Item').click()"
        )
        browser.true("document.getElementById('query') !== null")
        browser.idle()
        assert browser.run("document.getElementById('source').value") == "1"
        assert "{:,} objects".format(2 * N) in browser.text("main")
        assert browser.errors == []
    served.end()


@chromium
@pytest.mark.parametrize("dark", (False, True))
def test_page_media(serve, dumps, snapshots, dark):  # noqa: F811
    """Every control has a name, and no view is wider than a narrow screen."""
    served = serve(*snapshots, *dumps)
    with Page(served, width=360, height=700, dark=dark) as browser:
        for place in ("#compare", "#compare?a=2&b=3&c=4"):
            browser.go(place)
            wide = browser.run("document.documentElement.scrollWidth")
            assert wide <= 360, (place, wide)
            roles = ("link", "button", "combobox", "searchbox", "table", "Iframe")
            nodes = [(role, name) for role, name, _ in browser.nodes() if role in roles]
            assert len(nodes) > 10 and all(name.strip() for _, name in nodes), nodes
        assert browser.errors == []
    served.end()


@chromium
def test_page_lines(serve, run_tracer, allocated):  # noqa: F811
    _, path, blocks = allocated
    served = serve(path, blocks)
    known = ("--trace", blocks, path)
    with Page(served) as browser:
        browser.go("#types?key=line")
        rows = ask(run_tracer, "--by", "line", "--top", 100, *known)["statistics"]
        (shown,) = browser.run(ROWS)
        assert [(cells[0], cells[1]) for cells in shown] == [
            (size_text(row["size"]), "{:,}".format(row["count"])) for row in rows
        ]
        for cells, row in zip(shown, rows):
            older = "older than the trace, %s" % (row.get("module") or "(no module)")
            assert cells[2].startswith(row["line"] or older)
            assert cells[2].endswith(" % through " + row["holder"])
        # From the types to the lines of one, and from an object to its stack.
        browser.go("#types")
        browser.run(
            "[...document.querySelectorAll('td:last-child')].find((cell) => "
            "cell.textContent.startsWith('__main__.Entry ')).querySelectorAll('a')[3].click()"
        )
        browser.true(
            "document.querySelector('h2').textContent === 'Lines that allocated __main__.Entry'"
        )
        browser.idle()
        entry = "%s:%d" % (program("held_lines.py"), marked_line("held_lines.py", "ENTRY"))
        assert browser.run(ROWS)[0][0][2].startswith(entry)
        found = ask(run_tracer, "query", "type = Entry", "--top", 1, path)["objects"]
        browser.go("#object?at=" + hex(found[0]["address"]))
        frames = browser.run(
            "[...document.querySelectorAll('#allocated li')].map((li) => li.textContent)"
        )
        assert frames[0] == entry + " in fill" and frames[1].endswith(" in <module>")
        assert browser.errors == []
    served.end()
    # Without them nothing is said of lines.
    served = serve(path)
    with Page(served) as browser:
        browser.go("#types?key=line")
        assert browser.run("document.getElementById('key').value") == "type"
        assert "lines" not in browser.text("main tbody")
        browser.go("#object?at=" + hex(found[0]["address"]))
        assert browser.run("document.getElementById('allocated')") is None
        assert browser.errors == []
    served.end()
