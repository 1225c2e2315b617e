# SPDX-License-Identifier: Apache-2.0
"""Keeps strings of one size class: those of line A are one character longer than those of line B.
Each round keeps some of either at random, so that few windows tell little of their shares.

Prints "ready"; after a line on stdin it works until the next one comes, then prints {mark: [bytes,
blocks]} of what is live on A and B, and so on until the end of stdin.
"""
import json
import os
import random
import select
import sys
import time

kept_a, kept_b = [], []
random.seed(1)


def work(i):
    for _ in range(random.randrange(20)):
        value = b"%099d" % i  # line A
        kept_a.append(value)
    for _ in range(random.randrange(20)):
        value = b"%098d" % i  # line B
        kept_b.append(value)


def stopped():
    return select.select([0], [], [], 0)[0]


def say():
    kept = {"A": kept_a, "B": kept_b}
    live = {mark: [sum(map(sys.getsizeof, of)), len(of)] for mark, of in kept.items()}
    os.write(1, json.dumps(live).encode() + b"\n")


os.write(1, b"ready\n")
count = 0
while os.read(0, 100):
    while not stopped():
        work(count)
        count += 1
        time.sleep(0.005)
    os.read(0, 100)
    say()
