# SPDX-License-Identifier: Apache-2.0
"""The second file of parity.py: containers, functions, suspended generators, what C extensions make."""
import array
import collections
import functools
import io
import itertools
import zlib


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, i):
        self.a = i * 100003
        self.b = "slot %d" % i


def counter(limit):
    text = "generator %d" % limit
    for i in range(limit):
        yield text, i


def closure(a, b, c, d, e):
    def inner():
        return a, b, c, d, e

    return inner


def recurse(depth, i):
    if depth:
        return recurse(depth - 1, i)
    return ["deep %d" % i, {"depth": i}]


def make(i):
    kept = []
    kept.append(Slotted(i))
    kept.append(collections.deque("ab", 8))
    ordered = collections.OrderedDict()
    ordered["key"] = i
    kept.append(ordered)
    kept.append(array.array("q", range(i % 40)))
    kept.append(io.BytesIO(b"x" * (i % 700)))
    kept.append(zlib.compress(b"%d" % i * 50))
    kept.append(functools.partial(make, i, 1, 2, 3, 4, 5))
    kept.append(itertools.count(i))
    kept.append(closure(i, 1, 2, 3, 4))
    kept.append(memoryview(bytearray(i % 300)))
    kept.append(recurse(40, i))
    running = counter(i + 1)
    next(running)
    kept.append(running)
    return kept
