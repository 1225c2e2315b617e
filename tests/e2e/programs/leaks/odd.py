# SPDX-License-Identifier: Apache-2.0
"""usage: odd.py HOLDER: something that keeps one object each 5 ms, held in a way that is hard to
name or to read. Prints "ready"."""
import collections
import gc
import sys
import time


class Session:
    def __init__(self, n):
        self.n, self.text = n, "x" * 100


class Slotted:
    __slots__ = ("items", "other")

    def __init__(self):
        self.items = []


class Odd:
    items = []


Odd.__name__ = "\033]0;title\a\n"
CACHE = Slotted()
ORDERED = collections.OrderedDict()
DEQUE = collections.deque()
GENERATORS = []
WILD = []
NAMES = {"tuple": ("a", 1), "escape": "\033[2J\nevil", "long": "n" * 100000}
for name in NAMES.values():
    globals()[name] = []


def slots(n):
    CACHE.items.append(Session(n))  # fills slots


def ordered(n):
    ORDERED[n] = Session(n)  # fills ordered


def deque(n):
    DEQUE.append(Session(n))  # fills deque


def renamed(n):
    Odd.items.append(Session(n))  # fills renamed


def generator(n):
    def suspended():
        yield Session(n)

    GENERATORS.append(suspended())  # fills generator
    next(GENERATORS[-1])


def frozen(n):
    if not n:
        gc.freeze()
    CACHE.items.append(Session(n))  # fills frozen


def disabled(n):
    if not n:
        gc.disable()
    session = Session(n)
    session.session = session


def wild(n):
    WILD[:] = [Session(i) for i in range(5000)]
    CACHE.items.append(Session(n))  # fills wild


def named(n):
    globals()[NAMES[sys.argv[1]]].append(Session(n))


def main():
    keep = named if sys.argv[1] in NAMES else globals()[sys.argv[1]]
    print("ready", flush=True)
    n = 0
    while True:
        keep(n)
        n += 1
        time.sleep(0.005)


main()
