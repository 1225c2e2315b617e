# SPDX-License-Identifier: Apache-2.0
"""Makes blocks that are dropped a millisecond later (T); their addresses are then those of blocks
that stay (A), of the same type and size but with other content.

Prints "ready"; after a line on stdin it works until the next one comes, then prints {mark: [bytes,
blocks]} of what is live on A.
"""
import json
import os
import select
import sys
import time

PART = 50
kept = []


def work(number):
    dropped = [b"%099d" % (number + i) for i in range(PART)]  # line T
    time.sleep(0.001)
    del dropped
    for i in range(PART):
        value = b"%099d" % -(number + i)  # line A
        kept.append(value)
    time.sleep(0.001)


os.write(1, b"ready\n")
os.read(0, 100)
count = 0
while not select.select([0], [], [], 0)[0]:
    work(count)
    count += PART
os.read(0, 100)
os.write(1, json.dumps({"A": [sys.getsizeof(kept[0]) * count, count]}).encode() + b"\n")
os.read(0, 100)
