# SPDX-License-Identifier: Apache-2.0
"""Programs that estimates from windows are likely to get wrong, under tracemalloc or (COUNTING)
counting themselves what their lines keep: tracemalloc has tables of its own, single large blocks.

usage: fools.py NAME [SECONDS]    works for SECONDS, prints "ready", and goes on

SIGUSR1: a child prints {line: [bytes, blocks]} of all blocks that are alive; the program forgets
them, and waits for a line on stdin. Blocks of TRACE_BYTES are left out: tracemalloc has one of its
own for each block that it knows, at the same line, and does not know it itself.
"""
import _tracemalloc
import json
import os
import random
import signal
import sys
import time
import tracemalloc

kept, recent, named, moments, made = [], [], {}, {}, {}
# sizeof(trace_t), which tracemalloc allocates by PyMem_RawMalloc()
TRACE_BYTES = 16
values = iter(range(10**6, 10**12))


def keep(value, line):
    """line: has made value. The list's items are charged to this one."""
    kept.append(value)
    known = made.setdefault(line, [0, 0])
    known[0] += sys.getsizeof(value)
    known[1] += 1


def counted():
    """What counting programs have kept since the last time; items are new if they have grown."""
    for began, line, batch in recent:
        if began > moments.get("cleared", 0):
            known = made.setdefault(line, [0, 0])
            known[0] += sum(map(sys.getsizeof, batch))
            known[1] += len(batch)
    found = {"%s:%d" % (__file__, line): tuple(known) for line, known in made.items()}
    items = sys.getsizeof(kept) - sys.getsizeof([])
    if items != moments.get("items", 0):
        found["%s:%d" % (__file__, keep.__code__.co_firstlineno + 2)] = (items, 1)
    return found


def live():
    if COUNTING:
        return json.dumps(counted()).encode() + b"\n"
    found = {}
    for _domain, size, traceback, *_total in _tracemalloc._get_traces():
        if size != TRACE_BYTES:
            key = "%s:%d" % traceback[0]
            known = found.get(key, (0, 0))
            found[key] = (known[0] + size, known[1] + 1)
    return json.dumps(found).encode() + b"\n"


def say(_number, _frame):
    """A child does it, so that the heap stays as it is."""
    child = os.fork()
    if not child:
        text = live()
        while text:
            text = text[os.write(1, text) :]
        os._exit(0)
    tracemalloc.clear_traces()
    made.clear()
    moments["cleared"] = time.monotonic()
    moments["items"] = sys.getsizeof(kept) - sys.getsizeof([])
    os.read(0, 100)
    os.waitpid(child, 0)
    moments["traced"] = time.monotonic()


def traced_for():
    """Seconds since the tracer has attached."""
    return time.monotonic() - moments.get("traced", time.monotonic())


def expire(now, life):
    while recent and recent[0][0] < now - life:
        del recent[0]


def line_here():
    return sys._getframe(1).f_lineno


def rest(seconds):
    time.sleep(seconds)


def steady():
    """Lines of three types, at steady rates, whose blocks go into a list that is large enough: the
    items of one that grows are a single block, which windows can well miss. It is not part of what
    the program allocates (main())."""
    named.setdefault("place", 0)
    for place in range(named["place"], named["place"] + 10):
        number, at = next(values), random.random()
        if at < 0.40:
            kept[place] = b"%099d" % number
        elif at < 0.60:
            kept[place] = b"%098d" % number
        elif at < 0.75:
            kept[place] = "%099d" % number
        elif at < 0.85:
            kept[place] = "%098d" % number
        elif at < 0.92:
            kept[place] = (at, number)
        elif at < 0.97:
            kept[place] = [b"%099d" % number, at]
        else:
            kept[place] = b"%097d" % number
    named["place"] += 10
    rest(0.005)


def churn():
    """A line whose blocks live 300 ms, and one that leaks blocks of the same type and size."""
    now = time.monotonic()
    expire(now, 0.3)
    batch = []
    for i in range(20):
        value, line = b"%099d" % next(values), line_here()  # churns
        batch.append(value)
        if i % 10 == 0:
            keep(b"%099d" % next(values), line_here())
    recent.append((now, line, batch))
    rest(0.005)


def same():
    """As churn, but all blocks have the same content."""
    now = time.monotonic()
    expire(now, 0.3)
    batch = []
    for i in range(20):
        value, line = bytes(100), line_here()  # churns
        batch.append(value)
        if i % 10 == 0:
            keep(bytes(100), line_here())
    recent.append((now, line, batch))
    rest(0.005)


def lifo():
    """Two lines are given the address that the other has freed."""
    if len(kept) < 4000:
        kept.extend(b"%099d" % next(values) for _ in range(4000))
    for _ in range(20):
        at = random.randrange(4000)
        kept[at] = None
        if random.random() < 0.3:
            kept[at] = b"%099d" % next(values)
        else:
            kept[at] = b"%099d" % next(values)
    rest(0.005)


def bursts():
    """300 ms of leaks once a minute, the first time after 10 s, besides a steady one."""
    for _ in range(4):
        keep(b"%099d" % next(values), line_here())
    if 10 <= traced_for() % 60 < 10.3:
        for _ in range(100):
            keep(b"%099d" % next(values), line_here())
    else:
        rest(0.005)


def in_step():
    """Work that begins with every second, of another line than the rest of it."""
    if time.monotonic() % 1 < 0.1:
        for _ in range(20):
            keep(b"%099d" % next(values), line_here())
    else:
        for _ in range(3):
            keep(b"%099d" % next(values), line_here())
    rest(0.005)


def start_up():
    """Everything in the first second of the trace, and a little before and later."""
    if "traced" in moments and traced_for() < 1 and len(named) < 50:
        named[len(named)] = None
        for _ in range(1000):
            keep(b"%099d" % next(values), line_here())
        rest(0.015)
    else:
        keep(b"%099d" % next(values), line_here())
        rest(0.005)


def make_lines(count):
    text = "".join(
        "def line%d(): kept.append(b'%%099d' %% next(values))\n" % i for i in range(count)
    )
    exec(compile(text, "lines", "exec"), globals())
    named["lines"] = [globals()["line%d" % i] for i in range(count)]


def lines():
    """10,000 lines of equal share."""
    if not named:
        make_lines(10000)
    for _ in range(10):
        random.choice(named["lines"])()
    rest(0.005)


def short():
    """A line whose blocks live 50 ms, and one that leaks the same."""
    now = time.monotonic()
    expire(now, 0.05)
    batch = []
    for _ in range(20):
        value, line = b"%099d" % next(values), line_here()  # churns
        batch.append(value)
    keep(b"%099d" % next(values), line_here())
    recent.append((now, line, batch))
    rest(0.005)


class Session:
    def __init__(self, user):
        self.user = user
        self.values = {"user": user, "cart": []}


def service():
    """Requests of three kinds. Each makes and drops hundreds of objects and keeps a few."""
    user = next(values)
    rows = [{"id": user + i, "name": "name %d" % (user + i)} for i in range(40)]
    text = json.dumps(rows)
    found = json.loads(text)
    kind = random.random()
    if kind < 0.5:
        kept.append(Session(user))
    elif kind < 0.8:
        named[str(user)] = found[0]["name"]
    else:
        kept.append((user, float(user), [str(user)]))
    rest(0.004)


def w1():
    """As tests/bench: five kept objects and eight short-lived ones a round."""
    i = next(values)
    kept.append([i * 1000003, str(i), {"k": i}, (i, i + 1), bytearray(600)])
    total = 0
    for j in range(8):
        total += len((i, j, str(j) * 3))
    rest(0.001)


def down(depth, i):
    return [str(i), i + 0.5, {i: depth}] if depth == 0 else down(depth - 1, i)


def w2():
    """Allocations 60 Python frames down."""
    for _ in range(3):
        kept.append(down(60, next(values)))
    rest(0.002)


def w3():
    """Ordinary work of the standard library."""
    import ast
    import colorsys
    import re
    import zlib

    if not named:
        named["text"] = open(colorsys.__file__, encoding="utf-8").read()
    text = named["text"] + "# %d" % next(values)
    words = re.findall(r"\w+", text)
    kept.append(json.loads(json.dumps({w: [n, w.upper()] for n, w in enumerate(words)})))
    kept.append(ast.parse(text))
    kept.append(zlib.compress(text.encode()))
    if len(kept) > 300:
        del kept[random.randrange(0, 300, 3) :][:3]
    rest(0.01)


COUNTING = sys.argv[1] in ("churn", "same", "short", "bursts", "in_step", "start_up")


def main():
    work = globals()[sys.argv[1]]
    if work is steady:
        kept.extend([None] * 2000000)
    if not COUNTING:
        tracemalloc.start(1)
    signal.signal(signal.SIGUSR1, say)
    random.seed(1)
    until = time.monotonic() + float(sys.argv[2] if len(sys.argv) > 2 else 0)
    while time.monotonic() < until:
        work()
    os.write(1, b"ready\n")
    while True:
        work()


main()
