# SPDX-License-Identifier: Apache-2.0
"""The collector in a known state, by its argument: on, off, works: it collects the same garbage
again and again, or busy: it does nothing else. Prints what gc says of it as JSON, then "ready"; ends
with its stdin."""
import gc
import json
import os
import select
import sys

THRESHOLD = (50000, 11, 12)
KEPT = []


class Node:
    __slots__ = ("me",)

    def __init__(self):
        self.me = self


def collect():
    for _ in range(500):
        Node()
    return gc.collect()


def state():
    return {
        "enabled": gc.isenabled(),
        "threshold": gc.get_threshold(),
        "frozen": gc.get_freeze_count(),
        "stats": gc.get_stats(),
        "objects": [len(gc.get_objects(generation=i)) for i in range(3)],
        "count": gc.get_count(),
    }


gc.disable()
gc.set_threshold(*THRESHOLD)
gc.freeze()
for generation in (0, 0, 1, 2):
    KEPT.extend(Node() for _ in range(1000 * (generation + 1)))
    gc.collect(generation)
freed = [collect(), collect()][1]
if sys.argv[1] != "off":
    gc.enable()
os.write(1, (json.dumps({"freed": freed, **state()}) + "\nready\n").encode())
if sys.argv[1] in ("works", "busy"):
    while not select.select([0], [], [], 0.02 if sys.argv[1] == "works" else 0)[0]:
        collect()
os.read(0, 100)
