# SPDX-License-Identifier: Apache-2.0
"""Values of a context variable and of arguments with which blocks are made on one line. usage:
labels.py [late|forked]

Prints "ready", waits for a line, works, prints {"context": {value: [bytes, blocks]}, "local": …,
"attribute": …} of line L ("": none), waits for stdin's end. late: the variable is made only after
that line. forked: a child prints "forked", waits for another line and does the work.
"""
import asyncio
import concurrent.futures
import contextvars
import gc
import json
import os
import sys
import threading

gc.disable()
MANY = 10000
MISSING = object()
HOSTILE = '\x1b[2J"\n\u202e<script>'
kept = []
counts = {"context": {}, "local": {}, "cell": {}, "attribute": {}}


class Request:
    def __init__(self, path):
        self.method = "GET"
        self.path = path


def variable():
    return contextvars.ContextVar("shop.request")


if sys.argv[1:] != ["late"]:
    request = variable()


def count(kind, value, blocks):
    size = sum(map(sys.getsizeof, blocks))
    entry = counts[kind].setdefault(value, [0, 0])
    entry[0] += size
    entry[1] += len(blocks)


def text_of(value):
    return "" if value is MISSING else value if isinstance(value, str) else repr(value)


def fill(number, local="", cell=""):
    blocks = [None] * number
    for i in range(number):
        blocks[i] = bytes(300)  # line L: one block each
    now = request.get(MISSING)
    kept.append(blocks)
    count(
        "context", "(a type that is not read)" if isinstance(now, Request) else text_of(now), blocks
    )
    count("attribute", now.path if isinstance(now, Request) else "", blocks)
    count("local", local, blocks)
    count("cell", cell, blocks)


def handle(path, number):
    """Nested calls: the nearest one counts."""
    fill(number, path)
    if number > 2:
        handle(path + "/inner", number // 2)
        fill(1, path)


def handle_cell(path, number):
    """The argument is in a cell, since another function refers to it."""
    kept.append(lambda: path)
    fill(number, cell=path)


def with_value(value, work, *args):
    def run():
        request.set(value)
        work(*args)

    contextvars.copy_context().run(run)


async def task(value, number):
    request.set(value)
    for _ in range(number):
        fill(2)
        await asyncio.sleep(0)


async def tasks():
    await asyncio.gather(*(task("task %d" % i, 3 + i) for i in range(5)))


def generator(number):
    for _ in range(number):
        fill(1)
        yield


def generated():
    """A generator runs in the context of whoever asks it for the next value."""
    steps = generator(6)
    for value in ("a", "b", "a", "b", "c", "a"):
        with_value(value, next, steps)


def nested():
    request.set("outer")
    fill(3)
    with_value("inner", fill, 4)
    fill(3)
    token = request.set(None)
    fill(1)
    request.reset(token)
    fill(2)


def executed():
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda i: with_value("job %d" % (i % 4), fill, 2), range(20)))


def threads():
    """In turns: values change while other threads have others."""
    barrier = threading.Barrier(3)

    def turns(name):
        for i in range(5):
            barrier.wait()
            request.set("%s %d" % (name, i))
            fill(4)

    started = [threading.Thread(target=turns, args=("thread %d" % i,)) for i in range(3)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


def work():
    fill(2)
    for value in ("text", "ünï", "名" * 100, HOSTILE, 7, -3, 0, 10**15, True, b"raw\x00", ""):
        with_value(value, fill, 2)
    for i in range(3):
        with_value(Request("/path/%d" % i), fill, 3)
    others = [contextvars.ContextVar("other %d" % i) for i in range(300)]

    def crowded():
        for i, other in enumerate(others):
            other.set(i)
        with_value("crowded", fill, 5)

    contextvars.copy_context().run(crowded)
    contextvars.copy_context().run(nested)
    generated()
    asyncio.run(tasks())
    executed()
    threads()
    handle("/export", 9)
    handle("/home", 2)
    handle_cell("/cell", 2)
    for i in range(MANY):
        with_value("label %d" % i, fill, 1)


print("ready", flush=True)
sys.stdin.readline()
if sys.argv[1:] == ["forked"] and os.fork():
    os.wait()
    sys.exit()
if sys.argv[1:] == ["forked"]:
    print("forked", flush=True)
    sys.stdin.readline()
if sys.argv[1:] == ["late"]:
    request = variable()
    kept.append(Request("/first"))
    print("made", flush=True)
    sys.stdin.readline()
work()
print(json.dumps(counts), flush=True)
sys.stdin.read()
