#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of the documents anew: a small program, its heap, and tracer serve in a real
Chromium. Root.

usage: tools/screenshots.py    (TRACER: the program; default build/tracer)
"""
import base64
import collections
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.append(os.path.join(ROOT, "tests", "oracle"))
from browser import Browser  # noqa: E402

OUT = os.path.join(ROOT, "docs", "images")
MOST_BYTES, COLOURS = 60 << 10, 256
IDLE = "document.getElementById('main')?.getAttribute('aria-busy') === 'false'"
# shop.py, which is imported: its names are those of a service.
SHOP = """
class Product:
    def __init__(self, number):
        self.number, self.title = number, "product %d" % number


class Session:
    def __init__(self, user, products):
        self.user, self.cart = user, list(products)
        self.history = ["/product/%d" % product.number for product in products] * 4


CATALOGUE = {number: Product(number) for number in range(3000)}
SESSIONS = {
    "user:%d" % user: Session(user, [CATALOGUE[user * k % 3000] for k in range(1, 9)])
    for user in range(8000)
}
BANNERS = ["A banner that every page has, number %d" % (n % 40) for n in range(4000)]
"""
# Its traffic: sessions that stay, a cache that is emptied, garbage that waits for its collection.
TRAFFIC = """
import gc
import os
import time

sessions, cache = [], {}


def log_in(user):
    sessions.append({"user": user, "cart": [b"%d" % user * 40] * 3, "seen": "page %d" % user})


def render(page):
    cache[page] = ("<p>%d</p>" % page) * 120


def recommend(page):
    products = [{"number": number} for number in range(40)]
    products[0]["others"] = products


def serve(first):
    for number in range(first, first + 120):
        log_in(number)
        render(number)
        recommend(number)


gc.disable()
print("ready", flush=True)
input()
for step in range(90):
    serve(120 * step)
    if step % 30 == 29:
        cache.clear()
    if step % 20 == 19:
        gc.collect()
    if step == 60 and not os.fork():
        serve(0)
        os._exit(0)
    time.sleep(0.2)
"""
MAIN = "import shop, sys; print('ready', flush=True); sys.stdin.read()"
TREE = ["['shop'] → module", "__dict__ → dict", "SESSIONS", "shop.Session"]
OPEN = """(async () => {
	for (const text of %s) {
		const label = [...document.querySelectorAll('[role=treeitem] > .label')]
			.find((one) => one.textContent.includes(text));
		label.click();
		while (!label.parentElement.querySelector('[role=treeitem]'))
			await new Promise((done) => setTimeout(done, 10));
	}
})()"""


def pixels(png):
    """(width, height, rows of pixels of three bytes) of a PNG as Chromium writes it."""
    at, data = 8, b""
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
            assert depth == 8 and colour in (2, 6)
        data += body if kind == b"IDAT" else b""
        at += 12 + size
    step = 3 if colour == 2 else 4
    raw, line, rows = zlib.decompress(data), step * width, []
    above = bytearray(line)
    for row in range(height):
        kind = raw[row * (line + 1)]
        here = bytearray(raw[row * (line + 1) + 1 : (row + 1) * (line + 1)])
        for i in range(line):
            left = here[i - step] if i >= step else 0
            corner = above[i - step] if i >= step else 0
            if kind == 4:
                near = left + above[i] - corner
                one, two, three = abs(near - left), abs(near - above[i]), abs(near - corner)
                guess = (
                    left if one <= two and one <= three else above[i] if two <= three else corner
                )
            else:
                guess = (0, left, above[i], (left + above[i]) // 2)[kind]
            here[i] = (here[i] + guess) & 255
        rows.append([bytes(here[i : i + 3]) for i in range(0, line, step)])
        above = here
    return width, height, rows


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def smaller(png):
    """The same picture with a palette: of colours that are seldom, the nearest of the others."""
    width, height, rows = pixels(png)
    counts = collections.Counter(pixel for row in rows for pixel in row)
    palette = [colour for colour, _ in counts.most_common(COLOURS)]
    number = {colour: index for index, colour in enumerate(palette)}

    def nearest(colour):
        if colour not in number:
            number[colour] = min(
                range(len(palette)),
                key=lambda n: sum((a - b) ** 2 for a, b in zip(palette[n], colour)),
            )
        return number[colour]

    lines = b"".join(b"\0" + bytes(map(nearest, row)) for row in rows)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            chunk(b"PLTE", b"".join(palette)),
            chunk(b"IDAT", zlib.compress(lines, 9)),
            chunk(b"IEND", b""),
        )
    )


def wait(browser, expression):
    end = time.monotonic() + 60
    while not browser.run(expression):
        assert time.monotonic() < end, expression
        time.sleep(0.02)


def take(browser, name, place, act=None):
    browser.run("document.getElementById('main').setAttribute('aria-busy', true)")
    browser.run("location.hash = %r" % place)
    wait(browser, IDLE)
    if act:
        browser.wait(act)
    browser.run("document.activeElement.blur()")
    png = base64.b64decode(browser.call("Page.captureScreenshot", format="png")["data"])
    png = smaller(png)
    assert len(png) <= MOST_BYTES, "%s: %d bytes" % (name, len(png))
    with open(os.path.join(OUT, "serve-%s.png" % name), "wb") as file:
        file.write(png)
    print("docs/images/serve-%s.png: %d bytes" % (name, len(png)))


def heap_take(tracer, folder):
    """The program's dump."""
    path = os.path.join(folder, "shop.dump")
    with open(os.path.join(folder, "shop.py"), "w") as file:
        file.write(SHOP)
    program = subprocess.Popen(
        ["/usr/bin/python3", "-c", MAIN], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    program.stdout.readline()
    command = [tracer, "heap", "-p", str(program.pid), "--by", "size", "-o", path]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    program.communicate(b"")
    return path


def recording_take(tracer, folder):
    """Its traffic's recording."""
    with open(os.path.join(folder, "traffic.py"), "w") as file:
        file.write(TRAFFIC)
    program = subprocess.Popen(
        ["/usr/bin/python3", "traffic.py"],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    program.stdout.readline()
    command = [tracer, "-p", str(program.pid), "-m", "exact", "--ages"]
    session = subprocess.Popen(
        [*command, "--record", os.path.join(folder, "shop.rec"), "--every", "0.5"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "attached" in session.stderr.readline()
    program.communicate(b"\n")
    assert session.wait() == 0


def pictures(tracer, folder, files, places):
    """Those of what a server shows of the files: a name, where it is, and what is done there."""
    server = subprocess.Popen(
        [tracer, "serve", *files], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    link = re.match(r"http\S+", server.stdout.readline()).group()
    with Browser(width=900, height=560) as browser:
        browser.open(link)
        wait(browser, IDLE)
        for name, place, *act in places:
            take(
                browser,
                name,
                place or browser.run("document.querySelector('main td a').hash"),
                *act
            )
        assert not browser.errors, browser.errors
    server.terminate()
    server.wait()


def main():
    tracer = os.environ.get("TRACER") or os.path.join(ROOT, "build", "tracer")
    os.makedirs(OUT, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="shop-") as folder:
        heap_take(tracer, folder)
        recording_take(tracer, folder)
        pictures(
            tracer,
            folder,
            ["shop.dump"],
            (
                ("overview", "#overview"),
                ("tree", "#tree", OPEN % TREE),
                ("query", "#query?q=type+%3D+shop.Session+and+retained+%3E+1K"),
                ("object", None),
            ),
        )
        pictures(tracer, folder, ["shop.rec"], (("time", "#time?first=12&last=30"),))
        pictures(tracer, folder, ["shop.rec@6", "shop.rec@end"], (("compare", "#compare"),))


if __name__ == "__main__":
    main()
