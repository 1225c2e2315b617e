# SPDX-License-Identifier: Apache-2.0
"""Forks two workers, which keep blocks; prints "ready" and their ids. A list of each is below a key
of its own. Ends with its stdin, and they with it."""
import os
import select

pids = []
reading, writing = os.pipe()
for _ in range(2):
    pids.append(os.fork())
    if not pids[-1]:
        os.close(writing)
        kept, by_worker = [], {os.getpid(): []}
        while not select.select([reading], [], [], 0.01)[0]:
            kept.append(bytes(1000))  # line W
            by_worker[os.getpid()].append(bytes(500))
        os._exit(0)
os.write(1, b"ready\n%d,%d\n" % tuple(pids))
os.read(0, 100)
