"""Threads that end in the same moment: children one thread of which calls _exit() while the others sleep."""
import os
import sys
import threading
import time

CHILDREN, THREADS = int(sys.argv[1]), int(sys.argv[2])


def sleep(start):
    start.wait()
    time.sleep(60)


def child():
    start = threading.Barrier(THREADS + 1)
    for _ in range(THREADS):
        threading.Thread(target=sleep, args=(start,), daemon=True).start()
    start.wait()
    os._exit(0)


for _ in range(CHILDREN):
    pid = os.fork()
    if not pid:
        child()
    os.waitpid(pid, 0)
os._exit(0)
