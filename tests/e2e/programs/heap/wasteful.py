# SPDX-License-Identifier: Apache-2.0
"""Duplicate texts, tables with spare room and cycles, of known numbers and sizes. It prints them as
JSON and "ready", waits for a line, collects its garbage and prints how many objects that was."""
import gc
import json
import sys

COUNT = 500


class Ring:
    def __init__(self):
        self.peer = None


class Watched(Ring):
    def __del__(self):
        pass


def rings(kind, count):
    made = []
    for _ in range(count):
        one, two = kind(), kind()
        one.peer, two.peer = two, one
        made.append(one)
    return made


def emptied(kind, entries, left):
    """A container that had all entries."""
    value = kind(entries)
    for entry in entries[left:]:
        value.discard(entry) if kind is set else value.pop(entry)
    return value


def tables(of):
    return sum(sys.getsizeof(value) for value in of) - len(of) * sys.getsizeof(type(of[0])())


numbers = list(range(1000, 2000))
texts = ["".join(["the same text, ", "many times over"]) for _ in range(COUNT)]
raw = [b"".join([b"the same ", b"bytes"]) for _ in range(COUNT)]
empty_dicts = [emptied(dict.fromkeys, numbers, 0) for _ in range(50)]
sparse_dicts = [emptied(dict.fromkeys, numbers, 10) for _ in range(50)]
sparse_sets = [emptied(set, numbers, 100) for _ in range(50)]
spare_lists = []
for _ in range(50):
    spare_lists.append([None] * 1000)
    del spare_lists[-1][600:]
plain, watched = rings(Ring, COUNT), rings(Watched, COUNT // 5)
gc.collect()
gc.disable()
rings(Ring, 100)
rings(Watched, 10)
items = sum((sys.getsizeof(value) - sys.getsizeof([])) // 8 - len(value) for value in spare_lists)
print(
    json.dumps(
        {
            "texts": [COUNT, sys.getsizeof(texts[0])],
            "raw": [COUNT, sys.getsizeof(raw[0])],
            "empty_dicts": tables(empty_dicts),
            "sparse_dicts": tables(sparse_dicts) - 50 * tables([dict.fromkeys(numbers[:10])]),
            "sparse_sets": tables(sparse_sets) - tables([set(value) for value in sparse_sets]),
            "spare_lists": items * 8,
        }
    ),
    flush=True,
)
print("ready", flush=True)
sys.stdin.readline()
print(gc.collect(), flush=True)
sys.stdin.readline()
