# SPDX-License-Identifier: Apache-2.0
"""Measures `tracer serve` of a dump of ten million objects in a real Chromium: the first view, clicks,
and the memory of the page. Times are also ratios to a raw scan of the dump, since machines differ.
Asserts nothing, ends with status 0.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import bench_page
from bench_heap import HERE, OBJECTS, Target

sys.path.append(os.path.join(HERE, "..", "..", "tests", "oracle"))
from browser import Browser  # noqa: E402

BAR_FIRST, BAR_CLICK, BAR_PAGE = 3, 0.3, 500
IDLE = "document.getElementById('main')?.getAttribute('aria-busy') === 'false'"
# Opens the first node below the one that was opened last; false: there is none.
OPEN = """(() => {
	const last = document.querySelector('[data-last]');
	const item = (last ?? document).querySelector('[role=group] > [aria-expanded=false], [role=tree] > [aria-expanded=false]');
	last?.removeAttribute('data-last');
	item?.setAttribute('data-last', '');
	item?.firstChild.click();
	return !!item;
})()"""


def seconds(browser, act, done):
    began = time.monotonic()
    browser.run(act)
    while not browser.run(done):
        time.sleep(0.002)
    return time.monotonic() - began


def view(browser, place):
    busy = "document.getElementById('main').setAttribute('aria-busy', true); location.hash = %s"
    return seconds(browser, busy % json.dumps(place), IDLE)


def page_bytes(browser):
    """Of the largest process that renders."""
    out = subprocess.check_output(["ps", "-eo", "rss,args"], text=True)
    return max(
        int(line.split()[0]) << 10
        for line in out.splitlines()
        if "--type=renderer" in line and browser.folder in line
    )


def clicks(browser):
    """{what: seconds of each}"""
    seen = {"types": [view(browser, "#types")], "levels of the tree": [view(browser, "#tree")]}
    for _ in range(6):
        began = time.monotonic()
        if not browser.run(OPEN):
            break
        while not browser.run("document.querySelector('[data-last] > ul').children.length"):
            time.sleep(0.002)
        seen["levels of the tree"].append(time.monotonic() - began)
    seen["queries"] = [
        view(browser, "#query?q=" + query)
        for query in ("retained+%3E+0", "type+%3D+User", "path+~+items+and+size+%3E+40")
    ]
    rows = browser.run("[...document.querySelectorAll('main td a')].map((a) => a.hash)")
    seen["objects"] = [view(browser, place) for place in rows[:: max(1, len(rows) // 8)]]
    seen["holders of a type"] = [
        view(browser, "#holders?what=" + name) for name in ("str", "int", "User", "tuple", "dict")
    ]
    return seen


def scan(dump):
    """Seconds that it takes to look at each byte of the file once; it is in the page cache."""
    began = time.monotonic()
    with open(dump, "rb") as file:
        while piece := file.read(1 << 20):
            piece.count(b"\1")
    return time.monotonic() - began


def measure(tracer, dump):
    began = time.monotonic()
    process = subprocess.Popen([tracer, "serve", dump], stdout=subprocess.PIPE, text=True)
    try:
        link = process.stdout.readline().strip()
        read = time.monotonic() - began
        with Browser() as browser:
            began = time.monotonic()
            browser.open(link)
            while not browser.run(IDLE):
                time.sleep(0.002)
            first = time.monotonic() - began
            return read, first, clicks(browser), page_bytes(browser)
    finally:
        process.terminate()
        process.wait()


def bench(tracer, python):
    """The table."""
    with tempfile.TemporaryDirectory() as folder:
        target, dump = Target(python), os.path.join(folder, "heap.dump")
        try:
            command = [tracer, "heap", "-p", str(target.pid), "--by", "size", "-o", dump]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        finally:
            target.end()
        raw = statistics.median(scan(dump) for _ in range(5))
        read, first, seen, size = measure(tracer, dump)
    rows = [
        ("figure", "measured", "of a raw scan", "bar"),
        ("a raw scan of the dump", "%.2f s" % raw, "1", ""),
        ("reading the dump", "%.1f s" % read, "%.1f" % (read / raw), ""),
        ("the first view after that", "%.2f s" % first, "%.2f" % (first / raw), "%d s" % BAR_FIRST),
    ]
    for what, values in seen.items():
        middle, most = statistics.median(values), max(values)
        ratio = "%.2f, at most %.2f" % (middle / raw, most / raw)
        figure = "%.2f s, at most %.2f s" % (middle, most)
        rows.append((what, figure, ratio, "%.1f s" % BAR_CLICK))
    rows.append(("memory of the page", "%d MiB" % (size >> 20), "", "%d MiB" % BAR_PAGE))
    text = bench_page.table(rows, "%d million objects" % (OBJECTS // 1000000))
    print(text, flush=True)
    return text
