# SPDX-License-Identifier: Apache-2.0
"""Maps files as a loader maps code, and waits. usage: sparse.py FILE..."""
import mmap
import os
import sys

maps = []
for path in sys.argv[1:]:
    fd = os.open(path, os.O_RDONLY)
    maps.append(mmap.mmap(fd, 8192, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC))
    os.close(fd)
print("ready", flush=True)
sys.stdin.read()
