# SPDX-License-Identifier: Apache-2.0
"""Forks children that allocate and end, are killed, or call exec, one after the other.

Prints "ready", waits for a line, works until the next one comes, and prints "done".
"""
import os
import select
import signal
import sys
import time


def allocate():
    end = time.monotonic() + 0.03
    kept = []
    while time.monotonic() < end:
        kept.append([str(len(kept)), {"k": kept}])


def child(way):
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    allocate()
    if way == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if way == 2:
        os.execv(sys.executable, [sys.executable, "-S", "-c", "[str(i) for i in range(20000)]"])
    os._exit(0)


os.write(1, b"ready\n")
os.read(0, 100)
count = 0
while not select.select([0], [], [], 0)[0]:
    child(count % 3)
    allocate()
    time.sleep(0.3)
    count += 1
os.read(0, 100)
os.write(1, b"done\n")
os.read(0, 100)
