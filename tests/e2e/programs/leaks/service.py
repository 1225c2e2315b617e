# SPDX-License-Identifier: Apache-2.0
"""A service with one of twenty faults, by name: twelve leak, eight do not.
usage: service.py NAME [WORKERS]

It serves 400 requests a second, each of which works for a part of a millisecond; with WORKERS, in
that many forked processes. Prints "ready" with the PIDs of what serves, and for each line of stdin
a line of JSON: for each of these its requests and what it holds (entries of the container that
grows; None: nothing grows), since its start, and the seconds since then. Ends with its stdin.
"""
import asyncio
import collections
import functools
import gc
import json
import mmap
import os
import queue
import select
import sys
import threading
import time
import weakref


class Session:
    __slots__ = ("number", "text", "link")

    def __init__(self, number):
        self.number, self.text, self.link = number, "session %d" % number, None


class Signal:
    def __init__(self):
        self.receivers = []

    def connect(self, receiver):
        self.receivers.append(receiver)  # fills receivers


class Registry:
    instances = set()

    def __init__(self, number):
        self.number = number
        Registry.instances.add(self)  # fills instances


class Prices:
    @functools.lru_cache(maxsize=None)  # fills lru
    def of(self, number):
        return Session(number)


class Queues:
    def __init__(self):
        self.unread = queue.Queue()


CACHE, LOG, BY_USER, HISTORY = {}, [], collections.defaultdict(list), collections.deque()
SIGNAL, PRICES, QUEUES, TASKS = Signal(), Prices(), Queues(), set()
LOCAL, COPIED = threading.local(), {}
LOOP = asyncio.new_event_loop()
FULL, RECENT, WARM, WAVE = {}, collections.deque(maxlen=500), {}, []
LRU, HOLES, TABLE, ORDERED = {}, {}, [bytes(100) * 5 for _ in range(1000)], collections.OrderedDict()


# --- twelve that leak --------------------------------------------------------------------------


def dictionary(n):
    CACHE["user:%d" % n] = Session(n)  # fills dictionary


def listed(n):
    LOG.append("request %d took %d ms" % (n, n % 7))  # fills listed


def receivers(n):
    SIGNAL.connect(lambda: n)


def instances(n):
    Registry(n)


def lru(n):
    PRICES.of(n)


def nested(n):
    BY_USER[n % 10].append(Session(n))  # fills nested


def history(n):
    HISTORY.append(Session(n))  # fills history


def unread(n):
    QUEUES.unread.put(Session(n))  # fills unread


async def waits(n):
    await asyncio.Event().wait()


def tasks(n):
    task = LOOP.create_task(waits(n))
    TASKS.add(task)  # fills tasks
    LOOP.run_until_complete(asyncio.sleep(0))


def local(n):
    if n == 0:
        LOCAL.seen = []
    LOCAL.seen.append(Session(n))  # fills local


def cycles(n):
    session = Session(n)
    session.link = [session]


def copied(n):
    global COPIED
    if n % 8 == 0:
        COPIED = {**COPIED, n: Session(n)}  # fills copied


# --- eight that do not -------------------------------------------------------------------------


def warm(n):
    if n < 1000:
        WARM[n] = Session(n)


def fragments(n):
    HOLES[n % 600] = [bytearray(100 + 37 * (n % 11))]
    HOLES.pop((n * 7) % 600, None)


def waves(n):
    if n % 900 == 0:
        WAVE.clear()
    WAVE.append(Session(n))


def bounded(n):
    ORDERED[n] = Session(n)
    if len(ORDERED) > 800:
        ORDERED.popitem(last=False)


def recent(n):
    RECENT.append(Session(n))


def page_cache(n):
    with open("/tmp/service-%d" % os.getpid(), "wb" if n % 4000 == 0 else "ab") as file:
        file.write(bytes(4096))


def replaced(n):
    TABLE[n % 1000] = bytes(100) * 5


def shared(n):
    """Reads what was there before the fork: its reference counts unshare it."""
    return [item for item in TABLE[n % 900 : n % 900 + 50]]


GROWS = {
    "dictionary": lambda: len(CACHE),
    "listed": lambda: len(LOG),
    "receivers": lambda: len(SIGNAL.receivers),
    "instances": lambda: len(Registry.instances),
    "lru": lambda: Prices.of.cache_info().currsize,
    "nested": lambda: sum(map(len, BY_USER.values())),
    "history": lambda: len(HISTORY),
    "unread": lambda: QUEUES.unread.qsize(),
    "tasks": lambda: len(TASKS),
    "local": lambda: len(getattr(LOCAL, "seen", ())),
    "cycles": lambda: None,
    "copied": lambda: len(COPIED),
}
HOLDERS = {
    "dictionary": "CACHE",
    "listed": "LOG",
    "receivers": "SIGNAL.receivers",
    "instances": "Registry.instances",
    "lru": "Prices.of",
    "nested": "BY_USER",
    "history": "HISTORY",
    "unread": "QUEUES.unread.queue",
    "tasks": "TASKS",
    "local": "LOCAL.seen",
    "cycles": "garbage",
    "copied": "COPIED",
}
STEADY = ("warm", "fragments", "waves", "bounded", "recent", "page_cache", "replaced", "shared")
RATE = 400


def serve(step, asked, answers):
    """Until the end of `asked`."""
    began, n, due = time.monotonic(), 0, time.monotonic()
    while True:
        step(n)
        sum(range(8000))
        n += 1
        due += 1 / RATE
        if select.select([asked], [], [], max(0, due - time.monotonic()))[0]:
            if not os.read(asked, 1):
                return
            held = GROWS.get(step.__name__, lambda: None)()
            answer = [n, held, time.monotonic() - began]
            os.write(answers, (json.dumps(answer) + "\n").encode())


def main():
    step, workers = globals()[sys.argv[1]], int((sys.argv[2:] or ["0"])[0])
    if sys.argv[1] == "cycles":
        gc.disable()
    pipes, pids = [], []
    for _ in range(workers):
        ask, answer = os.pipe(), os.pipe()
        pids.append(os.fork())
        if not pids[-1]:
            os.close(ask[1])
            for pipe in pipes:
                os.close(pipe[0])
            serve(step, ask[0], answer[1])
            os._exit(0)
        os.close(ask[0])
        pipes.append((ask[1], answer[0]))
    print("ready", *(pids or [os.getpid()]), flush=True)
    if not workers:
        serve(step, 0, 1)
        return
    while os.read(0, 100):
        answers = []
        for ask, answer in pipes:
            os.write(ask, b"?")
            answers.append(json.loads(os.read(answer, 1000)))
        print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    main()
