# SPDX-License-Identifier: Apache-2.0
"""Keeps a lasting number of large buffers, each of which is renewed again and again (line R): a new
buffer is mostly given the memory of the one that has just died.

Speaks as steady.py does; what it keeps was made before "ready".
"""
import json
import os
import select
import sys
import time

SIZE, COUNT = 1000, 4000


def make():
    return bytearray(SIZE)  # line R


kept = [bytearray(SIZE) for _ in range(COUNT)]
os.write(1, b"ready\n")
place = 0
while os.read(0, 100):
    while not select.select([0], [], [], 0)[0]:
        for _ in range(200):
            kept[place] = None
            kept[place] = make()
            place = (place + 1) % COUNT
        time.sleep(0.0005)
    os.read(0, 100)
    os.write(1, json.dumps({"R": [COUNT * sys.getsizeof(make()), COUNT]}).encode() + b"\n")
