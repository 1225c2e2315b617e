# SPDX-License-Identifier: Apache-2.0
"""Takes pools into use all the time: makes many blocks and drops all of them, until there is a line
on stdin. Prints "ready" before and "done" after it."""
import os
import select

os.write(1, b"ready\n")
while not select.select([0], [], [], 0)[0]:
    len([bytes(100) for i in range(50000)])
os.write(1, b"done\n")
os.read(0, 100)
os.read(0, 100)
