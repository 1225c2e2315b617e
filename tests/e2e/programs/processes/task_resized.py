# SPDX-License-Identifier: Apache-2.0
"""asyncio whose tasks are larger than those of any release. Prints "ready", waits for a line."""
import _asyncio
import asyncio
import ctypes
import os

SIZE = 32  # offset of tp_basicsize

ctypes.c_uint64.from_address(id(_asyncio.Task) + SIZE).value = 4096
asyncio.run(asyncio.sleep(0))
os.write(1, b"ready\n")
os.read(0, 100)
