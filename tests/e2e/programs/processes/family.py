# SPDX-License-Identifier: Apache-2.0
"""A parent and its children. usage: family.py [now|wait [GENERATIONS]]

Prints "ready", waits for a line, keeps blocks and forks; the child gives half of its parent's blocks back and keeps its own,
at once or after a line; so do its own children. Each prints what is live in it as golden.py does, and its PID, the last
child first. All end with the end of stdin.
"""
import gc
import os
import sys

gc.disable()
wait = sys.argv[1:2] == ["wait"]
generations = int(sys.argv[2]) if len(sys.argv) > 2 else 1
count = 1000
parents, own = [None] * count, [None] * count


def fill():
    for i in range(count):
        parents[i] = bytes(900)  # line P: the first parent's, one block each


def change():
    for i in range(count // 2):
        parents[i] = None
    for i in range(count):
        own[i] = bytes(300)  # line C: a child's, one block each, small


def tell():
    live = {"pid": [os.getpid(), 0]}
    for mark, blocks in (("P", parents), ("C", own)):
        sizes = [sys.getsizeof(block) for block in blocks if block is not None]
        live[mark] = [sum(sizes), len(sizes)]
    os.write(1, ("%s\n" % live).replace("'", '"').encode())


warm = [bytes(900), bytes(300)]
del warm
os.write(1, b"ready\n")
os.read(0, 100)
fill()
told = None  # the end of a pipe on which our parent waits until we have told
for _ in range(generations):
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        os.read(reader, 1)
        break
    os.close(reader)
    told = writer
    if wait:
        os.read(0, 100)
    change()
tell()
if told:
    os.write(told, b".")
while os.read(0, 100):
    pass
