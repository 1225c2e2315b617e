# SPDX-License-Identifier: Apache-2.0
"""Objects with a reference that nothing holds, as faulty C code leaves them behind."""
import ctypes
import sys

COUNT = int(sys.argv[1])


class Lost:
    __slots__ = ()


for _ in range(COUNT):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(Lost()))
print("ready", flush=True)
sys.stdin.readline()
