# SPDX-License-Identifier: Apache-2.0
"""Code that is compiled, run and dropped, again and again: each finds the memory of the one before it. usage: short_lived.py COUNT

The i-th block, of 20000 + i bytes, is made by line 1 of file<i>.py; and another by line i + 1 of same.py.
"""
import sys

count = int(sys.argv[1])
kept = [None] * (2 * count)
for i in range(count):
    exec(compile("kept[%d] = bytearray(%d)" % (i, 20000 + i), "file%d.py" % i, "exec"))
for i in range(count):
    exec(compile("\n" * i + "kept[%d] = bytearray(%d)" % (count + i, 20000 + i), "same.py", "exec"))
