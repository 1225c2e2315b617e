# SPDX-License-Identifier: Apache-2.0
"""
CPython 3.12 and later with so many interpreters (argv 1), each with a heap of its own. argv 2, "endless": the last one of their
list leads to the first.
"""
import ctypes
import sys

try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters


def states():
    api = ctypes.pythonapi
    for function in (api.PyInterpreterState_Head, api.PyInterpreterState_Next):
        function.restype = ctypes.c_void_p
    api.PyInterpreterState_Next.argtypes = [ctypes.c_void_p]
    found = [api.PyInterpreterState_Head()]
    while found[-1]:
        found.append(api.PyInterpreterState_Next(found[-1]))
    return found


def word(address):
    return ctypes.c_uint64.from_address(address)


def main():
    kept = [interpreters.create() for _ in range(int(sys.argv[1]))]
    found = states()
    assert len(found) == len(kept) + 2
    pairs = list(zip(found, found[1:]))
    link = next(at for at in range(0, 1 << 16, 8) if all(word(this + at).value == (following or 0) for this, following in pairs))
    finish = ctypes.pythonapi.Py_FinalizeEx
    print("ready", flush=True)
    sys.stdin.readline()
    if sys.argv[2] == "endless":
        word(found[-2] + link).value = found[0]
    finish()


main()
