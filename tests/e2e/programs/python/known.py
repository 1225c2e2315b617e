# SPDX-License-Identifier: Apache-2.0
"""So many blocks of a known size at each line, at addresses that other lines had before. usage: known.py

Prints "ready", waits for a line, works, prints {mark: [bytes, blocks]} of what is live, and waits again.
Every thing is made of a type that has no free list: its blocks come from the allocator.
"""
import gc
import json
import os
import sys
import types
import weakref

COUNT = 1000
ROUNDS = 4  # all but the last one's things die: their blocks go to other lines


class Slots:
    __slots__ = ("a", "b", "__weakref__")


numbers, letter, big, namespace = list(range(COUNT)), "a", 10 ** 100, {}
kinds = "object bytes slots set bytearray str int ref function cell exception proxy".split()
kept = {kind: [None] * COUNT for kind in kinds}


def make(object_, bytes_, slots, set_, bytearray_, str_, int_, ref, function, cell, exception, proxy):
    for i in numbers:
        object_[i] = object()  # line object
        bytes_[i] = bytes(20)  # line bytes
        slots[i] = Slots()  # line slots
        set_[i] = set()  # line set
        bytearray_[i] = bytearray(700)  # line bytearray
        str_[i] = letter * 600  # line str
        int_[i] = -big  # line int
        ref[i] = weakref.ref(slots[i])  # line ref
        function[i] = lambda: None  # line function
        cell[i] = types.CellType(None)  # line cell
        exception[i] = ValueError()  # line exception
        proxy[i] = types.MappingProxyType(namespace)  # line proxy


def work():
    for _ in range(ROUNDS):
        for things in kept.values():
            things[:] = [None] * COUNT
        make(*kept.values())


gc.disable()
os.write(1, b"ready\n")
os.read(0, 100)
work()
live = {kind: [sum(map(sys.getsizeof, things)), COUNT * (2 if kind == "bytearray" else 1)] for kind, things in kept.items()}
os.write(1, json.dumps(live).encode() + b"\n")
os.read(0, 100)
