# SPDX-License-Identifier: Apache-2.0
"""Threads, a peak that is gone at the end, temporary blocks. usage: as_memray.py [FILE]

With FILE, memray records it there, with Python's allocators. Says "ready", waits for a line, works, says in JSON what
each marked line has allocated ("allocated"), held at the peak ("peak") and which TIDs the named threads have
("threads"), waits for a line.
"""
import gc
import json
import os
import sys
import threading

gc.disable()
NAMES = ("reader", "parser", "writer")
HELD, TEMPORARY, STAYS, LARGE = 8000, 12000, 2000, 4
block = 33  # bytes that a bytes object needs beside its content
full, go_on = threading.Barrier(len(NAMES) + 1), threading.Barrier(len(NAMES) + 1)
tids, kept = {}, []


# Short functions: memray follows calls by a profile function, for which the interpreter makes a number that says where in
# the code a call is. Those below 257 are there already.
def hold(held, size):
    for i in range(HELD):
        held[i] = bytes(size + 0)  # line H: at the peak, then gone


def throw_away():
    for i in range(TEMPORARY):
        bytes(2000)  # line T: freed at once


def stay(stays):
    for i in range(STAYS):
        stays[i] = bytes(400)  # line S: alive at the end, not at the peak


def be_highest(large):
    for i in range(LARGE):
        large[i] = bytes(1 << 20)  # line P: with what is held, the peak


def work(me):
    tids[NAMES[me]] = threading.get_native_id()
    held, stays = [None] * HELD, [None] * STAYS
    hold(held, 700 + 100 * me)
    throw_away()
    full.wait()
    go_on.wait()
    held.clear()
    stay(stays)
    kept.append(stays)


def run():
    threads = [threading.Thread(target=work, args=(me,), name=NAMES[me]) for me in range(len(NAMES))]
    for thread in threads:
        thread.start()
    full.wait()
    be_highest([None] * LARGE)
    go_on.wait()
    for thread in threads:
        thread.join()


def record(path):
    import memray

    with memray.Tracker(path, trace_python_allocators=True):
        run()


os.write(1, b"ready\n")
os.read(0, 100)
record(sys.argv[1]) if len(sys.argv) > 1 else run()
by_thread = [[(block + 700 + 100 * me) * HELD, HELD] for me in range(len(NAMES))]
held = [sum(column) for column in zip(*by_thread)]
large = [LARGE * (block + (1 << 20)), LARGE]
said = {
    "peak": {"H": held, "P": large},
    "allocated": {
        "H": held,
        "P": large,
        "T": [len(NAMES) * TEMPORARY * (block + 2000), len(NAMES) * TEMPORARY],
        "S": [len(NAMES) * STAYS * (block + 400), len(NAMES) * STAYS],
    },
    "threads": tids,
}
os.write(1, b"%s\n" % json.dumps(said).encode())
os.read(0, 100)
