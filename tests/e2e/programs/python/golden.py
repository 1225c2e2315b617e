# SPDX-License-Identifier: Apache-2.0
"""Known allocations, one kind a marked line ("# line X"). usage: golden.py [SCALE]

Prints "ready", waits for a line (or the end of stdin), allocates, prints what is live as JSON {line: [bytes, blocks]},
waits again and ends. Only objects without a GC head, so that sys.getsizeof() is what was asked of the allocator; the
lists that keep them are made first, so that they do not grow; "+ 1" avoids nothing but a constant folded at compile time.
Text goes through os.read/os.write: print() and sys.stdin run library code that allocates.
"""
import gc
import os
import sys

gc.disable()
scale = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
half = scale // 2
kept_a, kept_b, kept_e = [None] * scale, [None] * half, [None] * scale
grown = bytearray()
chunk = bytes(100)


def fill_a():
    for i in range(scale):
        kept_a[i] = bytearray(1000)  # line A: two blocks each


def fill_b():
    for i in range(half):
        kept_b[i] = bytes(700)  # line B: one block each, by calloc


def grow_c():
    global grown
    for i in range(scale):
        grown += chunk  # line C: one block, by many reallocs


def churn_d():
    for i in range(2 * scale):
        bytes(600)  # line D: nothing stays


def fill_e():
    for i in range(scale):
        kept_e[i] = chr(97 + i % 26) * 100  # line E: one block each, small


def warm_up():
    """Call tuples land on CPython's free lists, one-letter strings in its cache: the marked lines take them from there."""
    for i in range(26):
        bytearray(1000), bytes(700), chr(97 + i) * 100
    copy = bytearray()
    copy += chunk


warm_up()
os.write(1, b"ready\n")
os.read(0, 100)
fill_a()
fill_b()
grow_c()
churn_d()
fill_e()
live = {
    "A": [sum(map(sys.getsizeof, kept_a)), 2 * scale],
    "B": [sum(map(sys.getsizeof, kept_b)), half],
    "C": [sys.getsizeof(grown) - sys.getsizeof(bytearray()), 1],
    "D": [0, 0],
    "E": [sum(map(sys.getsizeof, kept_e)), scale],
}
os.write(1, ("%s\n" % live).replace("'", '"').encode())
os.read(0, 100)
