# SPDX-License-Identifier: Apache-2.0
"""Blocks at the end of a long chain of calls. usage: deep.py [DEPTH]    speaks as golden.py does"""
import gc
import os
import sys

gc.disable()
depth = int(sys.argv[1]) if len(sys.argv) > 1 else 40
kept = [None]


def leaf():
    kept[0] = bytes(900)  # line B: one block


def descend(left):
    if left:
        return descend(left - 1)  # line R: all calls but two
    return leaf()  # line F: the last but one


leaf()
kept[0] = None
os.write(1, b"ready\n")
os.read(0, 100)
descend(depth)  # line M: the first
live = {"B": [sys.getsizeof(kept[0]), 1]}
os.write(1, ("%s\n" % live).replace("'", '"').encode())
os.read(0, 100)
