# SPDX-License-Identifier: Apache-2.0
"""Blocks that Python's allocator passes on to malloc, and what the C library says of them. Speaks as golden.py does."""
import ctypes
import json
import sys

FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]


mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Mallinfo2


def work(kept, step):
    for i in range(5000):
        kept[(step, i)] = bytearray(600 + i % 3000)  # line BUFFER
        if i % 3 == 0:
            del kept[(step, i)]


def tell(kept):
    info = mallinfo2()
    print(json.dumps({"buffers": [sum(len(b) + 1 for b in kept.values()), len(kept)], "malloc": [info.uordblks + info.hblkhd, info.hblks]}), flush=True)


def main():
    kept = {}
    print("ready", flush=True)
    tell(kept)
    for step, _ in enumerate(sys.stdin):
        work(kept, step)
        tell(kept)


main()
