# SPDX-License-Identifier: Apache-2.0
"""tracemalloc runs in the target. usage: traced_twice.py on|later

on: from before "ready" on; later: it is started after the first line on stdin, and stopped in between. Prints {mark:
[bytes, blocks]} of what is live on its marked lines, by the program's own count.
"""
import json
import os
import sys
import tracemalloc

COUNT = 500
small, large, again = [None] * COUNT, [None] * COUNT, [None] * COUNT
text = b"x"


def work():
    for i in range(COUNT):
        small[i] = text * 100  # line S
    for i in range(COUNT):
        large[i] = text * 5000  # line L


def work_again():
    for i in range(COUNT):
        again[i] = text * 200  # line A


if sys.argv[1] == "on":
    tracemalloc.start(10)
os.write(1, b"ready\n")
os.read(0, 100)
if sys.argv[1] == "later":
    tracemalloc.start(10)
work()
if sys.argv[1] == "later":
    tracemalloc.stop()
work_again()
live = {mark: [sum(map(sys.getsizeof, kept)), COUNT] for mark, kept in (("S", small), ("L", large), ("A", again))}
os.write(1, json.dumps(live).encode() + b"\n")
os.read(0, 100)
