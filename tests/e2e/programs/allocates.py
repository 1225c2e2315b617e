# SPDX-License-Identifier: Apache-2.0
"""Allocates at a known rate, and keeps nothing. What it makes is no argument of a call, whose tuple
would come from a free list. usage: allocates.py steady|bursts|phases

Prints "ready"; from a line on stdin to the next one it makes rounds of small blocks and a large one,
then prints {mark: [bytes, blocks]} of all that was allocated on these lines. Ends with stdin.
"""
import json
import os
import random
import select
import sys
import time

BLOCKS = 50
small, large = bytes(50), bytes(1000)
how = sys.argv[1]
numbers = random.Random(1)


def work():
    for i in range(BLOCKS):
        value = small + small  # line S
    return large + large  # line L


def rest(rounds):
    """Until the next round; in bursts and phases most time is spent here."""
    if how == "bursts":
        time.sleep(0 if rounds % 40 else numbers.random() * 0.2)
    else:
        time.sleep(0.001 if how == "steady" or int(time.monotonic()) % 3 else 0.02)


os.write(1, b"ready\n")
os.read(0, 100)
rounds = 0
while not select.select([0], [], [], 0)[0]:
    work()
    rounds += 1
    rest(rounds)
os.read(0, 100)
size = sys.getsizeof
told = {"S": [size(small + small) * BLOCKS * rounds, BLOCKS * rounds]}
told["L"] = [size(large + large) * rounds, rounds]
os.write(1, json.dumps(told).encode() + b"\n")
os.read(0, 100)
