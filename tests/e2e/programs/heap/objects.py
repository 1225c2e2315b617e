# SPDX-License-Identifier: Apache-2.0
"""Objects of a type of its own. usage: objects.py COUNT   prints how many blocks there are, then "ready"; ends with stdin"""
import array
import gc
import os
import sys


class Node:
    __slots__ = ("name", "next")


gc.disable()
count = int(sys.argv[1])
kept = [Node() for _ in range(count)]
for node in kept:
    node.name = (node, None, None)
kept.append([bytes(600) for _ in range(count)])
stdin, buffer = open(0, "rb", 0), bytearray(1)
figure, text = array.array("q", [0]), bytearray(b"%20d\nready\n" % 0)
digits = slice(0, 20)
write, read = os.write, stdin.readinto


def count_blocks():
    figure[0] = sys.getallocatedblocks()
    text[digits] = b"%20d" % figure[0]


# What the first time takes for good is there then. And the interpreter has looked up all methods that it adapts its code
# for: each comes into its cache of them and may put out another, with it the last reference to that one's name.
for _ in range(100):
    count_blocks()
count_blocks()  # without the loop's iterator
# From here on nothing is allocated.
write(1, text)
read(buffer)
