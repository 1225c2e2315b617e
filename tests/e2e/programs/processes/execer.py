# SPDX-License-Identifier: Apache-2.0
"""Replaces itself by another program. usage: execer.py [BLOCKS]

Prints "ready", waits for a line, keeps blocks, prints what is live as golden.py does, waits for a line and execs the
same interpreter, which prints "again", waits for a line and ends.
"""
import gc
import os
import sys

gc.disable()
blocks = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
AGAIN = "import os; os.write(1, b'again\\n'); kept = [bytearray(500) for _ in range(100)]; os.read(0, 100)"
kept = [None] * blocks


def fill():
    for i in range(blocks):
        kept[i] = bytes(900)  # line B: one block each


os.write(1, b"ready\n")
os.read(0, 100)
fill()
live = {"B": [sum(map(sys.getsizeof, kept)), blocks]}
os.write(1, ("%s\n" % live).replace("'", '"').encode())
os.read(0, 100)
os.execv(sys.executable, [sys.executable, "-c", AGAIN])
