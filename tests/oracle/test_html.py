# SPDX-License-Identifier: Apache-2.0
"""The HTML report in a real browser: its sums are those of `tracer report`, its controls work, and
names from the traced process stay text."""
import json
import os
import pickle
import re
import shutil
import sys
import tracemalloc

import pytest

from browser import Browser

pytestmark = pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium")

HOSTILE = "</script><script>document.title='hacked'</script><img src=x onerror=alert(1)>\u202e.py"
KIB = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def bytes_of(text):
    """(what a size like "12.3 KiB" says, half of its last digit)"""
    number, unit = text.split()
    last = 0.1 if "." in number else 1
    return float(number) * KIB[unit], last * KIB[unit] / 2 + (unit == "B")


@pytest.fixture(scope="module")
def page(tracer, snapshots, tmp_path_factory):
    """(the path of a page, the snapshot's own file)"""
    folder = tmp_path_factory.mktemp("html")

    def make(*files, options=()):
        out = str(folder / ("%d.html" % len(list(folder.iterdir()))))
        tracer("export", *files, "--format", "html", "-o", out, *options)
        return out

    make.folder = folder
    return make


@pytest.fixture(scope="module")
def taken(snapshots):
    """The largest snapshot."""
    import os

    return max(snapshots.values(), key=os.path.getsize)


def rows(browser):
    return browser.run(
        "[...document.querySelectorAll('#sheet tbody tr')].map("
        "(row) => [...row.cells].map((cell) => cell.textContent))"
    )


def escaped(text):
    """As the page shows it."""
    hidden = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e]")
    return hidden.sub(lambda match: "\\u%04x" % ord(match[0]), text)


def test_sums(tracer, page, taken):
    """Each row's sums are the report's, by line, function's file and file."""
    with Browser() as browser:
        browser.open(page(taken))
        assert browser.errors == []
        for view, group in (("line", "lineno"), ("file", "filename")):
            browser.choose("view", "table")
            browser.choose("group", view)
            shown = {where: (own, all_) for own, all_, where in rows(browser)}
            for which, option in ((0, ()), (1, ("--cumulative",))):
                done = tracer(
                    "report",
                    taken,
                    "--format",
                    "json",
                    "--group-by",
                    group,
                    "--top",
                    "200",
                    *option
                )
                entries = json.loads(done.stdout)["statistics"]
                checked = 0
                for entry in entries[:100]:
                    frame = entry["traceback"][0]
                    where = frame["filename"] + (
                        ":%d" % frame["lineno"] if group == "lineno" and frame["lineno"] else ""
                    )
                    if where not in shown:
                        continue
                    checked += 1
                    expected = entry.get("once", entry)["size"]
                    value, slack = bytes_of(shown[where][which])
                    assert abs(value - expected) <= slack, (where, shown[where], entry)
                assert checked >= min(len(entries), 20)


def test_allocated(tracer, page, taken):
    """What was allocated is a figure where it is known, with the lines that hold nothing."""
    snapshot = str(page.folder / "replayed.pb.gz")
    capture = os.path.join(os.path.dirname(__file__), "..", "golden", "golden-3.13-n16.cap")
    tracer("replay", capture, "-o", snapshot)
    done = tracer("report", snapshot, "--sort", "allocated", "--top", "0", "--format", "json")
    expected = {
        "%(filename)s:%(lineno)d" % entry["traceback"][0]: entry["allocated_size"]
        for entry in json.loads(done.stdout)["statistics"]
    }
    figures = "[...document.querySelectorAll('#figure option')].map((option) => option.value)"
    with Browser() as browser:
        browser.open(page(taken))
        assert browser.run(figures) == ["size", "count"]
        browser.open(page(snapshot))
        browser.choose("view", "table")
        browser.choose("figure", "allocated_size")
        shown = {where: bytes_of(own) for own, _, where in rows(browser)}
        for where, size in expected.items():
            value, slack = shown[where]
            assert abs(value - size) <= slack, where
        assert sum(expected.values()) > sum(value for value, _ in shown.values()) / 1.01


@pytest.mark.parametrize("kind", ("thread", "task"))
def test_owners(tracer, page, taken, kind):
    """Threads and tasks are rows, and one can be chosen, with the sums that `report --by` has.
    Where one thread has allocated all, in no task, there is no such choice."""
    folder = os.path.join(os.path.dirname(__file__), "..", "unit", "data", "snapshots")
    path = os.path.join(folder, kind + "s.pb.gz")
    done = tracer("report", path, "--by", kind, "--top", "0", "--format", "json")
    expected = {
        "%(thread)s (TID %(tid)d)" % entry
        if kind == "thread"
        else escaped(entry["task"] or "(no task)"): (entry["size"], entry["count"])
        for entry in json.loads(done.stdout)["statistics"]
    }
    assert len(expected) == {"thread": 5, "task": 63}[kind]
    owners = "[...document.querySelectorAll('#%s option')].map((option) => option.text)" % kind
    with Browser() as browser:
        browser.open(page(path))
        browser.choose("view", "table")
        browser.choose("group", kind)
        for at, figure in enumerate(("size", "count")):
            browser.choose("figure", figure)
            shown = {where: own for own, where in rows(browser)}
            assert shown.keys() == expected.keys()
            for where, figures in expected.items():
                if figure == "count":
                    assert int(shown[where].split()[0]) == figures[at]
                else:
                    value, slack = bytes_of(shown[where])
                    assert abs(value - figures[at]) <= slack, where
        browser.choose("group", "line")
        for at, name in list(enumerate(browser.run(owners)[1:]))[:6]:
            browser.choose(kind, str(at))
            count = expected[name][1]
            assert browser.run("document.getElementById('totals').textContent").endswith(
                "in %d block%s" % (count, "" if count == 1 else "s")
            )
            own = [int(own.split()[0].replace(",", "")) for own, _, _ in rows(browser)]
            assert sum(own) == count
        browser.choose("figure", "allocated_size")
        assert browser.run("document.getElementById('%ss').hidden" % kind)
        assert not browser.errors
        browser.open(page(taken))
        assert browser.run("document.getElementById('%ss').hidden" % kind)
        assert browser.run("document.querySelector('#group [value=%s]')" % kind) is None


def test_cut(page):
    """Tracebacks that were cut do not look as if their oldest frame had no caller."""
    path = str(page.folder / "cut.pickle")
    stacks = (((("b.py", 2), ("a.py", 1)), 2), ((("c.py", 3),), 9))
    traces = tuple((0, 1000, frames, total) for frames, total in stacks)
    with open(path, "wb") as file:
        pickle.dump(tracemalloc.Snapshot(traces, 2), file, pickle.HIGHEST_PROTOCOL)
    outline = "[...document.querySelectorAll('#outline > ul > li')].map((item) => item.textContent)"
    with Browser() as browser:
        browser.open(page(path))
        browser.choose("view", "tree")
        assert set(browser.run(outline)) == {
            "a.py:1 1000 B (50.0 %)",
            "(callers that were not kept) 1000 B (50.0 %)",
        }
        browser.choose("inverted", True)
        assert set(browser.run(outline)) == {"b.py:2 1000 B (50.0 %)", "c.py:3 1000 B (50.0 %)"}


def test_names_are_text(tracer, page, taken):
    """A name that is markup is shown as it is, and runs nothing. The page's policy refuses what a
    hostile name could add, and the page needs nothing that it refuses."""
    path = str(page.folder / "hostile.pickle")
    snapshot = tracemalloc.Snapshot(((0, 1000, ((HOSTILE, 7),), 1),), 1)
    with open(path, "wb") as file:
        pickle.dump(snapshot, file, pickle.HIGHEST_PROTOCOL)
    with Browser() as browser:
        out = page(path)
        browser.open(out)
        assert browser.errors == [] and "hacked" not in browser.run("document.title")
        browser.choose("view", "table")
        ((own, all_, where),) = rows(browser)
        assert (own, all_) == ("1000 B", "1000 B")
        assert where == HOSTILE.replace("\u202e", "\\u202e") + ":7"
        assert browser.run("document.querySelectorAll('img').length") == 0
        # The policy holds: a script that is added is not run.
        browser.run(
            "{const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
            "document.body.append(s)}"
        )
        assert browser.run("window.ran") is None
        assert any("Content Security Policy" in str(error) for error in browser.errors)
    with open(out) as file:
        assert file.read().count("</script>") == 2


def canvas(browser):
    box = browser.run(
        "{const b = document.getElementById('canvas').getBoundingClientRect();"
        "[b.left, b.top, b.width, b.height]}"
    )
    return box


def test_controls(page, taken):
    """Zoom by mouse and keyboard, search, inversion, the tree; in light and dark, wide and narrow."""
    pictures = set()
    for dark, width in ((False, 1200), (True, 1200), (False, 360)):
        with Browser(width=width, dark=dark) as browser:
            browser.open(page(taken))
            assert browser.run("document.documentElement.scrollWidth") <= width
            left, top, wide, high = canvas(browser)
            assert high > 18 and wide > width / 2
            pictures.add(browser.call("Page.captureScreenshot")["data"])
            browser.click(left + wide / 4, top + high - 27)  # the row above "all"
            zoomed = browser.text("#detail")
            assert zoomed and not zoomed.startswith("all")
            browser.key("Escape")
            assert browser.text("#detail").startswith("all")
            browser.key("ArrowUp")
            assert browser.text("#detail") == zoomed or width == 360
            browser.key("/")
            assert browser.run("document.activeElement.id") == "search"
            browser.choose("search", ".")
            assert "(100.0 %) match" in browser.text("#found")
            browser.choose("search", "no such frame")
            assert browser.text("#found").startswith("0 B")
            browser.choose("search", "(")  # not a regular expression: as it is
            browser.choose("search", "")
            browser.choose("inverted", True)
            assert browser.text("#detail").startswith("all")
            browser.choose("view", "tree")
            browser.run("document.querySelector('#outline summary').click()")
            assert browser.run("document.querySelectorAll('#outline li').length") > 1
            browser.choose("view", "notes")
            assert "tracemalloc" in browser.text("#notes")
            assert browser.errors == []
    assert len(pictures) == 3


def test_compared(tracer, page, taken, snapshots):
    """With an older snapshot: the totals' difference is that of `tracer diff`."""
    others = [path for path in snapshots.values() if path != taken]
    old = others[0]
    done = json.loads(tracer("diff", old, taken, "--format", "json", "--top", "0").stdout)
    difference = done["total"]["count"] - sum(
        entry["count"] - entry["count_diff"] for entry in done["statistics"]
    )
    with Browser() as browser:
        browser.open(page(taken, old))
        text = browser.text("#totals")
        assert "compared with" in text
        sign = "+" if difference > 0 else ""
        assert "(%s%s block" % (sign, format(difference, ",")) in text
        browser.choose("view", "table")
        assert "Own, change" in browser.text("#sheet thead")
        assert browser.errors == []


@pytest.mark.parametrize("dark", (False, True))
def test_signs(page, dark):
    """What has shrunk has stripes, and what has grown has none: no colour has to be told from another."""
    colors = (
        "{const canvas = document.getElementById('canvas');"
        "const row = canvas.getContext('2d').getImageData(0, canvas.height - 34, canvas.width, 1).data;"
        "const found = new Set();"
        "for (let x = canvas.width / 2; x < canvas.width - 10; x++)"
        " found.add(row.slice(4 * x, 4 * x + 3).join());"
        "[...found]}"
    )
    few, many = (str(page.folder / (name + ".pickle")) for name in ("few", "many"))
    for path, size in ((few, 1000), (many, 9000)):
        with open(path, "wb") as file:
            pickle.dump(tracemalloc.Snapshot(((0, size, (("a.py", 1),), 1),), 1), file)
    with Browser(dark=dark) as browser:
        browser.open(page(many, few))
        assert "▲" in browser.text("#colors") and "▼" in browser.text("#colors")
        assert len(browser.run(colors)) == 1
        browser.open(page(few, many))
        assert len(browser.run(colors)) > 1
        assert browser.errors == []


def test_deep_and_many(page):
    """10,000 frames of recursion, and 100,000 stacks."""
    deep = tuple(("deep.py", line % 50) for line in range(10000))
    many = [
        (
            0,
            64 + i % 7,
            tuple(("m%d.py" % (i // 7**d % 97), d * 100 + i % 89) for d in range(12)),
            12,
        )
        for i in range(100000)
    ]
    for name, traces in (
        ("deep", [(0, 5000, deep, 10000), (0, 1, deep[5000:], 5000)]),
        ("many", many),
    ):
        path = str(page.folder / name)
        with open(path, "wb") as file:
            pickle.dump(tracemalloc.Snapshot(tuple(traces), 10000 if name == "deep" else 12), file)
        with Browser() as browser:
            browser.open(page(path))
            assert browser.errors == []
            total = sum(trace[1] for trace in traces)
            value, slack = bytes_of(browser.text("#totals").split(" in ")[0])
            assert abs(value - total) <= slack
            browser.run("document.getElementById('canvas').focus()")
            for _ in range(20):
                browser.key("ArrowUp")
            assert not browser.text("#detail").startswith("all")


def test_source(tracer, page, tmp_path):
    """--source has the lines around each frame's line; without it the page has no line."""
    target = tmp_path / "leaks.py"
    target.write_text(
        "import tracemalloc\ntracemalloc.start()\nkept = [bytes(1000)]  # kept < here\n"
        "import sys\ntracemalloc.take_snapshot().dump(sys.argv[1])\n"
    )
    import subprocess

    path = str(tmp_path / "taken")
    subprocess.run([sys.executable, str(target), path], check=True)
    for options in ((), ("--source",)):
        with Browser() as browser:
            browser.open(page(path, options=options))
            browser.choose("search", "")
            left, top, wide, high = canvas(browser)
            browser.click(left + 5, top + high - 27)
            assert ("kept < here" in browser.text("#detail")) == bool(options)


def test_speedscope(tracer, page, taken):
    """The weights of a speedscope file are the report's total; its frames are those of the
    tracebacks, oldest first."""
    out = str(page.folder / "speedscope.json")
    tracer("export", taken, "--format", "speedscope", "-o", out)
    with open(out) as file:
        written = json.load(file)
    report = json.loads(
        tracer("report", taken, "--format", "json", "--group-by", "traceback", "--top", "0").stdout
    )
    frames, (profile,) = written["shared"]["frames"], written["profiles"]
    assert profile["endValue"] == sum(profile["weights"]) == report["total"]["size"]
    stacks = {
        tuple((frames[i]["file"], frames[i]["line"]) for i in reversed(sample)): weight
        for sample, weight in zip(profile["samples"], profile["weights"])
    }
    assert stacks == {
        tuple((f["filename"], f["lineno"]) for f in entry["traceback"]): entry["size"]
        for entry in report["statistics"]
    }
