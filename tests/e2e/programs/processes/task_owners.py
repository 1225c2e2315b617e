# SPDX-License-Identifier: Apache-2.0
"""asyncio tasks that allocate different amounts on one line. usage: task_owners.py [late|forked]

Prints "ready", waits for a line, works, prints {task: [bytes, blocks]} of line K ("": in no task),
waits for stdin's end. late: asyncio is loaded only after that line; a loop runs, "looped" is
printed, and another line waited for. Else a loop has run before. forked: a child prints "forked",
waits for another line and does the work.
"""
import _thread
import gc
import json
import os
import sys
import threading

if sys.argv[1:] != ["late"]:
    import asyncio

    asyncio.run(asyncio.sleep(0))

gc.disable()
LATER = 50
LONG = "名" * 100  # 200 bytes in a str
HOSTILE = '\x1b[2J"\n\u202e<script>'
kept = {}


def fill(name, count):
    blocks = [None] * count
    if name is not None:
        kept.setdefault(name, []).append(blocks)
    for i in range(count):
        blocks[i] = bytes(300)  # line K: one block each
    return blocks


async def work(name, count):
    for _ in range(count):
        fill(name, 3)
        await asyncio.sleep(0)


async def unnamed(count):
    """Its name is made of its number when it is first asked for, in the middle of its work."""
    blocks = []
    for i in range(count):
        blocks.append(fill(None, 2))
        await asyncio.sleep(0)
        if i == count // 2:
            name = asyncio.current_task().get_name()
    kept[name] = blocks


class Named:
    """A name that is a text only when it is asked for, by code that makes blocks."""

    def __str__(self):
        fill("second", 3)
        return "third"


async def renamed():
    fill("first", 5)
    asyncio.current_task().set_name("second")
    fill("second", 7)
    asyncio.current_task().set_name(Named())
    fill("third", 4)


def new_name(task, number):
    """Gives the task a name that is an object of its own, often where the old one was. Returns its
    address."""
    digits = "%03d" % number
    task.set_name("between")
    name = "again-" + digits
    task.set_name(name)
    return id(name)


def same_addresses(task):
    """Names at one address: the task's own thread makes them, and then another one, while this one
    waits and makes no block."""
    addresses = set()
    for i in range(LATER):
        addresses.add(new_name(task, i))
        fill("again-%03d" % i, 1 + i % 5)
    assert len(addresses) < LATER, "no address was used again"
    addresses.clear()
    begin, done = _thread.allocate_lock(), _thread.allocate_lock()
    begin.acquire(), done.acquire()

    def rename():
        for i in range(LATER, 2 * LATER):
            begin.acquire()
            addresses.add(new_name(task, i))
            done.release()

    thread = threading.Thread(target=rename)
    thread.start()
    for i in range(LATER, 2 * LATER):
        begin.release()
        done.acquire()
        fill("again-%03d" % i, 1 + i % 5)
    thread.join()
    assert len(addresses) < LATER, "no address was used again"


def task_set(loop, old, new):
    if sys.version_info >= (3, 12):
        asyncio.tasks._swap_current_task(loop, new)
    else:
        asyncio.tasks._leave_task(loop, old)
        asyncio.tasks._enter_task(loop, new)


def as_other():
    """Of a task of another class it is not known where it has its name. From 3.14 on a task in
    Python is none that runs."""
    loop = asyncio.get_running_loop()
    running = asyncio.current_task()
    for count in range(1, 4):
        other = threading.local()
        task_set(loop, running, other)
        fill("<unknown>", count)
        task_set(loop, other, running)
    name = "python" if sys.version_info < (3, 14) else ""
    return asyncio.tasks._PyTask(work(name, 2), loop=loop, name="python")


async def one_after_another():
    """Tasks that end before the next one begins, which is then at the same address."""
    addresses = set()
    for i in range(LATER):
        name = "later-%03d" % i
        task = asyncio.create_task(work(name, 1 + i % 7), name=name)
        addresses.add(id(task))
        await task
        del task
    assert len(addresses) < LATER, "no address was used again"


async def main():
    tasks = [
        asyncio.create_task(work(name, 20 + i), name=name)
        for i, name in enumerate(("alpha", "beta", LONG, HOSTILE))
    ]
    tasks += [asyncio.create_task(unnamed(count)) for count in (8, 9)]
    tasks.append(asyncio.create_task(renamed(), name="first"))
    await asyncio.gather(*tasks)
    del tasks
    await one_after_another()
    name = asyncio.current_task().get_name()
    same_addresses(asyncio.current_task())
    asyncio.current_task().set_name(name)
    await as_other()
    kept[asyncio.current_task().get_name()] = [fill(None, 11)]
    # a thread that runs no task
    await asyncio.get_running_loop().run_in_executor(None, fill, "", 13)


async def other():
    await asyncio.gather(*[asyncio.create_task(work(name, 30), name=name) for name in ("x", "y")])


def others():
    """Loops one after another."""
    asyncio.run(other())
    fill("", 3)
    asyncio.run(other())


os.write(1, b"ready\n")
os.read(0, 100)
if sys.argv[1:] == ["late"]:
    import asyncio

    asyncio.run(asyncio.sleep(0))
    os.write(1, b"looped\n")
    os.read(0, 100)
if sys.argv[1:] == ["forked"] and (child := os.fork()):
    os.waitpid(child, 0)
    sys.exit()
if sys.argv[1:] == ["forked"]:
    os.write(1, b"forked\n")
    os.read(0, 100)
fill("", 17)
thread = threading.Thread(target=others)
thread.start()
asyncio.run(main())
thread.join()
live = {
    name: [sum(sum(map(sys.getsizeof, blocks)) for blocks in lists), sum(map(len, lists))]
    for name, lists in kept.items()
}
os.write(1, (json.dumps(live) + "\n").encode())
os.read(0, 100)
