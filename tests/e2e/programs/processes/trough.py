# SPDX-License-Identifier: Apache-2.0
"""Used 32 MiB more once, and gave it back."""
import mmap
import sys

PEAK = 32 << 20
block = mmap.mmap(-1, PEAK)
for page in range(0, PEAK, mmap.PAGESIZE):
    block[page] = 1
block.close()
print("ready", flush=True)
sys.stdin.readline()
