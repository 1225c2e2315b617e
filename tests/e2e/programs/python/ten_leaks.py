# SPDX-License-Identifier: Apache-2.0
"""One of ten programs, by name. Five leak, on the line with the mark of their name; five do not.
Says "ready", and "full" after 80 steps, when those that do not leak hold all that they ever hold.
Ends with its stdin."""
import collections
import ctypes
import gc
import os
import select
import sys

gc.disable()
FULL = 60
malloc = ctypes.pythonapi.PyMem_Malloc
malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]


class Node:
    def __init__(self, n):
        self.text = b"%0400d" % n  # line del: in a cycle that nothing collects
        self.itself = self

    def __del__(self):
        pass


class Bus:
    def __init__(self):
        self.listeners = []

    def on_change(self, n):
        return lambda: n


bus, sessions, log, held, ring = Bus(), {}, [], {}, collections.deque(maxlen=FULL)
wave = []


def cache(n):
    sessions["user:%d" % n] = bytearray(500)  # line cache: no entry is ever removed


def listener(n):
    bus.listeners.append([bus.on_change, b"%0500d" % n])  # line listener: nobody unsubscribes


def cycle(n):
    Node(n)


def growing(n):
    log.extend(bytes(200) for _ in range(3))  # line growing: a global list


def extension(n):
    malloc(600)  # line extension: C code that does not free


def warms_up(n):
    if n < FULL:
        held[n] = bytearray(900)  # line warms_up: then it stays


def fragments(n):
    held[n % FULL] = [bytearray(100 + 37 * (n % 11)), None]  # line fragments: holes of many sizes
    held.pop((n * 7) % FULL, None)


def oscillates(n):
    if n % 12 == 0:
        wave.clear()
    wave.append(bytearray(3000))  # line oscillates: up and down


def bounded(n):
    if len(held) == FULL:
        held.pop(next(iter(held)))
    held["key:%d" % n] = bytearray(700)  # line bounded: the oldest goes


def churns(n):
    ring.append(bytes(400))  # line churns: the latest only


step, n = globals()[sys.argv[1]], 0
os.write(1, b"ready\n")
# It begins once it is traced: a line of stdin.
os.read(0, 100)
while not select.select([0], [], [], 0.01)[0]:
    step(n)
    n += 1
    if n == 80:
        os.write(1, b"full\n")
