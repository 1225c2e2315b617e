# SPDX-License-Identifier: Apache-2.0
"""Grows, shrinks, leaks, a line of stdin each. Says "ready" and, after each phase, what is live, as golden.py does."""
import gc
import os
import sys

gc.disable()
COUNT = 2000
cache, leaked = [None] * COUNT, [None] * COUNT


def grow():
    for i in range(COUNT):
        cache[i] = bytes(900)  # line G: the cache


def shrink():
    for i in range(100, COUNT):
        cache[i] = None


def leak():
    for i in range(COUNT):
        leaked[i] = bytes(600)  # line L: nobody removes them


def live():
    sums = {}
    for mark, kept in (("G", cache), ("L", leaked)):
        sizes = [sys.getsizeof(block) for block in kept if block is not None]
        sums[mark] = [sum(sizes), len(sizes)]
    return ("%s\n" % sums).replace("'", '"').encode()


os.write(1, b"ready\n")
for phase in (grow, shrink, leak):
    os.read(0, 100)
    phase()
    os.write(1, live())
os.read(0, 100)
