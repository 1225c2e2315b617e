# SPDX-License-Identifier: Apache-2.0
"""What the commands in the documents are tried on: allocates all the time, keeps little. usage: documented.py [LIBPOOL]

Prints "ready"; for every line on stdin it makes an object and prints its id(). Ends with its stdin.
"""
import ctypes
import os
import select
import sys

pool = ctypes.CDLL(sys.argv[1]) if len(sys.argv) > 1 else None
if pool:
    pool.pool_get.restype, pool.pool_get.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_size_t)
    pool.pool_put.restype, pool.pool_put.argtypes = None, (ctypes.c_void_p, ctypes.c_void_p)
kept, asked_for = {}, []
turn = 0
os.write(1, b"ready\n")
while True:
    for _ in range(20):
        kept[turn % 500] = [bytearray(100 + turn % 50) for _ in range(3)]
        turn += 1
    if pool:
        pool.pool_put(None, pool.pool_get(None, 100))
    if select.select([0], [], [], 0.02)[0]:
        if not os.read(0, 100):
            break
        asked_for.append(bytearray(300))
        os.write(1, b"%d\n" % id(asked_for[-1]))
