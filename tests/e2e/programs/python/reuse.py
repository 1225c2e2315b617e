# SPDX-License-Identifier: Apache-2.0
"""Objects that CPython takes again from its free lists, at other lines than those that first asked for their blocks. usage: reuse.py

Prints "ready", waits for a line, works, prints {mark: [bytes, blocks]} of what is live, and waits again. What dies in
make_float() … is on its type's free list when make_kept() makes as many objects of that type: fewer than a list holds. What
was on a list before anybody traced is nobody's, and so the lists are emptied first.
"""
import gc
import json
import os
import sys

COUNT = 60
numbers = range(1000, 1000 + COUNT)
half = 0.5
things = {kind: [None] * COUNT for kind in "float tuple list dict twice".split()}


def make(kind, make_one):
    for i in numbers:
        things[kind][i - 1000] = make_one(i)


def make_float(i):
    return i * half


def make_tuple(i):
    return (i, half)


def make_list(i):
    return []


def make_dict(i):
    return {}


def make_kept():
    for i in numbers:
        things["float"][i - 1000] = i * half  # line float
        things["tuple"][i - 1000] = (i, half)  # line tuple
        things["list"][i - 1000] = []  # line list
        things["dict"][i - 1000] = {}  # line dict


def make_twice():
    """Taken again though nothing else was given since."""
    for i in numbers:
        first = i * half
        first = None
        things["twice"][i - 1000] = i * half  # line twice


gc.disable()
os.write(1, b"ready\n")
os.read(0, 100)
drained = [(i * half, (i, half), [], {}) for i in range(3000)]
for function in (make_float, make_tuple, make_list, make_dict):
    make(function.__name__[5:], function)
for kept in things.values():
    for i in range(COUNT):
        kept[i] = None
make_kept()
make_twice()
live = {kind: [sum(sys.getsizeof(one) + (0 if kind in ("float", "twice") else 16) for one in kept), COUNT] for kind, kept in things.items()}
os.write(1, json.dumps(live).encode() + b"\n")
os.read(0, 100)
