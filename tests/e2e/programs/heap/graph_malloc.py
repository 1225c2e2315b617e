# SPDX-License-Identifier: Apache-2.0
"""Objects and tables of malloc's heap, a table in the middle of which the kernel has divided the
heap, and types whose descriptors point into the middle of a block. It prints the address of that
table's list and "ready"."""
import ctypes
import grp
import os
import pwd
import resource
import sys
import time

M_MMAP_THRESHOLD, MADV_HUGEPAGE, PAGE = -3, 14, 4096
libc = ctypes.CDLL(None, use_errno=True)
libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
types = [pwd.struct_passwd, grp.struct_group, resource.struct_rusage, os.stat_result, time.struct_time]
texts = ["%d " % number * 200 for number in range(30000)]
lists = [[str(number * 100 + item) for item in range(100)] for number in range(1000)]
divided = [str(number) + "!" for number in range(200000)]
items = ctypes.c_uint64.from_address(id(divided) + 24).value
half = (items + len(divided) * 4) // PAGE * PAGE
assert not libc.madvise(ctypes.c_void_p(half), 64 * PAGE, MADV_HUGEPAGE), ctypes.get_errno()
with open("/proc/self/maps") as file:
    bounds = [line.split("-")[0] for line in file]
assert "%08x" % half in bounds
print(id(divided), flush=True)
print("ready", flush=True)
sys.stdin.readline()
