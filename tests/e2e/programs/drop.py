# SPDX-License-Identifier: Apache-2.0
"""Keeps more and more, then drops it all at once. usage: drop.py [PARTS [BLOCKS]]

Prints "ready"; for each of PARTS lines on stdin it keeps BLOCKS more and prints what is live as golden.py does; for one
more it drops most of them and prints again; waits and ends.
"""
import gc
import os
import sys

gc.disable()
parts = int(sys.argv[1]) if len(sys.argv) > 1 else 1
blocks = int(sys.argv[2]) if len(sys.argv) > 2 else 5000
kept = [None] * (parts * blocks)


def fill(part):
    for i in range(part * blocks, (part + 1) * blocks):
        kept[i] = bytes(300)  # line B: one block each


def drop():
    for i in range(10, parts * blocks):
        kept[i] = None


def tell():
    live = {"B": [sum(sys.getsizeof(b) for b in kept if b), sum(1 for b in kept if b)]}
    os.write(1, ("%s\n" % live).replace("'", '"').encode())
    os.read(0, 100)


bytes(300)
os.write(1, b"ready\n")
os.read(0, 100)
for part in range(parts):
    fill(part)
    tell()
drop()
tell()
