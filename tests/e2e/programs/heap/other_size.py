# SPDX-License-Identifier: Apache-2.0
"""Objects whose type says, once they are there, that they are larger: as if others lay where they were allocated."""
import ctypes
import sys


class Claiming:
    __slots__ = ("a", "b")


print("ready", flush=True)
sys.stdin.readline()
kept = [Claiming() for _ in range(2000)]
size = ctypes.c_ssize_t.from_address(id(Claiming) + 32)  # tp_basicsize
size.value += 8
print("done", flush=True)
sys.stdin.readline()
size.value -= 8
