# SPDX-License-Identifier: Apache-2.0
"""Blocks that one thread allocates and another frees, beside blocks that stay. usage: threads.py [THREADS [ROUNDS]]

Prints "ready", waits for a line, works, prints what is live as golden.py does, waits again and ends.
"""
import gc
import os
import sys
import threading
import zlib

gc.disable()
count = int(sys.argv[1]) if len(sys.argv) > 1 else 8
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
sys.setswitchinterval(1e-5)
kept = [[None] * rounds for _ in range(count)]
passed = [[None] * 16 for _ in range(count)]
text = os.urandom(2000)


def nested(depth):
    """Has a bytes writer under way for each step. 3.15 keeps one dead one: afterwards it is one of ours."""
    if depth:
        yield from bytes(nested(depth - 1))


def warm_up():
    """As many dead tuples and lists on the free lists as threads may need at once: no marked line asks for a new one."""
    alive = [tuple([None] * n) for n in (1, 2, 3) for _ in range(100)] + [[] for _ in range(60)]
    del alive
    zlib.compress(text)


def work(me):
    keep, next_one = kept[me], passed[(me + 1) % count]
    for i in range(rounds):
        keep[i] = bytes(300)  # line K: one block each
        next_one[i % 16] = bytearray(650)  # line P: dies in whichever thread replaces it
        if i % 50 == 0:
            zlib.compress(text)  # line Z: raw allocations without the GIL, nothing stays


def run():
    threads = [threading.Thread(target=work, args=(me,)) for me in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bytes(nested(3))


warm_up()
os.write(1, b"ready\n")
os.read(0, 100)
run()
live = {
    "K": [sum(sys.getsizeof(b) for keep in kept for b in keep), count * rounds],
    "P": [sum(sys.getsizeof(b) for row in passed for b in row), 2 * 16 * count],
    "Z": [0, 0],
}
os.write(1, ("%s\n" % live).replace("'", '"').encode())
os.read(0, 100)
