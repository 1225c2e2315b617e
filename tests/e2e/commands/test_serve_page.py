# SPDX-License-Identifier: Apache-2.0
"""The page of tracer serve in a real browser: by the keyboard alone, with hostile names, in the dark,
on paper and on a narrow screen, without what axe-core finds; what it shows is what tracer heap
prints."""
import json
import os
import shutil
import sys
import urllib.parse
from decimal import ROUND_HALF_UP, Decimal

import pytest

from harness import ROOT, wait_until
from test_heap_graph import ask
from test_serve import N, dump, serve  # noqa: F401

sys.path.append(os.path.join(ROOT, "tests", "oracle"))
from browser import Browser  # noqa: E402

pytestmark = pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium")

KEYS = {
    "Tab": (9, ""),
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    "ArrowLeft": (37, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
}
AXE = os.environ.get("AXE") or os.path.join(
    ROOT, "build", "axe", "node_modules", "axe-core", "axe.min.js"
)
# One of each kind; of an object the one that the views lead to.
PLACES = (
    "#overview",
    "#types",
    "#types?key=container",
    "#tree",
    "#query",
    "#query?q=type+%3D+Node",
    "#query?q=type+%3D",
    "#why?what=Node",
    "#holders?what=Node",
    "#object",
    "#object?at=0x12",
    "#waste",
    "#cycles",
)
IDLE = "document.getElementById('main')?.getAttribute('aria-busy') === 'false'"
ROWS = "[...document.querySelectorAll('main table')].map((table) => [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent)))"


class Page(Browser):
    def __init__(self, served, **options):
        super().__init__(**options)
        self.served = served

    def __enter__(self):
        super().__enter__()
        self.start()
        return self

    def start(self):
        self.open(self.served.base + self.served.path)
        self.served.link_read()
        self.idle()

    def true(self, expression, what=None):
        wait_until(lambda: self.run(expression), what or expression)

    def idle(self):
        self.true(IDLE, "the page is complete")

    def press(self, key, shift=False):
        code, text = KEYS[key]
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                text=text if kind == "keyDown" else "",
                modifiers=8 if shift else 0,
            )

    def type(self, text):
        self.call("Input.insertText", text=text)

    def focused(self):
        return self.run("document.activeElement.textContent")

    def back_to(self, text):
        """Goes back, from the heading of a view to the views, until what has that text is focused."""
        for _ in range(20):
            self.press("Tab", shift=True)
            if self.focused().strip() == text:
                return
        raise AssertionError("the keyboard does not reach " + text)

    def view(self, name, heading):
        if self.run("document.activeElement === document.body"):
            self.press("Tab")
            assert self.focused() == "Skip to the content"
            self.press("Enter")
            assert self.run("document.activeElement.tagName") == "H2"
        self.back_to(name)
        self.press("Enter")
        self.true("document.querySelector('h2')?.textContent.startsWith(%s)" % json.dumps(heading))
        self.idle()

    def go(self, place):
        """Changes the address, and waits until what was shown before has gone."""
        self.run("document.querySelector('main > *')?.setAttribute('data-old', '')")
        self.run("location.hash = %s" % json.dumps(place))
        self.true("document.querySelector('[data-old]') === null", place)
        self.idle()

    def axe(self):
        """What axe-core finds in what is shown, in light and dark: [(rule, elements)]."""
        if not self.run("'axe' in window"):
            with open(AXE, encoding="utf-8") as file:
                self.run(file.read() + "; 0")
        # Of an open node of the tree, this rule takes the texts of the nodes in it for its label.
        rules = {"label-content-name-mismatch": {"enabled": False}}
        found = []
        for scheme in ("light", "dark"):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            self.call("Emulation.setEmulatedMedia", features=features)
            found += self.wait(
                "axe.run(document, %s).then((found) => found.violations)"
                % json.dumps({"rules": rules})
            )
        return [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in found]

    def nodes(self):
        """{what a screen reader says: its role}"""
        self.call("Accessibility.enable")
        found = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""), node)
            for node in found
            if not node["ignored"]
        ]


@pytest.fixture
def page(serve, dump):  # noqa: F811
    served = serve(dump)
    yield served


@pytest.fixture
def axe():
    """`make e2e` brings axe-core by npm, which is in no package of Debian."""
    if not os.path.exists(AXE):
        pytest.skip("no axe-core: make %s" % os.path.relpath(AXE, ROOT))


def size_text(size):
    """As the page has it: halves are rounded up."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024 or unit == "MiB":
            step = "1" if unit == "B" or size >= 100 else "0.1"
            return "%s %s" % (Decimal(size).quantize(Decimal(step), ROUND_HALF_UP), unit)
        size /= 1024


def test_keyboard(page, run_tracer, dump):  # noqa: F811
    with Page(page) as browser:
        # The token is no longer in the address, and the cookie not for scripts.
        assert browser.run("location.href") == page.base + "/"
        assert browser.run("document.cookie") == ""
        browser.view("Types", "What the heap consists of")
        shown = browser.run(ROWS)[0]
        rows = ask(run_tracer, "--retained", "--top", 100, dump)["statistics"]
        assert [int(cells[3].replace(",", "")) for cells in shown] == [r["count"] for r in rows]
        assert [cells[2] for cells in shown] == [size_text(row["size"]) for row in rows]
        # The tree: what holds most is the program's dictionary; down to the cache and its nodes.
        browser.view("Tree", "What would be freed")
        browser.press("Tab")
        assert "sys.modules['__main__'].__dict__ → dict" in browser.focused()
        opened = "document.activeElement.querySelector('[role=treeitem]')"
        browser.press("ArrowRight")
        browser.true(opened)
        browser.press("ArrowRight")
        assert "attribute cache → dict" in browser.focused(), browser.focused()
        browser.press("ArrowRight")
        browser.true(opened)
        browser.press("ArrowRight")
        label = browser.focused()
        assert "__main__.Node" in label and "own " in label and "{:,}".format(N) in label, label
        assert browser.run("document.activeElement.getAttribute('aria-level')") == "3"
        browser.press("ArrowLeft")
        browser.press("ArrowLeft")
        assert browser.run("document.activeElement.getAttribute('aria-expanded')") == "false"
        # Enter leads to the object; Back to the tree.
        browser.press("Enter")
        browser.true("location.hash.startsWith('#object?at=0x')")
        browser.true("document.querySelector('h2')?.textContent.startsWith('dict at 0x')")
        assert "cache" in browser.text("ol.path")
        browser.run("history.back()")
        browser.true("document.querySelector('[role=tree]') !== null")
        assert browser.errors == []
    page.end()


def test_query(page, run_tracer, dump):  # noqa: F811
    """Fields, operators and types are completed; the result is that of the command line."""
    with Page(page) as browser:
        browser.view("Query", "Objects for which")
        assert browser.run("document.activeElement.id") == "query"
        offered = (
            "[...document.querySelectorAll('[role=option]')].map((o) => o.firstChild.textContent)"
        )
        browser.true(offered + ".length > 5")
        browser.type("ty")
        assert browser.run(offered) == ["type"]
        browser.press("ArrowDown")
        browser.press("Enter")
        assert browser.run(offered) == ["=", "!=", "~", "!~"]
        browser.type("= Nod")
        browser.true(offered + ".join() === '__main__.Node'")  # when the server has said which
        browser.press("ArrowDown")
        assert browser.run("document.activeElement.getAttribute('aria-activedescendant')")
        browser.press("Enter")
        assert browser.run("document.activeElement.value") == "type = __main__.Node "
        assert browser.run(offered) == ["and", "or"]
        browser.press("Escape")
        assert browser.run("document.querySelector('[role=listbox]').hidden")
        browser.press("Enter")
        browser.true("document.querySelectorAll('main tbody tr').length === 100")
        answer = ask(run_tracer, "query", "type = __main__.Node", "--top", 100, dump)
        (shown,) = browser.run(ROWS)
        assert [int(cells[2], 16) for cells in shown] == [o["address"] for o in answer["objects"]]
        assert "{:,} objects".format(answer["total"]["count"]) in browser.text("main")
        # A mistake is told, and the line stays.
        browser.run("document.getElementById('query').select()")
        browser.type("type = ")
        browser.press("Escape")
        browser.press("Enter")
        browser.true("document.querySelector('[role=alert]') !== null")
        assert "expected a value" in browser.text("[role=alert]")
        assert browser.run("document.getElementById('query').value") == "type = "
        assert all("400" in error for error in browser.errors), browser.errors
    page.end()


def test_hostile(page):
    """Names are text, with escapes for what would turn the text around."""
    with Page(page) as browser:
        for place in ("#types", "#query?q=type+~+script", "#why?what=list", "#waste", "#cycles"):
            browser.go(place)
            assert browser.run("document.querySelectorAll('img, main script').length") == 0
            assert "hacked" not in browser.run("document.title")
        browser.go("#query?q=" + urllib.parse.quote('type ~ "</script"'))
        assert browser.run("document.querySelectorAll('main tbody tr').length") >= 10
        text = browser.text("main")
        assert "</script><script>document.title='hacked'</script>" in text
        assert "\\u202e" in text and "\u202e" not in text
        browser.run("document.querySelector('main tbody a').click()")
        browser.true("document.querySelector('dl') !== null")
        assert "</script><script>" in browser.text("h2")
        assert browser.errors == []
    page.end()


def test_reader(page):
    """Every control has a name; the tree tells levels and whether a node is open."""
    with Page(page) as browser:
        for place in (
            "#overview",
            "#types",
            "#tree",
            "#query?q=type+%3D+Node",
            "#object",
            "#cycles",
        ):
            browser.go(place)
            nodes = browser.nodes()
            unnamed = [
                (place, role)
                for role, name, _ in nodes
                if role in ("link", "button", "combobox", "textbox", "treeitem", "tree", "table")
                and not name.strip()
            ]
            assert not unnamed
            assert any(role == "heading" for role, _, _ in nodes)
            if place == "#tree":
                items = [node for role, _, node in nodes if role == "treeitem"]
                names = {p["name"] for node in items for p in node["properties"]}
                assert len(items) > 10 and {"level", "expanded"} <= names
    page.end()


@pytest.mark.parametrize("dark", (False, True))
def test_media(page, dark):
    """No view is wider than a narrow screen; both schemes have contrast; on paper there are no
    controls."""
    with Page(page, width=360, height=700, dark=dark) as browser:
        for place in (
            "#overview",
            "#types",
            "#tree",
            "#query?q=type+%3D+Node",
            "#waste",
            "#cycles",
        ):
            browser.go(place)
            wide = browser.run("document.documentElement.scrollWidth")
            assert wide <= 360, (place, wide)
        ground, text = (
            sum(map(int, browser.run("getComputedStyle(document.body).%s" % of)[4:-1].split(",")))
            for of in ("backgroundColor", "color")
        )
        assert (ground < 200 and text > 500) if dark else (ground > 600 and text < 200)
        browser.call(
            "Emulation.setEmulatedMedia",
            media="print",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        assert browser.run("getComputedStyle(document.body).color") == "rgb(27, 27, 31)"
        assert browser.run("getComputedStyle(document.querySelector('nav')).display") == "none"
        assert browser.errors == []
    page.end()


def places_axe(browser):
    """Whatever is shown, axe-core finds nothing."""
    found = {}  # {place: what axe-core finds there}
    for place in PLACES:
        browser.go(place)
        found[place] = browser.axe()
        if place == "#tree":
            browser.run("document.querySelector('[role=treeitem] > .label').click()")
            browser.true("document.querySelector('[role=group] [role=treeitem]') !== null")
            found["#tree, open"] = browser.axe()
        if place == "#query":
            browser.run("document.getElementById('query')?.focus()")
            found["#query, completion"] = browser.axe()
        if place == "#waste":
            browser.go(browser.run("document.querySelector('main td a').hash"))
            found["an object"] = browser.axe()
    wrong = ["%s: %s" % each for each in found.items() if each[1]]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("width", (360, pytest.param(1200, marks=pytest.mark.long)))
def test_axe(page, axe, width):
    with Page(page, width=width) as browser:
        places_axe(browser)
    page.end()
