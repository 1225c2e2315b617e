# SPDX-License-Identifier: Apache-2.0
"""Calls the next program as soon as somebody has placed a probe in this one.

Prints "ready", compares its interpreter's code with what it was until a byte differs, and execs the same interpreter with the
program and arguments that it was given. usage: exec_when_probed.py PROGRAM [ARGUMENT]...
"""
import ctypes
import os
import sys

texts = []
with open("/proc/self/maps") as file:
    for line in file:
        fields = line.split()
        if "x" in fields[1] and "python" in os.path.basename(fields[-1]):
            start, end = (int(address, 16) for address in fields[0].split("-"))
            texts.append((start, ctypes.string_at(start, end - start)))

os.write(1, b"probe me\n")
while all(ctypes.string_at(start, len(text)) == text for start, text in texts):
    pass
os.execv(sys.executable, [sys.executable] + sys.argv[1:])
