# SPDX-License-Identifier: Apache-2.0
"""Threads that resize heavily, so that an address given up by one is at once another's. usage: realloc.py [THREADS [ROUNDS]]

Prints "ready", waits for a line, works, prints what is live as golden.py does, waits again and ends.
"""
import gc
import os
import sys
import threading

gc.disable()
count = int(sys.argv[1]) if len(sys.argv) > 1 else 8
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 500
sys.setswitchinterval(1e-5)
buffers = [bytearray() for _ in range(count)]
cuts = [slice(10 + i, None) for i in range(90)]  # a dead one would go to a cache of one, whoever made it


def warm_up():
    """As many dead call tuples on the free lists as threads may need at once: no marked line asks for a new one."""
    alive = [tuple([None] * n) for n in (1, 2, 3) for _ in range(100)]
    del alive


def work(me):
    buffer = buffers[me]
    for i in range(rounds):
        for j in range(20):
            buffer += b"0123456789abcdef" * 8  # line G: grows, small at first, then large
        del buffer[cuts[i % 90]]  # line S: shrinks
    buffer += bytes(5000 + me)  # line L: the last to resize owns the block


def run():
    threads = [threading.Thread(target=work, args=(me,)) for me in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


warm_up()
os.write(1, b"ready\n")
os.read(0, 100)
run()
live = {
    "G": [0, 0],
    "S": [0, 0],
    "L": [sum(map(sys.getsizeof, buffers)) - count * sys.getsizeof(bytearray()), count],
}
os.write(1, ("%s\n" % live).replace("'", '"').encode())
os.read(0, 100)
