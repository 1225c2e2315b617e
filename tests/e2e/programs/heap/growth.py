# SPDX-License-Identifier: Apache-2.0
"""Makes its heap grow by known amounts on marked lines, for growth mode.

Prints "ready", waits for a line on stdin, grows, prints {mark: [bytes, blocks]} of what is live on each as the allocator
was asked for it, waits again, drops what line A keeps, prints again, waits and ends. The blocks of lines A and B are of
size classes that little else uses; the lists that keep things are made first. A block of A and B is a bytes object.
"""
import gc
import json
import mmap
import os
import sys

gc.disable()
COUNT = 20000
A, B, LARGE, MAP = 400, 290, 5000, 300000
kept_a, kept_b, kept_l, kept_m = [None] * COUNT, [None] * COUNT, [None] * 300, [None] * 10
head = sys.getsizeof(b"")


def fill_a():
    for i in range(COUNT):
        kept_a[i] = bytes(A)  # line A


def fill_b():
    for i in range(COUNT):
        kept_b[i] = bytes(B)  # line B


def fill_large():
    for i in range(len(kept_l)):
        kept_l[i] = bytes(LARGE)  # line L


def fill_maps():
    for i in range(len(kept_m)):
        kept_m[i] = mmap.mmap(-1, MAP)  # line M
    for i in range(len(kept_m)):
        mmap.mmap(-1, MAP).close()  # line U: nothing stays


def churn():
    for i in range(3000):
        [bytes(450) for j in range(10)]  # line C: nothing stays


def say():
    live = {
        "A": [(A + head) * COUNT if kept_a else 0, COUNT if kept_a else 0],
        "B": [(B + head) * COUNT, COUNT],
        "L": [(LARGE + head) * len(kept_l), len(kept_l)],
        "M": [MAP * len(kept_m), len(kept_m)],
    }
    os.write(1, json.dumps(live).encode() + b"\n")


os.write(1, b"ready\n")
os.read(0, 100)
fill_a()
fill_b()
fill_large()
fill_maps()
churn()
say()
os.read(0, 100)
kept_a = None
say()
os.read(0, 100)
