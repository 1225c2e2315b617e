# SPDX-License-Identifier: Apache-2.0
"""asyncio's table of methods says that Task.set_name() begins within an instruction. Prints "ready",
waits for stdin's end."""
import _asyncio
import ctypes
import os

METHOD = 40  # offset of d_method in PyMethodDescrObject
FUNCTION = 8  # offset of ml_meth in PyMethodDef

word = ctypes.c_uint64.from_address
entry = word(id(_asyncio.Task.__dict__["set_name"]) + METHOD).value
word(entry + FUNCTION).value += 1
os.write(1, b"ready\n")
os.read(0, 100)
