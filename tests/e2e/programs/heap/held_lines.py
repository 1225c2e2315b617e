# SPDX-License-Identifier: Apache-2.0
"""Objects of known lines and holders, half of them older than the trace. It prints "ready", waits
for a line, allocates, prints the counts by mark, and waits again."""
import ctypes
import json
import sys

forget = ctypes.pythonapi.Py_IncRef
forget.argtypes, forget.restype = [ctypes.py_object], None

OLD = [bytearray(64) for _ in range(3000)]


class Entry:
    def __init__(self, number):
        self.number, self.text = number, str(number) * 3  # line TEXT


CACHE = {}
KEPT = []
FIRST, SECOND = [], []


def fill():
    for number in range(2000, 6000):
        CACHE[number] = Entry(number)  # line ENTRY
    for _ in range(1000):
        KEPT.append(bytearray(4000))  # line BIG
    for _ in range(500):
        both = bytearray(2000)  # line SHARED
        FIRST.append(both)
        SECOND.append(both)
    for number in range(800):
        forget(bytearray(1000 + number % 90))  # line LOST


print("ready", flush=True)
sys.stdin.readline()
fill()
print(
    json.dumps({"ENTRY": 4000, "TEXT": 4000, "BIG": 1000, "SHARED": 500, "LOST": 800}), flush=True
)
sys.stdin.readline()
