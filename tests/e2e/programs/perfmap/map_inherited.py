# SPDX-License-Identifier: Apache-2.0
"""A function in generated code (x86-64), with an entry in the map; each line on stdin is a file, until whose
existence a forked child runs the function. CPython (3.12 and later) writes nothing of it into the child's map."""
import ctypes
import mmap
import os
import sys

LOOP = b"\x48\xff\xcf\x75\xfb\xc3"  # dec %rdi; jne; ret
write = ctypes.pythonapi.PyUnstable_WritePerfMapEntry
write.argtypes = (ctypes.c_void_p, ctypes.c_uint, ctypes.c_char_p)
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code[: len(LOOP)] = LOOP
address = ctypes.addressof(ctypes.c_char.from_buffer(code))
write(address, len(LOOP), b"inherited")
function = ctypes.CFUNCTYPE(None, ctypes.c_uint64)(address)
print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if not child:
        ctypes.pythonapi.PyUnstable_PerfMapState_Fini()
        write(address + 64, 8, b"own")
        while not os.path.exists(line.strip()):
            function(1000000)
        os._exit(0)
    print(child, flush=True)
