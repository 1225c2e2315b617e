# SPDX-License-Identifier: Apache-2.0
"""Objects of many kinds, most of them through the interpreter's own fast paths. usage: mixed.py [ROUNDS]

Prints "ready", waits for a line, works, prints an empty {} and waits again. What it keeps is not foretold.
"""
import os
import sys

rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2000


def leaf(i):
    return [i * 1000003, str(i), {"k": i}, (i, i + 1), bytearray(600)]


def churn(i):
    for j in range(8):
        (i, j, str(j) * 3)


def work():
    kept = []
    for i in range(rounds):
        kept.append(leaf(i))
        churn(i)
    return kept


os.write(1, b"ready\n")
os.read(0, 100)
kept = work()
os.write(1, b"{}\n")
os.read(0, 100)
