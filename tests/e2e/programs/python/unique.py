# SPDX-License-Identifier: Apache-2.0
"""COUNT code objects with names of their own, one after the other, each with a line table of BYTES; nothing of them is kept."""
import sys
import time

count, size = map(int, sys.argv[1:3])
print("ready", flush=True)
sys.stdin.readline()
one = compile("x = [[]]\n", "one.py", "exec")
table = bytes(one.co_linetable)
table += b"\xf8" * (size - len(table))
for number in range(count):
    name = "%d_%s" % (number, "n" * 200)
    exec(one.replace(co_linetable=table, co_name=name, co_filename=name + ".py"), {})
    if number % 50 == 0:
        time.sleep(0.02)  # so that the ring buffer has room for all of it
print("done", flush=True)
sys.stdin.readline()
