# SPDX-License-Identifier: Apache-2.0
"""A value that changes, and is freed, while another thread makes blocks with it without the GIL.
usage: label_changing.py

Prints "ready", waits for a line, works, prints how often line L has compressed and how often the value
has changed, waits for stdin's end.
"""
import contextvars
import json
import lzma
import sys
import threading

variable = contextvars.ContextVar("label.changing")
DATA = bytes(range(256)) * 64
TIMES = 60


class Job:
    __slots__ = ("part",)


def compress():
    done = 0
    for _ in range(TIMES):
        done += len(lzma.compress(DATA, preset=0)) > 0  # line L: requests memory without the GIL
    return done


def work():
    job, changes = Job(), 0
    variable.set(job)
    results = []
    contexts = [contextvars.copy_context() for _ in range(2)]
    threads = [
        threading.Thread(target=lambda each=each: results.append(each.run(compress)))
        for each in contexts
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for part in (["first"] * 20, ("second", changes), [], None, {"0": changes}):
            job.part = part
        del job.part
        changes += 6
    print(json.dumps({"compressed": sum(results), "changes": changes}), flush=True)


print("ready", flush=True)
sys.stdin.readline()
work()
sys.stdin.read()
