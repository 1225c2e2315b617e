# SPDX-License-Identifier: Apache-2.0
"""A process that keeps its own mmap lock taken: threads change the protection of a large mapping of
zero pages, which takes page tables alone, again and again.

argv: GiB, threads. Prints "ready"; ends with its stdin.
"""
import ctypes
import os
import sys
import threading

BYTES = int(sys.argv[1]) << 30
PRIVATE_NORESERVE = 0x4022
NOHUGEPAGE, POPULATE_READ = 15, 22
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.madvise.argtypes = libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def toggle():
    while True:
        libc.mprotect(area, BYTES, 0)
        libc.mprotect(area, BYTES, 1)


area = libc.mmap(None, BYTES, 1, PRIVATE_NORESERVE, -1, 0)
libc.madvise(area, BYTES, NOHUGEPAGE)
if libc.madvise(area, BYTES, POPULATE_READ):
    sys.exit("before Linux 5.14 pages cannot be populated")
for _ in range(int(sys.argv[2])):
    threading.Thread(target=toggle, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
os._exit(0)
