# SPDX-License-Identifier: Apache-2.0
"""A heap whose list of arenas names the same full arena COUNT times (CPython 3.10 and 3.11, whose allocator does not look there)."""
import ctypes
import mmap
import os
import struct
import subprocess
import sys

ARENA, POOL, HEADER, BLOCK = 1 << 20, 1 << 14, 48, 16
count = int(sys.argv[1])
with open("/proc/self/maps") as file:
    maps = [line.split() for line in file]
library = next(m[5] for m in maps if len(m) > 5 and "libpython" in m[5])
base = next(int(m[0].split("-")[0], 16) for m in maps if len(m) > 5 and m[5] == library)
symbols = {}
for line in subprocess.run(["nm", library], stdout=subprocess.PIPE, check=True).stdout.decode().splitlines():
    parts = line.split()
    if len(parts) == 3:
        symbols[parts[2]] = base + int(parts[0], 16)
arenas = ctypes.c_uint64.from_address(symbols["arenas"])
maximum = ctypes.c_uint32.from_address(symbols["maxarenas"])

memory = mmap.mmap(-1, 2 * ARENA)
arena = (ctypes.addressof(ctypes.c_char.from_buffer(memory)) + ARENA - 1) & ~(ARENA - 1)
blocks = (POOL - HEADER) // BLOCK
for pool in range(arena, arena + ARENA, POOL):
    head = struct.pack("<IIQQQIIII", blocks, 0, 0, 0, 0, 0, 0, HEADER + blocks * BLOCK, POOL - BLOCK)
    ctypes.memmove(pool, head, len(head))
lies = struct.pack("<QQIIQQQ", arena, arena + ARENA, 0, ARENA // POOL, 0, 0, 0) * count
kept = ctypes.create_string_buffer(lies, len(lies))
truth = arenas.value, maximum.value
maximum.value = count
arenas.value = ctypes.addressof(kept)
os.write(1, b"ready\n")
os.read(0, 1)
arenas.value, maximum.value = truth
