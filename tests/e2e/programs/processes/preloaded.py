# SPDX-License-Identifier: Apache-2.0
"""A service that forks its workers after it has loaded its data.
usage: preloaded.py WORKERS MEGABYTES [objects] [freeze] [late]

The data are strings, or objects that the collector tracks; freeze: gc.freeze() before the fork;
late: the data are loaded after a line on stdin, for which "ready" asks.
Prints the PIDs of the workers as JSON once all of them wait. A line on stdin is for each worker:
"touch N" reads the first N megabytes of the data, which changes their reference counts, "collect"
runs the collector; "done" answers it. Ends with its stdin.
"""
import gc
import json
import os
import sys

workers, megabytes = int(sys.argv[1]), int(sys.argv[2])


class Order:
    __slots__ = ("number", "lines", "a", "b", "c", "d", "e", "f")

    def __init__(self, number):
        self.number = number


def make(number):
    """A megabyte."""
    if "objects" in sys.argv:
        return [Order(number) for _ in range(10000)]
    # 512 bytes: eight to a page
    return ["%0450d" % (number * 2048 + i) for i in range(2048)]  # line TEXT


if "late" in sys.argv:
    print("ready", flush=True)
    sys.stdin.readline()
DATA = [make(number) for number in range(megabytes)]
gc.collect()
gc.disable()
if "freeze" in sys.argv:
    gc.freeze()


def work(commands, answers):
    answers.write("ready\n")
    answers.flush()
    for line in commands:
        if line.startswith("touch"):
            for part in DATA[: int(line.split()[1])]:
                kept = list(part)  # one more reference to each
                del kept[:]
        else:
            gc.collect()
        answers.write("done\n")
        answers.flush()
    os._exit(0)


started = []
for _ in range(workers):
    inner, outer = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        for _, commands, answers in started:
            commands.close()
        os.close(inner[1])
        work(os.fdopen(inner[0]), os.fdopen(outer[1], "w"))
    os.close(inner[0])
    os.close(outer[1])
    started.append((pid, os.fdopen(inner[1], "w"), os.fdopen(outer[0])))
for _, _, answers in started:
    answers.readline()
print(json.dumps([pid for pid, _, _ in started]), flush=True)
for line in sys.stdin:
    for _, commands, answers in started:
        commands.write(line)
        commands.flush()
        answers.readline()
    print("done", flush=True)
for pid, commands, _ in started:
    commands.close()
    os.waitpid(pid, 0)
