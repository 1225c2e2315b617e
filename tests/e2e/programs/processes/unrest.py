# SPDX-License-Identifier: Apache-2.0
"""Threads that never stand still. usage: unrest.py THREADS KEPT

Prints "ready", waits for a line, starts its threads; once each keeps its KEPT blocks of line K and has begun to renew
those of line R without end, prints what is live as golden.py does: of line R at most one a thread is missing at any moment.
Ends with its stdin.
"""
import gc
import os
import sys
import threading
import time

gc.disable()
# Blocks are made without a call, whose tuple of arguments another thread may find on the free list, or not.
one = b"x"
sys.setswitchinterval(1e-5)
count, size = int(sys.argv[1]), int(sys.argv[2])
kept = [[None] * size for _ in range(count)]
renewed = [[None] * size for _ in range(count)]
ready = [False] * count


def work(me):
    keep, renew = kept[me], renewed[me]
    for i in range(size):
        keep[i] = one * 300  # line K
        one * 200  # line T: nothing stays
    while True:
        for i in range(size):
            renew[i] = None
            renew[i] = one * (i % 3 + 100)  # line R
        ready[me] = True


os.write(1, b"ready\n")
os.read(0, 100)
for me in range(count):
    threading.Thread(target=work, args=(me,), daemon=True).start()
while not all(ready):
    time.sleep(0.01)
live = {
    "K": [sum(sys.getsizeof(b) for keep in kept for b in keep), count * size],
    "R": [count * sum(sys.getsizeof(bytes(i % 3 + 100)) for i in range(size)), count * size],
}
os.write(1, ("%s\n" % live).replace("'", '"').encode())
os.read(0, 100)
os._exit(0)
