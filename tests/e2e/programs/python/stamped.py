# SPDX-License-Identifier: Apache-2.0
"""Keeps blocks of one type and size, each with a content of its own, and when it has made them.

After "MARKS SECONDS" on stdin it makes ten every 5 ms on each of the lines with these marks, once
or for so long. D keeps the last 2000 only. Prints "ready", and after each such line
{mark: [[begin, end, blocks], ...]} of what is live, the times of CLOCK_MONOTONIC between which the
blocks were made.
"""
import collections
import itertools
import json
import os
import sys
import time

SIZE, ROUND = 100, 10
numbers = itertools.count()
kept = {mark: [] for mark in "ABC"}
kept["D"] = collections.deque(maxlen=2000 // ROUND)


def make_a(blocks):
    value = next(numbers).to_bytes(SIZE, "big")  # line A
    blocks.append(value)


def make_b(blocks):
    value = next(numbers).to_bytes(SIZE, "big")  # line B
    blocks.append(value)


def make_c(blocks):
    value = next(numbers).to_bytes(SIZE, "big")  # line C
    blocks.append(value)


def make_d(blocks):
    value = next(numbers).to_bytes(SIZE, "big")  # line D
    blocks.append(value)


makers = {"A": make_a, "B": make_b, "C": make_c, "D": make_d}


def work(marks, seconds):
    end = time.monotonic() + seconds
    while True:
        for mark in marks:
            begin, blocks = time.monotonic(), []
            for _ in range(ROUND):
                makers[mark](blocks)
            kept[mark].append((begin, time.monotonic(), blocks))
        if time.monotonic() >= end:
            return
        time.sleep(0.005)


os.write(1, b"ready\n")
for line in sys.stdin:
    marks, seconds = line.split()
    work(marks, float(seconds))
    live = {mark: [[begin, end, len(blocks)] for begin, end, blocks in kept[mark]] for mark in kept}
    os.write(1, json.dumps(live).encode() + b"\n")
