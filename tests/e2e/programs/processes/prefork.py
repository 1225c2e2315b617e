"""A preloaded parent: MB of small objects, then WORKERS forked processes that wait and touch nothing.
Prints their process ids, and waits for the end of its stdin, which ends them."""
import gc
import os
import sys
import time

megabytes, workers = int(sys.argv[1]), int(sys.argv[2])
rows = []  # what all of them share
for number in range(megabytes << 20 >> 8):
    rows.append((float(number), b"x" * 130))
gc.freeze()
gc.disable()


def wait():
    while True:
        os.read(end, 1) or os._exit(0)


end, held = os.pipe()
pids = []
for _ in range(workers):
    pid = os.fork()
    if not pid:
        os.close(held)
        wait()
    pids.append(pid)
time.sleep(0.1)
print(*pids, flush=True)
print("ready", flush=True)
sys.stdin.read()
