# SPDX-License-Identifier: Apache-2.0
"""What tracing costs twelve programs that work with libraries of Debian's (workloads/programs.py),
beside tracemalloc, memray and heaptrack.

A program works before, while and after it is traced, so that each ratio is of one process; a ratio
is the CPU time that a piece of work takes while traced, divided by the median of before and after,
with the speed of the processor taken into account. A
trace begins while the program is idle; with "idle, 1 s" it then works for one second. Programs that
another tool starts are compared with one that nothing has started. memray is that of the first root
file system that has it and the libraries (programs.PACKAGES); census and the empty probes at its
places are the only two whose ratio to each other is of two processes.
"""
import math
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time

import bench_page
import interpreters
import pythons
from workloads import programs

SECONDS, ROUNDS = 2.0, 3  # at most
IDLE = 1, 3  # seconds, between the attach and the work

TRACES = {
    "default": (),
    "default, idle, 1 s": (),
    "`--overhead 1`": ("--overhead", "1"),
    "growth": ("-m", "growth"),
    "census": ("-m", "census"),
    "exact": ("-m", "exact"),
}
EMPTY = "empty probes of census"
TRACEMALLOC = {"tracemalloc(1)": 1, "tracemalloc(25)": 25}
MEMRAY = {"memray": (), "memray, Python's allocators": ("--trace-python-allocators",)}


class Program:
    def __init__(self, python, name, before=(), options=()):
        """before: the words of a command that starts the interpreter; options: of its own"""
        script = os.path.join(python.folder, "programs.py")
        self.process = subprocess.Popen(
            [*python.prefix, *before, python.path, *options, script, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=interpreters.environment(),
            text=True,
        )
        while True:  # heaptrack prints lines of its own
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError("%s has not begun" % name)
            if line == "ready\n":
                return

    def say(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def pace(self, seconds=SECONDS):
        """CPU time of the program for a piece of work, by that of a loop that allocates nothing:
        probes run in its time, and the processor is not always as fast."""
        count, loops, work_s, loop_s = map(float, self.say(str(seconds)))
        return work_s / max(1, count) / (loop_s / loops)

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def traced(tracer, program, options):
    run = subprocess.Popen(
        [tracer, *options, "-p", str(program.process.pid), "--top", "0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    for line in run.stderr:
        if b"attached to" in line:
            return run
    raise RuntimeError("not attached")


def ratios(tracer, program):
    """(variant, ratio) of all that can begin and end while a program runs"""
    before = program.pace()
    for variant, options in TRACES.items():
        run = traced(tracer, program, options)
        time.sleep(random.uniform(*IDLE))
        during = program.pace(1.0 if "1 s" in variant else SECONDS)
        run.send_signal(signal.SIGINT)
        run.communicate()
        after = program.pace()
        yield variant, during / statistics.median((before, after))
        before = after
    for variant, frames in TRACEMALLOC.items():
        program.say("tracemalloc %d" % frames)
        during = program.pace()
        program.say("stop")
        after = program.pace()
        yield variant, during / statistics.median((before, after))
        before = after


def started_ratios(tools, python, name, plain):
    """Likewise of what starts the program."""
    bare = [tools["bare"], "-m", "census", "--"]
    starts = {EMPTY: (python, bare, ())}
    heaptrack = python.find("heaptrack")
    if heaptrack:
        output = os.path.join(python.folder, "heaptrack")
        starts["heaptrack"] = python, [heaptrack, "-o", output], ()
    for variant, start in starts.items():
        yield variant, pace_of(name, start) / plain


def memray_ratios(python, name):
    output = os.path.join(python.folder, "memray.bin")
    run = ["-m", "memray", "run", "-q", "-f", "-o", output]
    plain = pace_of(name, (python, (), ()))
    for variant, more in MEMRAY.items():
        yield variant, pace_of(name, (python, (), [*run, *more])) / plain


def pace_of(name, start):
    program = Program(start[0], name, *start[1:])
    try:
        return program.pace()
    finally:
        program.end()


def with_memray(folder):
    """An interpreter that has memray and the libraries, or None."""
    for root, path in pythons.in_roots().values():
        python = interpreters.Python(path, folder, root)
        python.prefix = ["unshare", "--mount-proc=%s/proc" % root, "chroot", root]
        test = "import memray, " + ", ".join(programs.PACKAGES)
        if not subprocess.run(
            [*python.prefix, path, "-c", test],
            stderr=subprocess.DEVNULL,
            timeout=interpreters.TIMEOUT,
        ).returncode:
            return python
        python.remove()
    print("memray is left out: no root file system has it and the libraries", file=sys.stderr)
    return None


def measure(tools, python, memray, name, rounds):
    """{variant: median of its ratios}"""
    found = {}

    def take(pairs):
        for variant, ratio in pairs:
            found.setdefault(variant, []).append(ratio)

    for _ in range(min(rounds, ROUNDS)):
        program = Program(python, name)
        try:
            take(ratios(tools["tracer"], program))
            plain = program.pace()
        finally:
            program.end()
        take(started_ratios(tools, python, name, plain))
        if memray:
            take(memray_ratios(memray, name))
    return {variant: statistics.median(values) for variant, values in found.items()}


def geometric_mean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def bench(tools, python, options, folder):
    """The table. options.workloads may name programs."""
    names = [name for name in programs.NAMES if name in options.workloads.split(",")]
    rows, memray = {}, with_memray(folder)
    try:
        for name in names or programs.NAMES:
            rows[name] = measure(tools, python, memray, name, options.reps)
            print(name, {k: round(v, 2) for k, v in rows[name].items()}, flush=True)
    finally:
        if memray:
            memray.remove()
    variants = list(next(iter(rows.values())))
    rows["geometric mean"] = {v: geometric_mean([r[v] for r in rows.values()]) for v in variants}
    lines = [["program", *variants]]
    lines += [[name, *("%.2f" % row[v] for v in variants)] for name, row in rows.items()]
    text = bench_page.table(lines, "twelve programs, %s" % python.label)
    if memray:
        text += "\n\nmemray: that of %s." % memray.label
    print(text)
    return text
