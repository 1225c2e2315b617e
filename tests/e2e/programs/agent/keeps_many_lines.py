# SPDX-License-Identifier: Apache-2.0
"""Keeps a block of each of 100,000 lines, again and again until its stdin ends, as a process of the
name argv[1]. The first line of each of its 100 files keeps most. Says "ready" once its name is
set."""
import select
import sys
import time

FILES, FUNCTIONS, LINES = 100, 10, 100  # lines: of a function

kept, functions = [], []
for number in range(FILES):
    text = ""
    for i in range(FUNCTIONS):
        # The line of the definition has the first statement.
        sizes = [50 if i or line else 5000 for line in range(LINES)]
        text += "def keep_%d(keep): (\n" % i + ",\n".join("keep(bytearray(%d))" % s for s in sizes)
        text += ")\n"
    names = {}
    exec(compile(text, "/srv/many/%d.py" % number, "exec"), names)
    functions += [names["keep_%d" % i] for i in range(FUNCTIONS)]
with open("/proc/self/comm", "w") as comm:
    comm.write(sys.argv[1])
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for keep in functions:
        keep(kept.append)
        time.sleep(0.001)  # so that windows see a larger part
    if len(kept) > 1000000:
        kept.clear()
