# SPDX-License-Identifier: Apache-2.0
"""Keeps objects of a service: sessions with users, texts, numbers, lists and dictionaries, about
N in all. usage: objects.py N

It prints "ready" and the bytes of its own resident memory. For each line that it reads, it watches
the clock until the next one, and prints the longest time that it did not run, in nanoseconds.
"""
import os
import select
import sys
import time

PER_SESSION = 10


class User:
    __slots__ = ("name", "score", "session")

    def __init__(self, number):
        self.name, self.score = "user %d" % number, number * 1.5


class Session:
    def __init__(self, number):
        self.key, self.number = "session:%d" % number, number + 1000
        self.user, self.items = User(number), [number * 7919, (number, str(number))]
        self.user.session = self


def watch():
    """The longest gap between two readings of the clock while stdin has nothing to read."""
    longest, last, poll = 0, time.monotonic_ns(), select.poll()
    poll.register(0, select.POLLIN)
    while True:
        for _ in range(200):
            now = time.monotonic_ns()
            longest, last = max(longest, now - last), now
        if poll.poll(0):
            return longest


CACHE = {}
for i in range(int(sys.argv[1]) // PER_SESSION):
    session = Session(i)
    CACHE[session.key] = session
print("ready", os.getpid(), flush=True)
while os.read(0, 64):
    print("watching", flush=True)
    print(watch(), flush=True)
    if not os.read(0, 64):
        break
