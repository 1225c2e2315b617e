# SPDX-License-Identifier: Apache-2.0
"""Calls the next program as soon as somebody has placed a probe in this one.

Waits until its interpreter's code is that of the file, for the kernel removes the probes of a trace that has ended one by one.
Then it prints "probe me", waits until a byte differs, and execs the same interpreter with the program and arguments that it was
given. usage: exec_when_probed.py PROGRAM [ARGUMENT]...
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
            with open(fields[-1], "rb") as code:
                code.seek(int(fields[2], 16))
                texts.append((start, code.read(end - start)))


def is_probed():
    return any(ctypes.string_at(start, len(text)) != text for start, text in texts)


while is_probed():
    pass
os.write(1, b"probe me\n")
while not is_probed():
    pass
os.execv(sys.executable, [sys.executable] + sys.argv[1:])
