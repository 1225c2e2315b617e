# SPDX-License-Identifier: Apache-2.0
"""Cycles that nothing holds, in the state of the collector that its argument names. Each holds a
buffer that was made before it. It prints how many objects a collection found, or freed."""
import gc
import sys

COUNT, BYTES = 200, 50000


class Node:
    def __init__(self, data):
        self.me = self
        self.data = data


def leave():
    early = [bytearray(BYTES) for i in range(COUNT)]
    for node in [Node(data) for data in early]:
        pass


how = sys.argv[1]
gc.collect()
if how == "threshold":
    gc.set_threshold(0)
else:
    gc.disable()
if how == "listed":
    gc.set_debug(gc.DEBUG_SAVEALL)
leave()
if how == "frozen":
    gc.freeze()
if how in ("frozen", "on"):
    gc.enable()
freed = gc.collect() if how in ("frozen", "listed") else 0
if how == "listed":
    gc.set_debug(0)
    freed = len([each for each in gc.garbage if isinstance(each, Node)])
print(freed, flush=True)
print("ready", flush=True)
sys.stdin.readline()
