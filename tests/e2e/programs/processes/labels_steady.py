# SPDX-License-Identifier: Apache-2.0
"""Works steadily for requests of several paths, in threads. All keep blocks of one type and size,
made on one line, some more than others; and make ten times as many that they drop, most for paths
that keep little. usage: labels_steady.py context|local|task|thread

Prints "ready"; after a line on stdin it works until the next one comes, then prints
{path, or number of its thread: [bytes, blocks]} of what is kept of line L.
"""
import asyncio
import contextvars
import json
import os
import sys
import threading

SIZE = 100
KEEPS = {"/export": 8, "/reports": 4, "/home": 2, "/cart": 1}  # of a request
by = sys.argv[1]
path_of = contextvars.ContextVar("shop.path")
kept = {name: [] for name in KEEPS}
stopped = threading.Event()


def make():
    return bytes(SIZE)  # line L


def handle(path):
    for _ in range(10 * (9 - KEEPS[path])):
        make()
    for _ in range(KEEPS[path]):
        kept[path].append(make())


def serve(path):
    path_of.set(path)
    handle(path)


def work(path):
    """In a thread of its own, or of all paths."""
    while not stopped.is_set():
        for name in KEEPS if path is None else [path]:
            contextvars.copy_context().run(serve, name)
        stopped.wait(0.002)


async def request(path):
    while not stopped.is_set():
        handle(path)
        await asyncio.sleep(0.002)


async def requests():
    await asyncio.gather(*(asyncio.create_task(request(path), name=path) for path in KEEPS))


def begin():
    if by == "task":
        return [threading.Thread(target=asyncio.run, args=(requests(),))]
    if by == "thread":
        return [threading.Thread(target=work, args=(path,), name=path) for path in KEEPS]
    return [threading.Thread(target=work, args=(None,)) for _ in range(2)]


print("ready", flush=True)
sys.stdin.readline()
threads = begin()
for thread in threads:
    thread.start()
sys.stdin.readline()
stopped.set()
for thread in threads:
    thread.join()
if by == "thread":
    kept = {thread.native_id: kept[thread.name] for thread in threads}
size = sys.getsizeof(bytes(SIZE))
os.write(1, json.dumps({key: [size * len(all), len(all)] for key, all in kept.items()}).encode())
os.write(1, b"\n")
sys.stdin.read()
