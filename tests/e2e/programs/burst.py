# SPDX-License-Identifier: Apache-2.0
"""Allocates all at once, on marked lines, blocks of one type and size: a third as many that are kept
on B as on A, in random order, since pools begin with the same line if a round fits in them exactly;
and some that are dropped soon on T, which takes half of the pools, and works all the time.

Prints "ready"; makes some of T's until there is a line on stdin, then the rest, and prints {mark: [bytes,
blocks]} of what is live on A and B. Ends with stdin.
"""
import json
import os
import random
import select
import sys
import time

SIZE, BLOCKS = 100, 80000
numbers = random.Random(1)
order = numbers.choices("AAAB", k=BLOCKS)
dropping = numbers.choices((False, True), k=BLOCKS)
kept = [None] * BLOCKS


def some():
    return [bytes(SIZE) for i in range(3)]  # line T


def burst():
    for i, mark in enumerate(order):
        dropped = some() if dropping[i] else None
        if mark == "A":
            value = bytes(SIZE)  # line A
        else:
            value = bytes(SIZE)  # line B
        kept[i] = value
        dropped = None


os.write(1, b"ready\n")
while not select.select([0], [], [], 0)[0]:
    some()
    time.sleep(0.0005)
os.read(0, 100)
burst()
size = sys.getsizeof(bytes(SIZE))
live = {mark: [size * order.count(mark), order.count(mark)] for mark in "AB"}
os.write(1, json.dumps(live).encode() + b"\n")
os.read(0, 100)
