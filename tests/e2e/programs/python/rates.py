# SPDX-License-Identifier: Apache-2.0
"""Many blocks of one size on each of three lines, and as many that die. usage: rates.py   speaks as golden.py does"""
import gc
import os
import sys

gc.disable()


def small():
    return bytes(200)  # line S


def middle():
    return bytes(467)  # line M


def large():
    return bytes(3000)  # line L


MAKERS = {"S": (small, 40000), "M": (middle, 18000), "L": (large, 3000)}


def work(kept):
    for make, count in MAKERS.values():
        for i in range(count):
            make()
            kept.append(make())
            make()


older = []
work(older)
os.write(1, b"ready\n")
os.read(0, 100)
kept = []
work(kept)
live = {mark: [sys.getsizeof(make()) * count, count] for mark, (make, count) in MAKERS.items()}
os.write(1, ("%s\n" % live).replace("'", '"').encode())
os.read(0, 100)
del older, kept
os.write(1, b"{}\n")
os.read(0, 100)
