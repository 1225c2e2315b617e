# SPDX-License-Identifier: Apache-2.0
"""Sub-interpreters, each on a thread of its own; from 3.12 on with a GIL and a heap of its own. usage: interpreters.py [COUNT [ROUNDS]]

Prints "ready", waits for a line, works (interpreters_work.py), prints what is live there as golden.py does, waits again and
ends.
"""
import gc
import os
import sys
import threading

try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

gc.disable()
count = int(sys.argv[1]) if len(sys.argv) > 1 else 4
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
work = os.path.join(os.path.dirname(os.path.abspath(__file__)), "interpreters_work.py")
with open(work) as file:
    script = "rounds = %d\nexec(compile(%r, %r, 'exec'))" % (rounds, file.read(), work)
others = [interpreters.create() for _ in range(count)]


def run(code):
    threads = [threading.Thread(target=interpreters.run_string, args=(other, code)) for other in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


run(script)
run("fill()")  # what comes of running it the first time
run("clear()")
os.write(1, b"ready\n")
os.read(0, 100)
run("fill()")
live = {
    "B": [count * rounds * sys.getsizeof(bytes(700)), count * rounds],
    "E": [count * rounds * sys.getsizeof(100 * "x"), count * rounds],
    "D": [0, 0],
}
os.write(1, ("%s\n" % live).replace("'", '"').encode())
os.read(0, 100)
for other in others:
    interpreters.destroy(other)
