# SPDX-License-Identifier: Apache-2.0
"""Holders: a dictionary that grows, one that is replaced by a larger copy each time, a linked list
that grows at its end, and a cache that is full. Says "ready"; after a line of stdin {name of a
holder: entries a minute, as counted here}, and ends with its stdin."""
import collections
import json
import os
import select
import sys
import time


class Entry:
    def __init__(self, number):
        self.number, self.next = number + 10**6, None


ENTRIES, COPIED, FULL = {}, {}, collections.OrderedDict()
first = last = Entry(0)
for number in range(500):
    FULL[number] = Entry(number)
os.write(1, b"ready\n")
began, number, said = time.monotonic(), 500, False
while True:
    time.sleep(0.005)
    number += 1
    ENTRIES["user:%d" % number] = Entry(number)
    FULL[number] = Entry(number)
    FULL.popitem(last=False)
    if number % 4 == 0:
        last.next = Entry(number)
        last = last.next
        COPIED = {**COPIED, number: Entry(number)}
    if not said and select.select([0], [], [], 0)[0]:
        os.read(0, 100)
        minutes = (time.monotonic() - began) / 60
        sys.stdout.write(json.dumps({"ENTRIES": len(ENTRIES) / minutes}) + "\n")
        sys.stdout.flush()
        said = True
    elif said and select.select([0], [], [], 0)[0]:
        break
