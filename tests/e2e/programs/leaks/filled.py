# SPDX-License-Identifier: Apache-2.0
"""Containers that grow, filled in another function than the one that has them, in methods, in another
module, through default values and variables of outer functions; and functions that only read them.
Says "ready", and ends with its stdin."""
import collections
import functools
import heapq
import os
import queue
import select
import threading
import time

import filled_store
from filled_store import SHARED

CACHE, HEAP, COPIED, RECENT = {}, [], {}, collections.deque(maxlen=100000)
GROUPS = collections.defaultdict(list)
JOBS = queue.Queue()
LOCAL = threading.local()
APP = {"orders": {}}


class Bus:
    def __init__(self):
        self.listeners = []

    def subscribe(self, listener):
        self.listeners.append(listener)  # line subscribe

    def tell(self):
        return len(self.listeners), self.listeners[0], [one for one in self.listeners]


class Other:
    """Has an attribute of the same name."""

    def __init__(self):
        self.listeners = collections.deque(maxlen=3)

    def note(self, listener):
        self.listeners.append(listener)


class Registry:
    entries = {}

    def enter(self, number):
        self.entries.setdefault(number, []).append(number)  # line enter


class Price:
    @functools.lru_cache(maxsize=None)  # line quote
    def quote(self, number):
        return [number] * 20

    @functools.lru_cache(maxsize=50000)  # line discount
    def discount(self, number):
        return [number] * 10


class Ordered(collections.OrderedDict):
    def remember(self, number):
        self[number] = [number] * 10  # line remember


class Shelf:
    def __init__(self):
        self._capacity, self.held, self.ordered = 80000, {}, Ordered()

    def put(self, number):
        self.held[number] = [number] * 10  # line shelf


def put(number):
    CACHE["user:%d" % number] = [number] * 10 if number else None  # line put


def read(number):
    if number in CACHE:
        return CACHE[number], CACHE.get(number), RECENT[-1], shelf.held[number]
    return len(CACHE), CACHE.keys(), list(CACHE), JOBS.qsize(), HEAP[0], COPIED.get(number)


def group(number):
    GROUPS[number % 3].append([number] * 10)  # line group


def keeper():
    kept = {}

    def keep(number):
        kept[number] = [number] * 10  # line keep

    return keep


def note(number):
    LOCAL.seen.append([number] * 10)  # line thread


def order(application, number):
    application["orders"][number] = [number] * 10  # line order


def default(number, seen=[]):
    seen += [[number] * 10]  # line default


class Copied:
    def __init__(self, number):
        self.numbers = [number] * 200


def copy(number):
    global COPIED
    COPIED = {**COPIED, number: Copied(number)}  # line copy


bus, other, price, registry, keep = Bus(), Other(), Price(), Registry(), keeper()
shelf = Shelf()


def work(number):
    put(number)
    bus.subscribe([number] * 10)  # line subscribed
    other.note(number)
    registry.enter(number)
    price.quote(number), price.discount(number)
    RECENT.append([number] * 10)  # line recent
    shelf.put(number)  # line shelved
    shelf.ordered.remember(number)
    JOBS.put([number] * 10)  # line job
    heapq.heappush(HEAP, (number, [number] * 10))  # line heap
    filled_store.STORE[number] = [number] * 10  # line store
    filled_store.put(number)
    SHARED.append([number] * 10)  # line shared
    group(number)
    keep(number)
    note(number)
    order(APP, number)
    default(number)
    read(number), bus.tell()


def main():
    local, number = [], 10**6
    LOCAL.seen = []
    for number in range(number, number + 200):
        work(number)
        local.append([number] * 10)  # line first
        copy(number)
    os.write(1, b"ready\n")
    while not select.select([0], [], [], 0)[0]:
        time.sleep(0.004)
        number += 1
        work(number)
        local.extend([[number] * 10])  # line local
        if number % 20 == 0:
            copy(number)


main()
