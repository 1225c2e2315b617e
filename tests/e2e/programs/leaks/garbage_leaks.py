# SPDX-License-Identifier: Apache-2.0
"""Requests in cycles, as those of a web service are, of which older ones than the trace go bit by
bit; and two lines that keep what they allocate. Says "ready" when there are old ones. Ends with its
stdin."""
import collections
import gc
import os
import select

gc.disable()


class Request:
    def __init__(self, n):
        self.itself = self  # a cycle
        self.body = bytearray(200 + n % 50)  # line G: garbage


class Price:
    __slots__ = ("n",)

    def __init__(self, n):
        self.n = n


old = collections.deque(Request(n) for n in range(4000))
new, recent, prices = collections.deque(), collections.deque(), collections.deque()
os.write(1, b"ready\n")
n = 0
while not select.select([0], [], [], 0.01)[0]:
    for _ in range(8):
        new.append(Request(n))
        if len(new) > 5:
            new.popleft().itself = None
        recent.append(bytes(400))  # line R: kept
        prices.append(Price(0))  # line P: kept
        recent.append(bytes(300))
        n += 1
    if old:
        old.popleft().itself = None
