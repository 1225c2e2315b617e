# SPDX-License-Identifier: Apache-2.0
"""Measures how long a real-time task waits while traced processes end. A SCHED_FIFO task sleeps for
a millisecond repeatedly on the processor on which they end. The walk of their last heap runs in the
kernel, in a program that cannot be interrupted.

    bench_latency.py [ENDS]        ENDS processes of each kind (default 500); root

honest: forked from a program with a heap of 48 MB, half of which is freed. hostile: a process with
forged arenas. Prints the longest wait and the 99.9th percentile, without the tracer and with it;
asserts nothing.
"""
import os
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tools")]

import pythons  # noqa: E402

CPU = os.cpu_count() - 1
PROGRAMS = os.path.join(ROOT, "tests", "e2e", "programs", "heap")
PARENT = """
import ctypes, os, random, sys
sys.path.insert(0, %r)
import forged_heap
kind, ends = sys.argv[1], int(sys.argv[2])
libc = forged_heap.libc_of()
if kind == "honest":
    blocks = [n.to_bytes(8, "little") for n in range(1000000)]
    dropped = list(range(0, len(blocks), 2))
    random.Random(1).shuffle(dropped)
    for n in dropped:
        blocks[n] = None
    forge = lambda: None
else:
    forge = forged_heap.forger(libc, 100000, "loop")
print("ready", flush=True)
sys.stdin.readline()
for n in range(ends):
    child = os.fork()
    if not child:
        forge()
        libc._exit(0)
    os.waitpid(child, 0)
"""


def neighbour(pipe):
    """Measures until SIGTERM: waits beyond a millisecond, in seconds."""
    os.sched_setaffinity(0, {CPU})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    waits, stop = [], []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    last = time.monotonic()
    while not stop:
        time.sleep(0.001)
        now = time.monotonic()
        waits.append(now - last - 0.001)
        last = now
    waits.sort()
    os.write(pipe, ("%f %f" % (waits[-1], waits[len(waits) * 999 // 1000])).encode())


def measure(python, kind, ends, tracer):
    target = subprocess.Popen(
        ["taskset", "-c", str(CPU), python, "-c", PARENT % PROGRAMS, kind, str(ends)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    target.stdout.readline()
    run = None
    if tracer:
        run = subprocess.Popen(
            [tracer, "--overhead=0", "-p", str(target.pid), "--top", "0"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        while b"attached to" not in run.stderr.readline():
            assert run.poll() is None, "the tracer ended"
    read, write = os.pipe()
    task = os.fork()
    if not task:
        neighbour(write)
        os._exit(0)
    target.communicate(b"go\n")
    os.kill(task, signal.SIGTERM)
    longest, high = map(float, os.read(read, 64).split())
    os.waitpid(task, 0)
    if run:
        run.communicate()
    print(
        "%-8s %-14s longest %7.3f ms, 99.9 %% of them below %7.3f ms"
        % (kind, "traced" if tracer else "untraced", longest * 1e3, high * 1e3),
        flush=True,
    )


def main():
    ends = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    tracer = os.environ.get("TRACER", os.path.join(ROOT, "build", "tracer"))
    python = pythons.unstripped()["3.11"]
    for kind in ("honest", "hostile"):
        for with_tracer in (None, tracer):
            measure(python, kind, ends, with_tracer)


main()
