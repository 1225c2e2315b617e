# SPDX-License-Identifier: Apache-2.0
"""COUNT perf map entries, and FORKS children that end at once (CPython 3.12 and later)."""
import ctypes
import mmap
import os
import sys

count, forks = map(int, sys.argv[1:3])
api = ctypes.pythonapi
api.PyUnstable_WritePerfMapEntry.argtypes = (ctypes.c_void_p, ctypes.c_uint, ctypes.c_char_p)
api.PyUnstable_PerfMapState_Init()
code = mmap.mmap(-1, count * 16, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
base = ctypes.addressof(ctypes.c_char.from_buffer(code))
persist = getattr(api, "PyUnstable_PerfTrampoline_SetPersistAfterFork", None)
if persist:
    persist(1)
for number in range(count):
    api.PyUnstable_WritePerfMapEntry(base + 16 * number, 16, b"a_name_that_is_rather_long_but_not_too_long_%d" % number)
for _ in range(forks):
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
