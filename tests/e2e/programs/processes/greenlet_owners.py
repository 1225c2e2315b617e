# SPDX-License-Identifier: Apache-2.0
"""Greenlets that allocate different amounts on one line. usage: greenlet_owners.py
greenlet|gevent|eventlet [late]

Prints "ready", waits for a line, works, prints {greenlet: [bytes, blocks]} of line K ("": in a
thread's main one), waits for stdin's end. late: greenlets are switched only after that line;
"switched" is printed, and another line waited for. Else they are before.
"""
import gc
import json
import os
import sys
import threading

gc.disable()
DEEP = 700
LATER = 40
ONE = b"\0"
kept = {}


def fill(name, count):
    blocks = [None] * count
    kept.setdefault(name, []).append(blocks)
    for i in range(count):
        blocks[i] = ONE * 300  # line K: one block each, and no tuple of arguments, as a call has


def deeper(name, count, left):
    """Below more frames than are walked."""
    if left:
        return deeper(name, count, left - 1)
    return fill(name, count)


class Plain:
    """Greenlets as such: greenlet.switch() and nothing else."""

    def __init__(self):
        import greenlet

        self.greenlet = greenlet

    def switch(self):
        self.greenlet.greenlet(int).switch()

    def yield_(self):
        self.greenlet.getcurrent().parent.switch()

    def run(self, jobs):
        """jobs: [(function, arguments, name or None)], in turns."""

        class Named(self.greenlet.greenlet):
            pass

        running = []
        for function, arguments, name in jobs:
            one = Named(function) if name else self.greenlet.greenlet(function)
            if name:
                one.name = name
            running.append((one, arguments))
        for one, arguments in running:
            one.switch(*arguments)
        while any(not one.dead for one, _ in running):
            for one, _ in running:
                if not one.dead:
                    one.switch()


class Gevent:
    def __init__(self):
        import gevent.pool

        self.gevent = gevent

    def switch(self):
        self.gevent.sleep(0)

    def yield_(self):
        self.gevent.sleep(0)

    def run(self, jobs):
        pool = self.gevent.pool.Pool(4)
        for function, arguments, name in jobs:
            one = pool.greenlet_class(function, *arguments)
            if name:
                one.name = name
            pool.start(one)
        pool.join()


class Eventlet:
    def __init__(self):
        import eventlet

        self.eventlet = eventlet

    def switch(self):
        self.eventlet.sleep(0)

    def yield_(self):
        self.eventlet.sleep(0)

    def run(self, jobs):
        pool = self.eventlet.GreenPool(4)
        threads = []
        for i, (function, arguments, name) in enumerate(jobs):
            if name:
                function, arguments = self.named, (name, function, arguments)
            if i % 2:
                pool.spawn_n(function, *arguments)
            else:
                threads.append(pool.spawn(function, *arguments))
        for thread in threads:
            thread.wait()
        pool.waitall()

    def named(self, name, function, arguments):
        self.eventlet.getcurrent().name = name
        function(*arguments)


KINDS = {"greenlet": Plain, "gevent": Gevent, "eventlet": Eventlet}


def shown(function):
    """A qualified name is what code objects have from 3.11 on."""
    return function.__qualname__ if sys.version_info >= (3, 11) else function.__name__


def handler(name, turns):
    for i in range(turns):
        fill(name or shown(handler), 3 + i % 2)
        kind.yield_()


def reader(turns):
    for _ in range(turns):
        fill(shown(reader), 5)
        kind.yield_()
        deeper(shown(reader), 2, DEEP)


class Job:
    def work(self, turns):
        for _ in range(turns):
            fill(shown(Job.work), 7)
            kind.yield_()


def jobs():
    some = [(handler, (None, 4), None), (reader, (5,), None), (Job().work, (6,), None)]
    return some + [(handler, (name, 5), name) for name in ("alpha", "na\u00efve \u540d\n")]


def in_thread():
    fill("", 13)
    if kind_name == "greenlet":
        kind.run(jobs())


kind_name, is_late = sys.argv[1], sys.argv[2:] == ["late"]
sys.setrecursionlimit(10 * DEEP)
if not is_late:
    kind = KINDS[kind_name]()
    kind.switch()
os.write(1, b"ready\n")
os.read(0, 100)
if is_late:
    kind = KINDS[kind_name]()
    kind.switch()
    os.write(1, b"switched\n")
    os.read(0, 100)
fill("", 17)
kind.run(jobs())
thread = threading.Thread(target=in_thread)
thread.start()
thread.join()
for i in range(LATER):  # at the addresses of those before
    kind.run([(handler, ("later-%d" % (i % 5), 2), "later-%d" % (i % 5))])
fill("", 11)
live = {
    name: [sum(sum(map(sys.getsizeof, blocks)) for blocks in lists), sum(map(len, lists))]
    for name, lists in kept.items()
}
os.write(1, (json.dumps(live) + "\n").encode())
os.read(0, 100)
