# SPDX-License-Identifier: Apache-2.0
"""Blocks too large for pymalloc that are resized until they are small. usage: shrink.py [BLOCKS]   speaks as golden.py does"""
import gc
import os
import sys

gc.disable()
blocks = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
kept = [bytearray() for _ in range(blocks)]
text = bytes(2000)
tail = slice(20, None)


def fill():
    for buffer in kept:
        buffer += text  # line L: large, for a moment
        del buffer[tail]  # line S: the last to resize owns the block


spare = bytearray()
spare += text
del spare[tail], spare
os.write(1, b"ready\n")
os.read(0, 100)
fill()
live = {"L": [0, 0], "S": [sum(map(sys.getsizeof, kept)) - blocks * sys.getsizeof(bytearray()), blocks]}
os.write(1, ("%s\n" % live).replace("'", '"').encode())
os.read(0, 100)
