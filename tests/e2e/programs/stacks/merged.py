# SPDX-License-Identifier: Apache-2.0
# Python called by C that was called by Python, in several ways. Each way ends in a block of its own
# size from malloc. Prints for each block the file and line of all frames, most recent first, and the
# indices of those that were called by C code outside of the interpreter.
import ctypes
import functools
import gc
import json
import sys
import threading

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
told = []


def allocate(size):
    frame, lines, by_c = sys._getframe(), [], []
    while frame:
        if frame.f_code.co_name == "compare":
            by_c.append(len(lines))
        lines.append([frame.f_code.co_filename, frame.f_lineno])
        frame = frame.f_back
    told.append({"size": size, "lines": lines, "by_c": by_c})
    libc.malloc(size)


def through_qsort(function):
    """Calls the function from libc's qsort()."""
    calls = []

    def compare(_one, _two):
        if not calls:
            calls.append(1)
            function()
        return 0

    libc.qsort((ctypes.c_int * 2)(2, 1), 2, 4, COMPARE(compare))


def plain():
    allocate(100001)


def twice():
    through_qsort(plain_inside)


def plain_inside():
    functools.reduce(lambda one, two: allocate(100002), [1, 2])


def generator():
    def inside():
        yield through_qsort(generated)

    sorted([1], key=lambda _: list(map(lambda _: next(inside()), [1])))


def generated():
    allocate(100003)


def coroutine():
    async def inner():
        through_qsort(awaited)

    async def outer():
        await inner()

    try:
        outer().send(None)
    except StopIteration:
        pass


def awaited():
    allocate(100004)


class Cycle:
    def __init__(self):
        self.me = self

    def __del__(self):
        through_qsort(deleted)


def deleted():
    allocate(100005)


def collected():
    Cycle()
    gc.collect()


def none():
    allocate(100006)


def deep(depth=30):
    if depth:
        return deep(depth - 1)
    through_qsort(in_depth)


def in_depth():
    allocate(100007)


def in_thread():
    through_qsort(threaded)


def threaded():
    allocate(100008)


def main():
    through_qsort(plain)
    through_qsort(twice)
    generator()
    coroutine()
    collected()
    none()
    deep()
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()


gc.disable()
print("ready", flush=True)
sys.stdin.readline()
main()
print(json.dumps(told), flush=True)
sys.stdin.readline()
