# SPDX-License-Identifier: Apache-2.0
"""A Python with jemalloc preloaded. For each line that it reads it prints what jemalloc itself
counts, as JSON; after "purge" it returns free pages before."""
import ctypes
import json
import sys

library = ctypes.CDLL(None)


def count_of(name):
    value, size = ctypes.c_size_t(), ctypes.c_size_t(8)
    library.mallctl(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0)
    return value.value


buffers = [bytearray(5000) for _ in range(10000)]
records = [{"number": i, "text": "x" * (i % 900)} for i in range(50000)]
del buffers[::2]
print("ready", flush=True)
for line in sys.stdin:
    if line.startswith("purge"):
        library.mallctl(b"arena.4096.purge", None, None, None, 0)
    epoch = ctypes.c_uint64(1)
    library.mallctl(b"epoch", None, None, ctypes.byref(epoch), 8)
    names = ("allocated", "active", "mapped", "retained")
    print(json.dumps({name: count_of("stats." + name) for name in names}), flush=True)
