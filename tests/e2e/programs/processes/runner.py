# SPDX-License-Identifier: Apache-2.0
"""Runs itself again. usage: runner.py exec|spawn|"fork and exec" [INTERPRETER], or spawned

Prints "ready", waits for a line and runs itself with "spawned", in its place or as a child. That one prints its PID and
"again", waits for a line, keeps blocks, tells what is live as golden.py does, waits for a line and ends.
"""
import gc
import os
import sys

gc.disable()
how = sys.argv[1]
again = [(sys.argv[2:] or [sys.executable])[0], os.path.abspath(__file__), "spawned"]
count = 500
kept = [None] * count


def fill():
    for i in range(count):
        kept[i] = bytes(700)  # line K: one block each


def keep():
    os.read(0, 100)
    fill()
    os.write(1, ('{"K": [%d, %d]}\n' % (sum(map(sys.getsizeof, kept)), count)).encode())
    os.read(0, 100)


if how == "spawned":
    if len(sys.argv) > 2:
        os.write(1, ('{"pid": [%d, 0]}\nagain\n' % os.getpid()).encode())
    keep()
    sys.exit(0)
again.append("told")
os.write(1, b"ready\n")
os.read(0, 100)
if how == "exec":
    os.execv(again[0], again)
elif how == "spawn":
    import subprocess  # a build that is no whole one runs this program, too

    sys.exit(subprocess.call(again))
else:
    pid = os.fork()
    if pid == 0:
        os.execv(again[0], again)
    sys.exit(os.waitpid(pid, 0)[1] >> 8)
