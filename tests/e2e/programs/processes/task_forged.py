# SPDX-License-Identifier: Apache-2.0
"""_asyncio says of a dict that it has the running tasks. It has many entries, by what it says of
itself. Prints "ready", waits for a line, keeps blocks in a task on line F, waits for stdin's end."""
import _asyncio
import asyncio
import ctypes
import gc
import os
import sys

KEYS = 32  # offset of ma_keys
COUNT = 24 if sys.version_info >= (3, 11) else 32  # of dk_nentries
kept = [None] * 100


async def main():
    for i in range(100):
        kept[i] = bytes(300)  # line F: one block each


gc.disable()
asyncio.run(asyncio.sleep(0))
forged = {1: 2}
count = ctypes.c_uint64.from_address(ctypes.c_uint64.from_address(id(forged) + KEYS).value + COUNT)
true = count.value
count.value = (1 << 32) - 1
_asyncio._current_tasks = forged
os.write(1, b"ready\n")
os.read(0, 100)
asyncio.run(main())
count.value = true
os.write(1, b"kept\n")
os.read(0, 100)
