# SPDX-License-Identifier: Apache-2.0
"""Objects whose types are damaged: a name that is not mapped, one that ends with its page, one that is long, and types
that are each other's type. Says so, then stands still."""
import ctypes
import gc
import mmap
import os
import signal

PAGE = 4096
TP_NAME = 24
OB_TYPE = 8


class Unnamed:
    pass


class Cut:
    pass


class Loop:
    pass


class Round:
    pass


def put(address, value):
    ctypes.c_uint64.from_address(address).value = value


gc.disable()
long = type("x" * 1000, (), {})
kept = [[kind() for _ in range(1000)] for kind in (Unnamed, Cut, Loop, long)]
pages = mmap.mmap(-1, 2 * PAGE)
start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
pages[PAGE - 4:PAGE] = b"\x1b[2J"
ctypes.CDLL(None).munmap(ctypes.c_void_p(start + PAGE), ctypes.c_size_t(PAGE))
put(id(Unnamed) + TP_NAME, PAGE)
put(id(Cut) + TP_NAME, start + PAGE - 4)
put(id(Loop) + OB_TYPE, id(Round))
put(id(Round) + OB_TYPE, id(Loop))
os.write(1, b"ready\n")
while True:
    signal.pause()
