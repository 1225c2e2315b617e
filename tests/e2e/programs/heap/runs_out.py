# SPDX-License-Identifier: Apache-2.0
"""Leaks until a memory limit ends it: runs_out.py RATE [fork [FILE]]; RATE: MiB a second, from a
line on stdin on. fork: in a child, which it waits for. The child writes its pid to FILE, the
cgroup.procs of another cgroup, says its pid and waits for a second line. The last line of the file
that $GAP_FILE names is the longest time between two of its steps, in ms: what delays the process
shows there."""
import mmap
import os
import struct
import sys
import time

RATE = float(sys.argv[1]) * (1 << 20)
BYTES = 16000 if RATE > 1 << 23 else 1000


class Order:
    def __init__(self, number):
        self.number = number
        self.body = bytearray(BYTES)  # line BODY
        self.body[::512] = b"x" * len(self.body[::512])


HISTORY = []


def remember(number):
    HISTORY.append(Order(number))  # line KEEP


def gaps():
    """Where the longest gap is kept: the kernel writes it after the kill, too."""
    path = os.environ.get("GAP_FILE")
    if not path:
        return bytearray(8)
    with open(path, "w+b") as file:
        file.truncate(4096)
        return mmap.mmap(file.fileno(), 4096)


def leak():
    longest, kept = 0.0, gaps()
    start = last = time.monotonic()
    number = slept = 0
    while True:
        remember(number)
        number += 1
        now = time.monotonic()
        if now - last > longest:
            longest = now - last
            kept[:8] = struct.pack("d", longest)
        last = now
        ahead = number * BYTES / RATE - (now - start)
        if ahead > 0.01:
            time.sleep(ahead)
            last = time.monotonic()


print("ready", flush=True)
sys.stdin.readline()
if "fork" in sys.argv and os.fork():
    os.wait()
    print("ended", flush=True)
    sys.stdin.readline()
else:
    if "fork" in sys.argv[:-1]:
        with open(sys.argv[-1], "w") as procs:
            procs.write(str(os.getpid()))
        print(os.getpid(), flush=True)
        sys.stdin.readline()
    leak()
