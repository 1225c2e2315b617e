# SPDX-License-Identifier: Apache-2.0
"""Leaks by the clock, fills a cache that then stays, and lets a list grow and shrink. Says "ready",
"full" once the cache is, and after a line of stdin how many bytes a second line L leaks."""
import collections
import gc
import os
import select
import sys
import time

gc.disable()
RATE, FULL, WAVE = 2000, 400, 10
# Unlike a list, a deque does not free anything when it grows.
leaked, cache, wave = collections.deque(), {}, []
steps = 0


def leak(wanted):
    while len(leaked) < wanted:
        leaked.append(bytes(900))  # line L: nobody removes them


def fill():
    for _ in range(10):
        cache[(len(cache) if len(cache) < FULL else steps) % FULL] = bytes(3000)  # line C: a cache


def surge():
    if len(wave) == WAVE:
        wave.clear()
    wave.append(bytes(5000))  # line W: grows and shrinks


os.write(1, b"ready\n")
began = time.monotonic()
while not select.select([0], [], [], 0.01)[0]:
    leak(int((time.monotonic() - began) * RATE))
    was = len(cache)
    fill()
    surge()
    steps += 1
    if was < FULL == len(cache):
        os.write(1, b"full\n")
os.read(0, 100)
os.write(1, b"%d\n" % (RATE * sys.getsizeof(leaked[0])))
os.read(0, 100)
