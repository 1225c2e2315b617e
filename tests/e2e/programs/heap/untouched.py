# SPDX-License-Identifier: Apache-2.0
"""Has memory that was read and never written, large and small pages, shared memory, and a child that
shares its pages."""
import ctypes
import mmap
import os
import signal

MIB = 1 << 20
read_only = mmap.mmap(-1, 32 * MIB, flags=mmap.MAP_PRIVATE)
total = sum(read_only[i] for i in range(0, 32 * MIB, 4096))
written = mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE)
written.madvise(14)  # MADV_HUGEPAGE
for i in range(0, 40 * MIB, 4096):
    written[i] = 1
shared = mmap.mmap(-1, 8 * MIB)
shared.write(b"x" * (3 * MIB))
libc = ctypes.CDLL(None)
libc.calloc.restype = ctypes.c_void_p
block = libc.calloc(1, 24 * MIB)
ctypes.string_at(block, 6 * MIB)  # reads zeros
ctypes.memset(block + 12 * MIB, 1, 2 * MIB)
if not os.fork():
    signal.pause()
    os._exit(0)
print("ready", flush=True)
signal.pause()
