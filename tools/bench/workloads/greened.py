"""Greenlets that do nothing but allocate: four, 100 rounds of w1's between two switches.
usage: greened.py NFRAME ROUNDS    NFRAME 0 = untraced, else tracemalloc with that many frames. Prints the seconds of the work."""
import sys, time, tracemalloc

import greenlet

from works import churn, leaf

GREENLETS = 4


def work(rounds, kept):
    for i in range(rounds):
        kept.append(leaf(i))
        churn(i)
        if i % 100 == 99:
            greenlet.getcurrent().parent.switch()


nframe, rounds = int(sys.argv[1]), int(sys.argv[2])
if nframe:
    tracemalloc.start(nframe)
kept = []
workers = [greenlet.greenlet(work) for _ in range(GREENLETS)]
start = time.perf_counter()
while workers:
    for worker in workers:
        worker.switch(rounds // GREENLETS, kept)
    workers = [worker for worker in workers if not worker.dead]
print(f"{time.perf_counter() - start:.3f}")
