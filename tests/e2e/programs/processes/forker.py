# SPDX-License-Identifier: Apache-2.0
"""Children that allocate and free behind the parent's back. usage: forker.py [CHILDREN [BLOCKS]]

Prints "ready", waits for a line, keeps blocks, forks; each child gives the parent's blocks back, allocates its own and
ends without a shutdown. Then what is live in the parent is printed as golden.py does, waits again and ends.
"""
import gc
import os
import sys

gc.disable()
children = int(sys.argv[1]) if len(sys.argv) > 1 else 3
blocks = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
kept = [None] * blocks


def fill():
    for i in range(blocks):
        kept[i] = bytes(900)  # line P: the parent's, one block each


def child():
    for i in range(blocks):
        kept[i] = bytearray(400)  # line C: only ever in a child
    os._exit(0)


os.write(1, b"ready\n")
os.read(0, 100)
fill()
for _ in range(children):
    pid = os.fork()
    if pid == 0:
        child()
    if os.waitpid(pid, 0)[1] != 0:
        sys.exit("a child did not come to its end")
live = {"P": [sum(map(sys.getsizeof, kept)), blocks], "C": [0, 0]}
os.write(1, ("%s\n" % live).replace("'", '"').encode())
os.read(0, 100)
