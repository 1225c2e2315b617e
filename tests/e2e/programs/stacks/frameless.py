# SPDX-License-Identifier: Apache-2.0
# frameless.c's thread, from the library in argv[1]: a block of 100000 bytes of a thread that has no
# Python frame.
import ctypes
import sys

library = ctypes.CDLL(sys.argv[1])
library.in_thread.argtypes = [ctypes.c_ssize_t]
print("ready", flush=True)
sys.stdin.readline()
print(library.in_thread(100000), flush=True)
sys.stdin.readline()
