# SPDX-License-Identifier: Apache-2.0
"""What by_line.py runs: each function keeps what it returns. Its name is the work's."""
import collections
import functools
import importlib
import io
import itertools
import json
import os
import re
import sys
import threading

ABSENT = None
try:
    import asyncio
except ModuleNotFoundError as error:  # a build without sockets
    ABSENT = error

N = 2000


class Plain:
    def __init__(self, i):
        self.number = i + 100000
        self.text = str(i)


class Slots:
    __slots__ = ("x", "y")

    def __init__(self, i):
        self.x = float(i)
        self.y = (i, -i - 1000)


def generator(i):
    x = i * 1.5
    yield x
    yield [x]


def started(i):
    running = generator(i)
    next(running)
    return running


def closure(i):
    def inner(y):
        return i + y

    return inner


def deep(depth, i):
    if depth:
        return deep(depth - 1, i)
    return [i + 3000000, {i: i}, "deep%d" % i]


def caught(i):
    try:
        raise ValueError("e%d" % i)
    except ValueError as error:
        return error


async def coroutine(i):
    return [i]


def grown(count):
    items = []
    for i in range(count):
        items.append(i)
    return items


def churn(count):
    for i in range(count):
        a = [i, i + 1.5, (i, "x"), {"k": i}]
        b = tuple(a)
        c = {1, 2, i}
        d = "%d-%d" % (i, i)
        del a, b, c, d


MAKERS = (
    lambda i: i + 1000000,
    lambda i: 10 ** (20 + i % 40) + i,
    lambda i: i * 1.25,
    lambda i: i / 3,
    lambda i: complex(i, 1),
    lambda i: "s%d" % i,
    lambda i: "%d:%d:é" % (i, i),
    lambda i: "x" * (500 + i % 200),
    lambda i: b"%d" % i,
    lambda i: bytearray(i % 1200),
    lambda i: (i,),
    lambda i: (i, i + 300),
    lambda i: tuple(range(i % 30)),
    lambda i: [i, i, i],
    lambda i: grown(i % 12),
    lambda i: {"a": i, "b": i},
    lambda i: dict(zip(range(i % 40), range(40))),
    lambda i: {i, i + 1},
    lambda i: set(range(i % 50)),
    lambda i: frozenset((i,)),
    Plain,
    Slots,
    started,
    closure,
    lambda i: lambda: i,
    lambda i: MAKERS.__contains__,
    lambda i: [].append,
    lambda i: deep(20, i),
    caught,
    coroutine,
    lambda i: iter([i]),
    lambda i: itertools.chain([i], (i,)),
    lambda i: functools.partial(int, i),
    lambda i: range(i, i + 5),
    lambda i: slice(i, i + 700, None),
    lambda i: io.BytesIO(b"12"),
    lambda i: memoryview(b"12"),
    lambda i: collections.OrderedDict(a=i),
    lambda i: collections.deque([i]),
)


def par():
    """A few thousand of every kind."""
    kept = []
    for make in MAKERS:
        kept.append([make(i) for i in range(N)])
        churn(1000)
    kept.append([type("T%d" % i, (), {"z": i}) for i in range(50)])
    kept.append([re.compile("a{%d}b|c" % i) for i in range(30)])
    kept.append(json.loads(json.dumps([{"k%d" % i: [i, str(i), i / 7]} for i in range(N)])))
    kept.append(("word " * N).split())
    kept.append(sorted(kept[3], reverse=True))
    kept.append([compile("x = %d\ndef f(a): return a + %d" % (i + 10 ** 7, i), "<c>", "exec") for i in range(100)])
    kept.append([collections.Counter("abc%d" % i) for i in range(200)])
    thread = threading.Thread(target=lambda: kept.append([(i, str(i + 77)) for i in range(N)]))
    thread.start()
    thread.join()
    churn(1000)
    return kept


def handle(i):
    churn(20)
    a = (i, i + 1)
    b = {"id": i}
    c = [i]
    d = i * 2.5
    return (a, b, c, d)


def par_leak():
    """A server that keeps a little of each request: nearly all that it makes comes from free lists."""
    kept = []
    for i in range(1500):
        kept.append(handle(i))
        churn(20)
    return kept


def par_compile():
    """Code of the standard library: what a compiler makes too large is shrunk in place."""
    names = sorted(os.listdir(os.path.dirname(re.__file__) + "/.."))
    paths = [os.path.join(os.path.dirname(re.__file__), "..", name) for name in names]
    texts = [open(path, encoding="utf-8").read() for path in paths if path.endswith(".py")][:12]
    return [compile(text, "<c>", "exec") for text in texts]


def par_threads():
    """Eight threads that keep and drop, and drop what another has made."""
    kept = [[] for _ in range(9)]
    barrier = threading.Barrier(8)

    def work(number):
        own, next_one = kept[number], kept[(number + 1) % 8]
        barrier.wait()
        for i in range(800):
            own.append({"id": i + 1000, "x": [i * 2.5, (i, str(i))]})
            churn(1)
        barrier.wait()
        del next_one[::2]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return kept


def par_gil():
    """The GIL is switched on while the program runs."""
    assert not sys._is_gil_enabled()
    kept = [handle(i) for i in range(300)]
    importlib.import_module("gil_on")
    assert sys._is_gil_enabled()
    kept.append([handle(i) for i in range(300)])
    return kept


def par_big():
    """Large blocks: some are kept, twenty times as many come and go."""
    kept = [bytearray(900) for i in range(1000)]
    len([bytearray(700) for i in range(20000)])
    len([b"z" * (600 + i % 100) for i in range(5000)])
    return kept


def par_peak():
    """One request takes much, and all of it dies."""
    kept = [{"n": i} for i in range(1000)]
    len([(i, str(i)) for i in range(200000)])
    return kept


async def leaf(i):
    await asyncio.sleep(0)
    return {"i": i, "s": "a%d" % i}


async def nested(depth, i):
    return await (nested(depth - 1, i) if depth else leaf(i))


async def job(i, kept):
    kept.append(await nested(10, i))
    kept.append((i, [i]))


async def serve(kept):
    await asyncio.gather(*[job(i, kept) for i in range(1000)])

    async def echo(reader, writer):
        line = await reader.readline()
        kept.append(line)
        writer.write(line)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for i in range(100):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x" * 300 + b"%d\n" % i)
        kept.append(await reader.readline())
        writer.close()
        await writer.wait_closed()
    server.close()
    await server.wait_closed()


def par_async():
    """Tasks, coroutines in coroutines, and an event loop that reads and writes."""
    if ABSENT:
        raise ABSENT
    kept = []
    loop = asyncio.new_event_loop()
    loop.run_until_complete(serve(kept))
    loop.close()
    return kept
