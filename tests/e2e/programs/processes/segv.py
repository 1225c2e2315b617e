# SPDX-License-Identifier: Apache-2.0
"""Dies in the middle of its work, without a shutdown. usage: segv.py [SIGNAL]    (default KILL; SEGV, ABRT …)

Prints "ready", waits for a line, keeps blocks, prints what is live as golden.py does, and kills itself while it churns.
"""
import gc
import os
import signal
import sys

gc.disable()
number = getattr(signal, "SIG" + (sys.argv[1] if len(sys.argv) > 1 else "KILL"))
kept = [None] * 1000


def fill():
    for i in range(1000):
        kept[i] = bytes(800)  # line B: one block each


def churn():
    for i in range(5000):
        bytes(600)  # line D: nothing stays
        if i == 4000:
            os.kill(os.getpid(), number)


os.write(1, b"ready\n")
os.read(0, 100)
fill()
live = {"B": [sum(map(sys.getsizeof, kept)), 1000], "D": [0, 0]}
os.write(1, ("%s\n" % live).replace("'", '"').encode())
churn()
