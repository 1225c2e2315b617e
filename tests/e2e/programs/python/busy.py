# SPDX-License-Identifier: Apache-2.0
"""Allocates as fast as it can, until a line comes; then waits for the next. usage: busy.py

Prints "ready", then "{}" when it is done with being busy. What it keeps grows slowly.
"""
import os
import select


def leaf(i):
    return [i * 1000003, str(i), {"k": i}, bytearray(1000)]  # line A


kept = []
os.write(1, b"ready\n")
count = 0
while not select.select([0], [], [], 0)[0]:
    for i in range(1000):
        leaf(i)
    kept.append(leaf(count))
    count += 1
os.read(0, 100)
os.write(1, b"{}\n")
os.read(0, 100)
