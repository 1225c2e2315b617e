# SPDX-License-Identifier: Apache-2.0
"""A heap that lies: sizes, tables, types and counts that no interpreter has. usage:
graph_hostile.py KIND, which is one of the functions below."""
import ctypes
import gc
import os
import sys


def put(address, value, size=8):
    ctypes.memmove(address, value.to_bytes(size, "little"), size)


def lists():
    """Lists of 2^31 entries and of -1 entries, and a tuple of 2^60."""
    for i in range(200):
        value = [i] * 3
        put(id(value) + 16, 1 << 31)
        put(id(value) + 32, 1 << 31)
        KEPT.append(value)
    for i in range(200):
        value = [i] * 3
        put(id(value) + 16, 2**64 - 1)
        put(id(value) + 32, 2**64 - 1)
        KEPT.append(value)
    value = (1, [2])
    put(id(value) + 16, 1 << 60)
    KEPT.append(value)


def dicts():
    """Tables whose logarithms, kinds and numbers of entries are absurd."""
    for i in range(256):
        value = {"a": 1, "b": [i]}
        keys = int.from_bytes(ctypes.string_at(id(value) + 32, 8), "little")
        for at in range(8, 32, 8):
            put(keys + at, (i * 0x0101010101010101) & (2**64 - 1))
        KEPT.append(value)


def types():
    """Types whose sizes lie, and which are their own bases."""
    for i in range(100):
        value = type("Lie%d" % i, (), {"__slots__": ("a", "b")})
        KEPT.append((value, value()))
        put(id(value) + 32, (1 << 40) + i)
        put(id(value) + 40, (1 << 62) + i)
        base = TYPE_BASE
        put(id(value) + base, id(value))


def shared():
    """Many lists of the same large table, which is quadratic to read."""
    table = [None] * 1000000
    items = int.from_bytes(ctypes.string_at(id(table) + 24, 8), "little")
    KEPT.append(table)
    for _ in range(20000):
        value = []
        put(id(value) + 16, 1000000)
        put(id(value) + 24, items)
        put(id(value) + 32, 1000000)
        KEPT.append(value)


TYPE_BASE = 256
KEPT = []
gc.disable()
globals()[sys.argv[1]]()
print("ready", flush=True)
sys.stdin.readline()
os._exit(0)
