# SPDX-License-Identifier: Apache-2.0
"""A stack as deep as argv 1 of functions whose line tables are as long as argv 2 says, all new at once; the innermost allocates."""
import sys
import time


def make(depth, size, inner):
    """A function of its own, with a table of so many bytes, that calls inner."""

    def call():
        return inner()  # line C

    # What comes behind the last instruction's entry nobody decodes.
    table = call.__code__.co_linetable + b"\x80" * size
    call.__code__ = call.__code__.replace(co_linetable=table, co_firstlineno=call.__code__.co_firstlineno, co_name="call%d" % depth)
    return call


def innermost():
    return bytearray(500)


def main():
    call = innermost
    for depth in range(int(sys.argv[1])):
        call = make(depth, int(sys.argv[2]), call)
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter_ns()
    kept = call()  # noqa: F841
    print(time.perf_counter_ns() - began, flush=True)
    sys.stdin.readline()


main()
