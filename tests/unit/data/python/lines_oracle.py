# SPDX-License-Identifier: Apache-2.0
"""What PyCode_Addr2Line itself says: for every code object of some files of the standard library and of the
corner cases below, one line "first table-hex line,line,...", the lines from lasti -1 to beyond the end."""
import ctypes
import os
import sys
import types

CASES = """
def f(a,
      b=[x for x in range(3) if x],
      *,
      c=lambda: (yield)):
    try:
        with open(a) as g, open(
                b) as h:
            for i in g:
                if i: continue
                while True: break
    except (ValueError,
            TypeError) as error:
        raise RuntimeError from error
    finally:
        del a
    return (
        f(
            1,
            2)
        +
        c)
async def g():
    async for x in y: await x
    async with x: pass
    return [a async for a in b]
class C:
    x: int = 1
    def m(self): return super().m
"""
FILES = ["argparse.py", "dataclasses.py", "enum.py", "asyncio/base_events.py"]

addr2line = ctypes.pythonapi.PyCode_Addr2Line
addr2line.argtypes = [ctypes.py_object, ctypes.c_int]
addr2line.restype = ctypes.c_int


def dump(code):
    table = code.co_linetable if sys.version_info >= (3, 10) else code.co_lnotab
    lines = [addr2line(code, lasti) for lasti in range(-1, len(code.co_code) + 6)]
    print(code.co_firstlineno, table.hex() or "-", ",".join(map(str, lines)))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            dump(constant)


dump(compile(CASES, "cases", "exec"))
dump(compile("\n" * 70000 + CASES + "\n" * 700 + "x = 1\nif x:\n" + "\n" * 300 + "  pass", "far", "exec"))
for name in FILES:
    with open(os.path.join(os.path.dirname(os.__file__), name), encoding="utf-8") as file:
        dump(compile(file.read(), name, "exec"))
