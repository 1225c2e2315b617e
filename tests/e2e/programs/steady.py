# SPDX-License-Identifier: Apache-2.0
"""Allocates steadily on marked lines: blocks of one type and size that are kept (A, a third as many
on B) and that are dropped at once (T).

Prints "ready"; after a line on stdin it works, at least once, until the next one comes, then prints
{mark: [bytes, blocks]} of what is live on A and B, and so on until the end of stdin.
"""
import json
import os
import select
import sys
import time

SIZE = 100
kept_a, kept_b = [], []


def churn():
    for i in range(60):
        bytes(SIZE)  # line T


def work(i):
    churn()
    value = bytes(SIZE)  # line A
    kept_a.append(value)
    if i % 3 == 0:
        value = bytes(SIZE)  # line B
        kept_b.append(value)


def stopped():
    return select.select([0], [], [], 0)[0]


def heard():
    """A line of stdin; nothing at its end."""
    while True:
        byte = os.read(0, 1)
        if byte in (b"\n", b""):
            return byte


def say():
    size = sys.getsizeof(bytes(SIZE))
    live = {"A": [size * len(kept_a), len(kept_a)], "B": [size * len(kept_b), len(kept_b)]}
    os.write(1, json.dumps(live).encode() + b"\n")


os.write(1, b"ready\n")
count = 0
while heard():
    while True:
        for _ in range(10):
            work(count)
            count += 1
        time.sleep(0.002)
        if stopped():
            break
    heard()
    say()
