# SPDX-License-Identifier: Apache-2.0
"""A known number of objects of known types: as many of each as the argument says. Says how many blocks there are, then
stands still. The figure goes out through an array made before, so that saying it allocates nothing. Two runs that
differ in the number alone differ in these objects alone."""
import array
import gc
import os
import signal
import sys


class Plain:
    pass


class Slotted:
    __slots__ = ("a", "b")


class Empty:
    __slots__ = ()


class Weak:
    __slots__ = ("a", "__weakref__")


class Meta(type):
    pass


class Child(dict, metaclass=Meta):
    pass


class Text(str):
    pass


class One:
    __slots__ = ("a",)


def generator():
    yield


def full(instance, value):
    instance.a = value
    return instance


def materialized(instance):
    """Its attributes in a dict of their own, where the version keeps them elsewhere."""
    instance.a = None
    instance.__dict__["b"] = None
    return instance


def buffer():
    """One of six words, with three in use: the fourth is what an object of the same size class left there."""
    words = array.array("q", (5, 5))
    words.append(0)
    return words


gc.disable()
count = int(sys.argv[1])
figures = array.array("q", [0])
# Looked up now: a lookup enters a name into a cache of types, and what it displaces there may be a block that dies.
blocks, write, pause = sys.getallocatedblocks, os.write, signal.pause
numbers = range(1000, 1000 + count)
ones = [One() for _ in numbers]
ones = ones[::2]
kept = [
    [buffer() for _ in numbers],
    [full(Plain(), None) for _ in numbers],
    [materialized(Plain()) for _ in numbers],
    [full(Slotted(), None) for _ in numbers],
    [Empty() for _ in numbers],
    [Weak() for _ in numbers],
    [Child() for _ in numbers],
    [Text("%d") for _ in numbers],
    [{1: 2} for _ in numbers],
    [(None, number) for number in [None] * count],
    [number + 0.5 for number in numbers],
    [{None} for _ in numbers],
    # Buffers that look like objects to a careless eye: an item, then a type; and the same where a tracked one would be.
    [[None, int, None, tuple, None, Plain] for _ in numbers],
    # And a count, then a type, where none of its objects can be.
    [array.array("q", (5, id(set))) for _ in numbers],
    [array.array("q", (-1, -1, 5, id(float))) for _ in numbers],
    [generator() for _ in numbers],
    [b"%d" % number for number in numbers],
    [complex(number, 1) for number in numbers],
]
figures[0] = blocks()
write(1, figures)
while True:
    pause()
