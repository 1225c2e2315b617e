# SPDX-License-Identifier: Apache-2.0
"""Keeps more and more, then drops it all at once. usage: drop.py [PARTS [BLOCKS]]

Prints "ready"; for each of PARTS lines on stdin it keeps BLOCKS more and prints what is live as golden.py does; for one
more it drops them, which asks nothing of the allocator, and prints again; waits and ends.
"""
import gc
import os
import sys

gc.disable()
parts = int(sys.argv[1]) if len(sys.argv) > 1 else 1
blocks = int(sys.argv[2]) if len(sys.argv) > 2 else 5000
kept = [[None] * blocks for _ in range(parts)]
slots = list(range(blocks))
size = sys.getsizeof(bytes(300))
texts = [b'{"B": [%d, %d]}\n' % (size * blocks * i, blocks * i) for i in range(parts + 1)]


def fill(part):
    for i in slots:
        part[i] = bytes(300)  # line B: one block each


bytes(300)
os.write(1, b"ready\n")
os.read(0, 100)
for i in range(parts):
    fill(kept[i])
    os.write(1, texts[i + 1])
    os.read(0, 100)
del kept
os.write(1, texts[0])
os.read(0, 100)
