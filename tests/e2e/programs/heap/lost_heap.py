# SPDX-License-Identifier: Apache-2.0
"""
A CPython 3.10 or 3.11 with symbols, whose heap cannot be read any more from its first line of input on: it claims to have more arenas than there
can be, which the allocator itself does not look at. Then objects live (K) and die (D).
"""
import ctypes
import os
import sys

from forged_heap import variables

maximum = ctypes.c_uint32.from_address(variables()[1])
truth = maximum.value
print("ready", flush=True)
sys.stdin.readline()
maximum.value = 1 << 21
print("lost", flush=True)
sys.stdin.readline()
kept = [bytes(200) for _ in range(1000)]  # line K
for _ in range(20):
    died = [bytes(300) for _ in range(1000)]  # line D
del died
print("done", flush=True)
sys.stdin.readline()
maximum.value = truth
os._exit(0)
