# SPDX-License-Identifier: Apache-2.0
"""tracer export --format html of a dump: the browser of tracer serve in one file, which asks nobody;
what is not in it is told."""
import os
import re
import shutil
import urllib.parse

import pytest

from harness import error_line
from test_heap_graph import ask
from test_serve import N, PYTHON, dump  # noqa: F401
from test_serve_page import ROWS, Page, axe, places_axe, size_text  # noqa: F401

pytestmark = pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium")

MOST = 8 << 20
CUT = "document.querySelector('[role=alert]')?.textContent.includes('not in the file')"


class FilePage(Page):
    """An exported page. requests: what it has asked for beside itself."""

    def __init__(self, path, **options):
        super().__init__(None, **options)
        self.path, self.requests = path, []

    def start(self):
        self.call("Network.enable")
        self.open(self.path)
        self.idle()

    def message(self):
        message = super().message()
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        return message

    def quiet(self):
        """It has loaded itself, and an icon without content."""
        others = [url for url in self.requests if not url.startswith("data:,")]
        assert others == ["file://" + self.path] and self.errors == []


@pytest.fixture
def export(run_tracer, tmp_path):
    def run(path):
        """(the page's path, what was said)"""
        out = str(tmp_path / "heap.html")
        result = run_tracer("export", path, "--format", "html", "-o", out)
        assert result.returncode == 0, result.stderr
        return out, result.stderr

    return run


def test_views(export, run_tracer, dump):  # noqa: F811
    """What fits is all there: the views show what tracer heap prints."""
    path, said = export(dump)
    objects = ask(run_tracer, dump)["total"]["count"]
    assert said == (
        "tracer: %s: it has all of %d objects; tracer serve also answers queries\n"
        % (path, objects)
    )
    assert os.path.getsize(path) < MOST and os.stat(path).st_mode & 0o777 == 0o600
    with FilePage(path) as browser:
        assert browser.text("h1") == "tracer: " + dump
        assert "all objects" in browser.text("main")
        browser.view("Types", "What the heap consists of")
        rows = ask(run_tracer, "--retained", "--top", 100, dump)["statistics"]
        assert [cells[2] for cells in browser.run(ROWS)[0]] == [size_text(r["size"]) for r in rows]
        for key in ("module", "path", "root", "container", "size"):
            browser.go("#types?key=" + key)
            rows = ask(run_tracer, "--by", key, "--top", 100, dump)["statistics"]
            assert len(browser.run(ROWS)[0]) == len(rows) > 3
        # The tree, by the keyboard, down to an object and its path.
        browser.view("Tree", "What would be freed")
        browser.press("Tab")
        for _ in range(2):
            browser.press("ArrowRight")
            browser.true("document.activeElement.querySelector('[role=treeitem]')")
            browser.press("ArrowRight")
        assert "__main__.Node" in browser.focused() and "{:,}".format(N) in browser.focused()
        browser.press("Enter")
        browser.true("document.querySelector('h2')?.textContent.startsWith('__main__.Node at 0x')")
        at = browser.run("location.hash").partition("=")[2]
        shown = ask(run_tracer, "show", at, "--top", 100, dump)
        assert [len(rows) for rows in browser.run(ROWS)] == [
            len(shown["references_out"]),
            len(shown["references_in"]),
        ]
        assert "cache" in browser.text("ol.path")
        # Of the queries those of the largest types; their objects are there.
        browser.go("#query?q=" + urllib.parse.quote('type = "__main__.Node"'))
        answer = ask(run_tracer, "query", "type = __main__.Node", "--top", 100, dump)
        assert [int(row[2], 16) for row in browser.run(ROWS)[0]] == [
            each["address"] for each in answer["objects"]
        ]
        browser.go("#query?q=size+%3E+12345")
        assert browser.run(CUT)
        for place, title in (("waste", "Waste: "), ("cycles", "Cycles: ")):
            browser.go("#" + place)
            assert browser.text("h2").startswith(title) and len(browser.run(ROWS)[-1]) > 0
            for hash in browser.run("[...document.querySelectorAll('main td a')].map(a => a.hash)"):
                browser.go(hash)
                assert not browser.run(CUT), hash
        browser.quiet()


def test_hostile(export, dump):  # noqa: F811
    """Names are text; contents of texts are not in the file."""
    path, _ = export(dump)
    with open(path) as file:
        text = file.read()
    assert "default-src 'none'" in text and "connect-src" not in text and "unsafe" not in text
    assert text.count("<script") == 2 and "hacked" not in text
    with FilePage(path) as browser:
        browser.go("#types")
        browser.run(
            "[...document.querySelectorAll('td a')].find(a => a.textContent.includes('<')).click()"
        )
        browser.true("document.querySelectorAll('main tbody tr').length >= 10")
        assert "</script><script>document.title='hacked'</script>" in browser.text("main")
        assert "\\u202e" in browser.text("main") and "\u202e" not in browser.text("main")
        assert browser.run("document.querySelectorAll('img, main script').length") == 0
        kept = browser.wait(
            "new Response(new Blob([Uint8Array.from(atob(document.getElementById('kept').textContent),"
            " (c) => c.charCodeAt(0))]).stream().pipeThrough(new DecompressionStream('gzip'))).text()"
            ".then((text) => ['__main__.Node', 'the secret of', 'a text that is there']"
            ".map((part) => text.includes(part)))"
        )
        assert kept == [True, False, False]
        browser.quiet()


@pytest.mark.parametrize("width", (360, pytest.param(1200, marks=pytest.mark.long)))
def test_axe(export, dump, axe, width):  # noqa: F811
    with FilePage(export(dump)[0], width=width) as browser:
        places_axe(browser)
        assert browser.run("document.documentElement.scrollWidth") <= width
        browser.quiet()


def test_cut(export, start, run_tracer, tmp_path):
    """More than fits: the file keeps to its bound, and what was left out is told where it is missed."""
    target, heap = start(PYTHON, "served.py", 30000), str(tmp_path / "large.dump")
    target.wait_reading()
    ask(run_tracer, "--by", "root", "-o", heap, "-p", target.pid)
    assert target.finish() == 0
    path, said = export(heap)
    total = ask(run_tracer, heap)["total"]["count"]
    match = re.fullmatch(
        r"tracer: .*: it has (\d+) of (\d+) objects, .*; tracer serve shows all.*\n", said
    )
    assert match and 5000 < int(match.group(1)) < int(match.group(2)) == total
    assert 1 << 20 < os.path.getsize(path) <= MOST
    with FilePage(path) as browser:
        text = browser.text("main")
        assert "{:,} of {:,} objects".format(int(match.group(1)), total) in text
        # The largest are there; the smallest of a kind is not.
        biggest = ask(run_tracer, "query", "retained > 0", "--top", 100, heap)["objects"]
        for each in biggest[::10]:
            browser.go("#object?at=" + hex(each["address"]))
            assert browser.text("h2").endswith(hex(each["address"]))
        nodes = ask(run_tracer, "query", "type = int", "--top", 0, heap)["objects"]
        browser.go("#object?at=" + hex(nodes[-1]["address"]))
        assert browser.run(CUT) and "tracer serve " + heap in browser.text("[role=alert]")
        browser.go("#query?q=" + urllib.parse.quote('type = "__main__.Node"'))
        assert "not in this file" in browser.text("p.more")
        browser.quiet()


def test_refused(run_tracer, dump, tmp_path):  # noqa: F811
    out = str(tmp_path / "out.html")
    for words in (["--format", "speedscope"], [dump, "--format", "html"]):
        error_line(run_tracer("export", dump, *words, "-o", out), 2)
    damaged = tmp_path / "damaged.dump"
    with open(dump, "rb") as file:
        damaged.write_bytes(file.read(5000))
    error_line(run_tracer("export", damaged, "--format", "html", "-o", out), 1)
    assert not os.path.exists(out)
    # A file that this has written is replaced; another one is not.
    for content, status in ((None, 0), (None, 0), ("other", 1)):
        if content:
            with open(out, "w") as file:
                file.write(content)
        assert run_tracer("export", dump, "--format", "html", "-o", out).returncode == status
