# SPDX-License-Identifier: Apache-2.0
"""Counts its own blocks. usage: account.py COUNT

Prints "ready"; for every line on stdin allocates COUNT objects of several kinds, says how many blocks there are and waits
again. From the count on until the next line it neither allocates nor frees anything.
"""
import array
import gc
import os
import sys

gc.disable()
count = int(sys.argv[1])
kept = []
stdin, buffer = open(0, "rb", 0), bytearray(1)
figure, text = array.array("q", [0]), bytearray(b"%20d\n" % 0)
digits = slice(0, 20)
write, read = os.write, stdin.readinto


def work():
    kept.append([(bytearray(i % 700), str(i), [i]) for i in range(count)])
    del kept[:-2]


def count_blocks():
    figure[0] = sys.getallocatedblocks()
    text[digits] = b"%20d" % figure[0]


write(1, b"ready\n")
while read(buffer):
    work()
    for _ in range(100):  # as in objects.py
        count_blocks()
    count_blocks()
    write(1, text)
