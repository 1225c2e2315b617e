# SPDX-License-Identifier: Apache-2.0
"""Spoils its own heap. usage: corrupt.py KIND

Prints "ready", waits for a line, keeps COUNT blocks on line K, frees one in three pools and, in each of these, does KIND
to the free list: "cycle", "wild", "header" (the pool's count and class are nonsense). Prints {"K": [bytes, blocks]} of
what is live, waits and ends without touching it again.
"""
import ctypes
import gc
import os
import sys

gc.disable()
kind = sys.argv[1]
COUNT, SIZE = 1200, 460
pool_bytes = 16384 if sys.version_info >= (3, 10) else 4096
kept = [None] * COUNT
word, half = ctypes.c_uint64.from_address, ctypes.c_uint32.from_address
pools, freed = [], []


def fill():
    for i in range(COUNT):
        kept[i] = bytes(SIZE)  # line K


def pool_of(address):
    return address & -pool_bytes


def choose():
    """A block in each of three pools that are full of ours, from the middle of the list."""
    for i in range(COUNT // 3, COUNT):
        pool = pool_of(id(kept[i]))
        if pool not in pools and half(pool).value > 2 and len(pools) < 3:
            pools.append(pool)
            freed.append(i)


def spoil(pool):
    block = word(pool + 8).value
    if kind == "cycle":
        word(block).value = block
    elif kind == "wild":
        word(block).value = 0xDEADBEEF0
    else:
        half(pool).value, half(pool + 36).value = 0xFFFFFFF0, 0x7FFFFFFF


os.write(1, b"ready\n")
os.read(0, 100)
fill()
choose()
for i in freed:
    kept[i] = None
live = {"K": [sum(map(sys.getsizeof, filter(None, kept))), COUNT - len(freed)]}
text = ("%s\n" % live).replace("'", '"').encode()
for pool in pools:
    spoil(pool)
os.write(1, text)
os.read(0, 100)
os._exit(0)
