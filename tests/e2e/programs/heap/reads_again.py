# SPDX-License-Identifier: Apache-2.0
"""reads_again.py FILE: after a line on stdin it reads pages of the file in no order, until stdin
ends."""
import mmap
import random
import select
import sys

with open(sys.argv[1], "rb") as file:
    pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
pages.madvise(mmap.MADV_RANDOM)
print("ready", flush=True)
sys.stdin.readline()
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(1000):
        pages[random.randrange(len(pages))]
