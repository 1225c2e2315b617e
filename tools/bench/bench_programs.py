# SPDX-License-Identifier: Apache-2.0
"""What tracing costs twelve programs that work with libraries of Debian's (workloads/programs.py),
beside tracemalloc and heaptrack.

A program works before, while and after it is traced, so that each ratio is of one process; a ratio
is the CPU time that a piece of work takes while traced, divided by the median of before and after. A
trace begins while the program is idle; with "idle, 1 s" it then works for one second. Programs
under heaptrack are started by it, and compared with one that is not.
"""
import math
import os
import shutil
import signal
import statistics
import subprocess

import bench_page
from workloads import programs

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "workloads", "programs.py")
PYTHON = "/usr/bin/python3"
SECONDS, ROUNDS = 2.0, 3  # at most

TRACES = {
    "default": (),
    "default, idle, 1 s": (),
    "`--overhead 1`": ("--overhead", "1"),
    "growth": ("-m", "growth"),
    "census": ("-m", "census"),
    "exact": ("-m", "exact"),
}
TRACEMALLOC = {"tracemalloc(1)": 1, "tracemalloc(25)": 25}


class Program:
    def __init__(self, name, before=()):
        self.process = subprocess.Popen(
            [*before, PYTHON, SCRIPT, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
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
        """CPU seconds of the program for a piece of work: probes run in its time."""
        count, cpu = self.say(str(seconds))
        return float(cpu) / max(1, int(count))

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


def ratios(tracer, program, name):
    """One ratio of each variant but heaptrack."""
    for variant, options in TRACES.items():
        seconds = 1.0 if "1 s" in variant else SECONDS
        before = program.pace(seconds)
        run = traced(tracer, program, options)
        during = program.pace(seconds)
        run.send_signal(signal.SIGINT)
        run.communicate()
        yield variant, during / statistics.median((before, program.pace(seconds)))
    for variant, frames in TRACEMALLOC.items():
        before = program.pace()
        program.say("tracemalloc %d" % frames)
        during = program.pace()
        program.say("stop")
        yield variant, during / statistics.median((before, program.pace()))


def heaptrack_ratio(name, plain, folder):
    program = Program(name, ("heaptrack", "-o", os.path.join(folder, "heaptrack")))
    try:
        return program.pace() / plain
    finally:
        program.end()


def measure(tracer, name, rounds, folder):
    """{variant: median of its ratios}"""
    found = {}
    for _ in range(min(rounds, ROUNDS)):
        program = Program(name)
        try:
            for variant, ratio in ratios(tracer, program, name):
                found.setdefault(variant, []).append(ratio)
            plain = program.pace()
        finally:
            program.end()
        if shutil.which("heaptrack"):
            ratio = heaptrack_ratio(name, plain, folder)
            found.setdefault("heaptrack", []).append(ratio)
    return {variant: statistics.median(values) for variant, values in found.items()}


def geometric_mean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def bench(tracer, options, folder):
    """The table. options.workloads may name programs."""
    names = [name for name in programs.NAMES if name in options.workloads.split(",")]
    rows = {}
    for name in names or programs.NAMES:
        rows[name] = measure(tracer, name, options.reps, folder)
        print(name, {k: round(v, 2) for k, v in rows[name].items()}, flush=True)
    variants = list(next(iter(rows.values())))
    rows["geometric mean"] = {v: geometric_mean([r[v] for r in rows.values()]) for v in variants}
    lines = [["program", *variants]]
    lines += [[name, *("%.2f" % row[v] for v in variants)] for name, row in rows.items()]
    text = bench_page.table(lines)
    print(text)
    return text
