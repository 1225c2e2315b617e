"""Threads that make an object and drop it, below 20 calls: a request and a free each.
usage: pairs.py THREADS PAIRS    PAIRS each. Prints the seconds of the work."""
import sys, threading, time
from itertools import repeat


def work(pairs, depth):
    if depth:
        return work(pairs, depth - 1)
    for _ in repeat(None, pairs):
        bytes(40)


threads, pairs = int(sys.argv[1]), int(sys.argv[2])
begun = [threading.Thread(target=work, args=(pairs, 20)) for _ in range(threads)]
start = time.perf_counter()
for thread in begun:
    thread.start()
for thread in begun:
    thread.join()
print(f"{time.perf_counter() - start:.3f}")
