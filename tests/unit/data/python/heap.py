# SPDX-License-Identifier: Apache-2.0
"""A heap of every size class, with holes; says how many blocks it has and the address of one that lives and
the size it needs, then stands still. The figures go out through an array made before, so that saying them
allocates nothing."""
import array
import os
import signal
import sys

if "subinterpreter" in sys.argv:
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    other = interpreters.create()
    if sys.version_info >= (3, 13):
        interpreters.exec(other, "kept = [bytes(i % 600) for i in range(5000)]")
    else:
        interpreters.run_string(other, "kept = [bytes(i % 600) for i in range(5000)]")

kept = [[i * 1000003, str(i), {i: i}, bytearray(600), bytes(i % 700)] for i in range(20000)]
del kept[::3]
known = b"x" * 100
figures = array.array("q", [0, id(known), sys.getsizeof(known)])
# Looked up now: a lookup enters a name into a cache of types, and what it displaces there may be a block that dies.
blocks, write, pause = sys.getallocatedblocks, os.write, signal.pause
figures[0] = blocks()
write(1, figures)
while True:
    pause()
