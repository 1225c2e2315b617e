# SPDX-License-Identifier: Apache-2.0
"""Goes to sleep right after a block of line T has come and gone. usage: idle.py

Prints "ready"; for every line on stdin keeps one block of line K, has one of line T that does not stay, and waits again.
"""
import gc
import os

gc.disable()
stdin, buffer = open(0, "rb", 0), bytearray(1)
read, kept = stdin.readinto, [None] * 100


def keep(i):
    kept[i] = bytes(300)  # line K
    bytes(400)  # line T


os.write(1, b"ready\n")
i = 0
while read(buffer):
    if buffer == b"\n":
        keep(i)
        i += 1
