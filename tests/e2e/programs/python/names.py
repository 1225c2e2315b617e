# SPDX-License-Identifier: Apache-2.0
"""Functions by every kind of name. usage: names.py    speaks as golden.py does; then says {function: [bytes, blocks]}"""
import gc
import json
import os
import sys

gc.disable()
kept = []


def again(depth, n):
    if depth:
        return again(depth - 1, n)
    kept.append(bytes(n))


class Worker:
    def again(self, n):
        kept.append(bytes(n))
        again(3, n)


def function(name, filename=None):
    """One that keeps a block, and is called that."""
    code = compile("def f(n): kept.append(bytes(n))", filename or __file__, "exec")
    space = {"kept": kept}
    exec(code, space)
    changes = {"co_name": name, "co_qualname": name} if sys.version_info >= (3, 11) else {"co_name": name}
    space["f"].__code__ = space["f"].__code__.replace(**changes)
    return space["f"]


NAMES = ["line\nend", "red\x1b[31m\x07", "x" * 1000, "h\u00e9\U0001f600", "frog\udcff", "lone\ud800", "c1\x9b", "_ZN3foo3barEv", "a:12", " ;'\"\\ "]
functions = [function(name) for name in NAMES] + [function("again", "/srv/other\nfile.py")]
worker = Worker()
kept.extend([None] * 10000)
del kept[:]
os.write(1, b"ready\n")
os.read(0, 100)
for number, f in enumerate(functions):
    f(1000 + number)
worker.again(2000)
os.write(1, (json.dumps([[NAMES[i] if i < len(NAMES) else None, sys.getsizeof(kept[i])] for i in range(len(functions))]) + "\n").encode())
os.read(0, 100)
