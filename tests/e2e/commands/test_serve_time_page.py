# SPDX-License-Identifier: Apache-2.0
"""A recording in the page of tracer serve, in a real browser: its range by the keyboard and by the
mouse, with the figures of tracer diff; the same in an exported file."""
import os
import shutil

import pytest

from harness import marked_line, program
from test_serve import serve  # noqa: F401
from test_serve_file import MOST, FilePage
from test_serve_page import KEYS, ROWS, Page, axe, size_text  # noqa: F401
from test_serve_time import end, get, line_sums, recorded, time_range  # noqa: F401

pytestmark = pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium")

KEYS.update({"Home": (36, ""), "End": (35, ""), "PageUp": (33, ""), "PageDown": (34, "")})
SLIDERS = "[...document.querySelectorAll('[role=slider]')]"
READY = "document.querySelector('main [aria-busy=false] #canvas') !== null"


class TimePage(Page):
    def idle(self):
        super().idle()
        self.true(READY, "the range is shown")

    def ends(self):
        return self.run(SLIDERS + ".map((one) => Number(one.getAttribute('aria-valuenow')))")

    def facts(self):
        """{what: figure} of the range that is shown."""
        self.idle()
        return self.run(
            "Object.fromEntries([...document.querySelectorAll('main dt')].map((one) => "
            "[one.textContent, one.nextSibling.textContent]))"
        )

    def handle(self, number):
        """Where it is: x, y and width of its chart, of the window."""
        return self.run(
            "(() => { const h = %s[%d]; h.scrollIntoView({ block: 'center' }); "
            "const b = h.getBoundingClientRect(), c = h.parentNode.getBoundingClientRect(); "
            "return [b.x + b.width / 2, b.y + b.height / 2, c.x, c.width]; })()" % (SLIDERS, number)
        )

    def drag(self, begin, to):
        def mouse(kind, x, y):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=x,
                y=y,
                button="left",
                buttons=1,
                clickCount=1,
            )

        mouse("mouseMoved", *begin)
        mouse("mousePressed", *begin)
        mouse("mouseMoved", (begin[0] + to[0]) / 2, to[1])
        mouse("mouseMoved", *to)
        mouse("mouseReleased", *to)


def check(browser, served, series):
    """What the page shows of its range is what the server answers, and so tracer diff."""
    first, last = browser.ends()
    answer = time_range(served, first=first, last=last)
    shown = browser.facts()
    least = "at least " if answer["alive"]["least"] else ""
    text = "{}{} in {:,} block{}".format
    for name, key in (("Allocated, alive at its end", "alive"), ("Freed", "freed")):
        part = answer[key]
        plural = "" if part["count"] == 1 else "s"
        begin = least if key == "alive" else ""
        assert shown[name] == text(begin, size_text(part["size"]), part["count"], plural)
    assert shown["Highest"].startswith(size_text(answer["peak"]["size"]) + " at ")
    assert shown["Total"].startswith(
        "%s, then %s" % (size_text(answer["from"]["size"]), size_text(answer["to"]["size"]))
    )
    rows = {cells[5]: cells for cells in browser.run(ROWS)[0]}
    for mark in "GC":
        key = (program("recorded.py"), marked_line("recorded.py", mark))
        cells = rows.get("%s:%d" % key, ["0 B"] * 5)
        for at, part in ((0, "alive"), (2, "freed"), (4, "peak")):
            assert cells[at] == size_text(line_sums(answer, part).get(key, 0)), (mark, part)
    return answer


def test_range(serve, recorded):  # noqa: F811
    path = recorded("-m", "exact", "--ages")
    served = serve(path)
    series = get(served, "/api/time/series")
    last = series["snapshots"] - 1
    with TimePage(served) as browser:
        assert browser.text("h2") == path + " over time"
        assert browser.ends() == [0, last]
        check(browser, served, series)
        # By the keyboard.
        for _ in range(10):
            browser.press("Tab")
            if browser.run("document.activeElement.getAttribute('role')") == "slider":
                break
        label = "document.activeElement.getAttribute('aria-label')"
        assert browser.run(label) == "Begin of the range"
        browser.press("ArrowRight")
        browser.press("ArrowRight")
        browser.press("ArrowLeft")
        browser.press("ArrowUp")
        assert browser.ends() == [2, last]
        said = browser.run("document.activeElement.getAttribute('aria-valuetext')")
        assert said.startswith("%.1f s after the beginning, 20" % series["times"][2]), said
        assert said.endswith("total " + size_text(series["total"]["size"][2]))
        check(browser, served, series)
        browser.press("Tab")
        assert browser.run(label) == "End of the range"
        browser.press("PageDown")
        assert browser.ends() == [2, last - max(1, round(last / 10))]
        browser.press("Home")
        assert browser.ends() == [2, 2]  # it does not pass the other
        browser.press("ArrowRight")
        check(browser, served, series)
        browser.press("End")
        assert browser.ends() == [2, last]
        browser.press("Tab", shift=True)
        browser.press("Home")
        assert browser.ends() == [0, last]
        # By the mouse: a handle, then the place in a chart beside which one is.
        begin = browser.handle(0)
        times = series["times"]
        middle = [(one - times[0]) / (times[-1] - times[0]) for one in times]
        browser.drag(begin[:2], (begin[2] + begin[3] * middle[last // 3], begin[1]))
        assert browser.ends() == [last // 3, last]
        begin = browser.handle(0)
        at = (begin[2] + begin[3] * middle[last - 2], begin[1])
        browser.drag(at, at)
        assert browser.ends() == [last // 3, last - 2]
        answer = check(browser, served, series)
        # The address has the range, and leads to it again.
        place = browser.run("location.hash")
        assert place == "#time?first=%d&last=%d" % (last // 3, last - 2)
        browser.go("#time")
        assert browser.ends() == [0, last]
        browser.go(place)
        assert browser.ends() == [last // 3, last - 2]
        # The flame graph's root is the sum that is shown.
        for part in ("freed", "peak", "alive"):
            browser.choose("part", part)
            assert browser.text("#detail") == "all: %s (100.0 %%)" % size_text(answer[part]["size"])
        assert browser.errors == []
    end(served)


def test_events(serve, recorded):  # noqa: F811
    """The fork, the child's end and collections; names are text."""
    served = serve(recorded("-m", "exact"))
    with TimePage(served) as browser:
        text = browser.run("document.getElementById('events').textContent")
        assert "Fork, python3 (PID " in text and "ended with status 3" in text
        assert "Collection, python3 (PID " in text and "full garbage collection" in text
        assert "Not seen until the end of the range" in browser.text("main")
        assert "older than the trace" in browser.text("main")
        assert browser.run("document.querySelectorAll('#charts line.mark').length") >= 3
        assert browser.run("document.querySelectorAll('main img, main script').length") == 0
        assert "hacked" not in browser.run("document.title")
        text = browser.text("main")
        assert "</script><script>document.title='hacked'</script>" in text
        assert "\\u202e" in text and "\u202e" not in text
        nodes = browser.nodes()
        sliders = [(name, node) for role, name, node in nodes if role == "slider"]
        assert [name for name, _ in sliders] == ["Begin of the range", "End of the range"]
        for role, name, _ in nodes:
            assert role not in ("button", "combobox", "img", "image", "slider", "table") or name
        assert browser.errors == []
    end(served)


@pytest.mark.parametrize("dark", (False, True))
def test_media(serve, recorded, dark):  # noqa: F811
    """Beside another source, on a narrow screen, in both schemes, on paper; one snapshot alone."""
    path = recorded("-m", "exact", steps=2)
    one = path.replace(".rec", ".one.rec")
    with open(path, "rb") as file:
        data = file.read()
    with open(one, "wb") as file:
        file.write(data[: 32 + 48 + int.from_bytes(data[64:68], "little")])
    served = serve(one, path)
    with TimePage(served, width=360, height=700, dark=dark) as browser:
        assert browser.ends() == [0, 0]
        assert "With one snapshot there is nothing to compare." in browser.text("main")
        browser.go("#time?source=1&first=1")
        assert browser.run("document.getElementById('source').value") == "1"
        assert browser.text("h2") == path + " over time" and browser.ends()[0] == 1
        assert browser.run("document.documentElement.scrollWidth") <= 360
        ground, text = (
            sum(map(int, browser.run("getComputedStyle(document.body).%s" % of)[4:-1].split(",")))
            for of in ("backgroundColor", "color")
        )
        assert (ground < 200 and text > 500) if dark else (ground > 600 and text < 200)
        browser.call("Emulation.setEmulatedMedia", media="print")
        assert browser.run("getComputedStyle(document.querySelector('nav')).display") == "none"
        assert browser.run("document.querySelectorAll('#charts svg').length") >= 3
        assert browser.errors == []
    end(served)


class TimeFilePage(TimePage, FilePage):
    """An exported page of a recording."""


def test_exported(serve, recorded, run_tracer, tmp_path):  # noqa: F811
    """One file, which asks nobody: its handles rest where it has ranges, with the server's figures."""
    path, out = recorded("-m", "exact", "--ages", steps=17), str(tmp_path / "out.html")
    done = run_tracer("export", path, "--format", "html", "-o", out)
    served = serve(path)
    series = get(served, "/api/time/series")
    last = series["snapshots"] - 1
    assert done.returncode == 0 and last > 32, done.stderr
    assert "the ranges between 32 of %d snapshots" % (last + 1) in done.stderr
    assert os.path.getsize(out) < MOST and os.stat(out).st_mode & 0o777 == 0o600
    with TimeFilePage(out) as browser:
        assert browser.text("h1") == "tracer: " + path
        assert "This file has the ranges between 32 of them" in browser.text("main")
        assert browser.ends() == [0, last]
        answer = check(browser, served, series)
        for part in ("freed", "peak", "alive"):
            browser.choose("part", part)
            assert browser.text("#detail") == "all: %s (100.0 %%)" % size_text(answer[part]["size"])
        stops = {0}
        browser.run(SLIDERS + "[0].focus()")
        while browser.ends()[0] < last:
            browser.press("ArrowRight")
            stops.add(browser.ends()[0])
        assert len(stops) == 32
        check(browser, served, series)
        begin = browser.handle(0)
        browser.drag(begin[:2], (begin[2] + begin[3] / 3, begin[1]))
        assert browser.ends()[0] in stops - {0, last}
        check(browser, served, series)
        assert browser.run("document.querySelectorAll('main a').length") == 0
        assert "hacked" not in browser.run("document.title")
        browser.quiet()
    # A moment of it, or a part, is a snapshot's page.
    for at, words in (("@end", []), ("", ["--include", "*recorded.py"]), ("", ["--full-names"])):
        done = run_tracer("export", path + at, *words, "--format", "html", "-o", out)
        assert done.returncode == 0, done.stderr
        with open(out) as file:
            text = file.read()
        assert 'id="kept"' not in text and "recorded.py" in text
    end(served)


def test_exported_narrow(recorded, run_tracer, axe, tmp_path):  # noqa: F811
    """One snapshot alone, and a recording that is cut off; on a narrow screen, for a screen reader."""
    path, out = recorded("-m", "census", steps=1), str(tmp_path / "out.html")
    with open(path, "rb") as file:
        data = file.read()
    first = 32 + 48 + int.from_bytes(data[64:68], "little")
    for size, said in ((first, "nothing to compare"), (first + 60, "cut off")):
        with open(path, "wb") as file:
            file.write(data[:size])
        done = run_tracer("export", path, "--format", "html", "-o", out)
        assert done.returncode == 0, done.stderr
        # Each page replaces the other: both are known as our own.
        for words in (["timeline"], ["export"]):
            done = run_tracer(*words, path, "--format", "html", "-o", out)
            assert done.returncode == 0, done.stderr
        with TimeFilePage(out, width=360) as browser:
            assert browser.ends() == [0, 0] and said in browser.text("main")
            assert browser.run("document.documentElement.scrollWidth") <= 360
            assert browser.axe() == []
            browser.quiet()
