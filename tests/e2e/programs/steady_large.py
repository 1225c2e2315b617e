# SPDX-License-Identifier: Apache-2.0
"""Allocates large blocks steadily on marked lines: they are kept (A, a third as many on B), dropped
at once (T).

Prints "ready"; after a line on stdin it works until the next one comes, then prints {mark: [bytes,
blocks]} of what is live on A and B, and so on until the end of stdin.
"""
import json
import os
import select
import sys
import time

SIZE = 1000
kept_a, kept_b = [], []


def churn(i):
    for j in range(200):
        (b"%d" % (i + j)).ljust(SIZE)  # line T


def work(i):
    churn(i)
    value = (b"%d" % i).ljust(SIZE)  # line A
    kept_a.append(value)
    if i % 3 == 0:
        value = (b"%d" % i).ljust(SIZE)  # line B
        kept_b.append(value)


def stopped():
    return select.select([0], [], [], 0)[0]


def say():
    size = sys.getsizeof(bytes(SIZE))
    live = {"A": [size * len(kept_a), len(kept_a)], "B": [size * len(kept_b), len(kept_b)]}
    os.write(1, json.dumps(live).encode() + b"\n")


os.write(1, b"ready\n")
count = 0
while os.read(0, 100):
    while not stopped():
        for _ in range(10):
            work(count)
            count += 1
        time.sleep(0.0005)
    os.read(0, 100)
    say()
