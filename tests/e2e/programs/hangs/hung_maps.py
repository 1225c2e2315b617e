# SPDX-License-Identifier: Apache-2.0
"""A process that has mapped a file whose reads never return: as code, and with "arena" over an arena
of its own heap, too, whose blocks nobody uses any more. It allocates all the time.

argv: the file ["arena"]. Prints "ready"; ends with its stdin, without looking at the arena again.
"""
import ctypes
import mmap
import os
import select
import sys

ARENA = 1 << 20  # 256 KiB up to 3.9: then it is four
PRIVATE_FIXED = 0x12
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]


def file_map(fd, at, protection, flags):
    got = libc.mmap(at, ARENA, protection, flags, fd, 0)
    assert got not in (None, ctypes.c_void_p(-1).value), "mmap"
    return got


fd = os.open(sys.argv[1], os.O_RDONLY)
file_map(fd, None, mmap.PROT_READ | mmap.PROT_EXEC, mmap.MAP_PRIVATE)
if len(sys.argv) > 2:
    blocks = [bytes(400) for _ in range(20000)]  # in blocks of 448 bytes: 8 MiB
    inside = {}
    for block in blocks:
        inside[id(block) // ARENA] = inside.get(id(block) // ARENA, 0) + 1
    # One that is full of them: 36 in a pool of 16 KiB, 9 in one of 4 KiB.
    full = [arena for arena, count in inside.items() if count >= ARENA // 4096 * 8]
    file_map(fd, full[len(full) // 2] * ARENA, mmap.PROT_READ | mmap.PROT_WRITE, PRIVATE_FIXED)
print("ready", flush=True)
while not select.select([0], [], [], 0.02)[0]:
    kept = [bytearray(100) for _ in range(50)]
os._exit(0)
