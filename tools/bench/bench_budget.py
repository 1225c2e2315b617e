# SPDX-License-Identifier: Apache-2.0
"""Measures whether --overhead holds its budget. Prints a table, asserts nothing, ends with status 0.

A program (workloads/budget.py) runs all the time and is traced in parts of it, with each budget in
turn; the parts between are untraced. Each traced part is compared with the untraced ones before and
after it: a pair. The figure is units of work for a second of the program's CPU time, divided by the
speed of the processor, which the program measures by a loop that allocates nothing. Without that
division, and by the wall clock, other programs on the machine change it. "First 10 s" begins with
the tracer's start. The noise is that of untraced parts compared in the same way. With --idle the
program is stopped while the tracer attaches, and goes on so many seconds later: all figures are of
the time from then on; "first second" is that of its CPU time, which is longer on a busy machine.
Budget 0 is the default, without --overhead. usage: bench_budget.py [--reps N] [--seconds N]
[--overhead PERCENT]... [--program NAME]... [--idle SECONDS] [--at-once N] [--python PATH]
"""
import argparse
import concurrent.futures
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import bench_page  # noqa: E402
import interpreters  # noqa: E402
import pythons  # noqa: E402
from bench_windows import Progress  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
TRACER = os.path.abspath(
    os.environ.get("TRACER", os.path.join(HERE, "..", "..", "build", "tracer"))
)
UNTRACED = 10  # seconds between two traced parts
SETTLING = 0.5  # of the machine, after a detach
FIRST = 10  # seconds over which the budget is to hold
BURST = 1  # seconds of its CPU time after it was idle
WARM_UP = 2
AT_ONCE = 3  # programs: the machine is busy then, but its speed is accounted for
PROGRAMS = {
    "w1": "w1",
    "w2": "w2",
    "w3": "w3",
    "a web service": "service",
    "four threads": "threads",
    "gevent": "gevent",
}


class Program:
    """A running program, with its client if it is a service."""

    def __init__(self, python, name, seconds):
        self.log, self.latencies, self.client = tempfile.TemporaryFile("w+"), None, None
        self.process = self.start(python, PROGRAMS[name], [str(seconds)], self.log)
        if name == "a web service":
            self.latencies = tempfile.TemporaryFile("w+")
            port = self.port()
            self.client = self.start(python, "client", [str(seconds - 2), port], self.latencies)

    @staticmethod
    def start(python, program, arguments, out):
        path = os.path.join(python.folder, "budget.py")
        return subprocess.Popen(
            [*python.prefix, python.path, path, program, *arguments],
            stdout=out,
            env=interpreters.environment(),
        )

    def port(self):
        for _ in range(300):
            self.log.seek(0)
            lines = [line for line in self.log if line.startswith("port ")]
            if lines and lines[0].endswith("\n"):
                return lines[0].split()[1]
            time.sleep(0.1)
        raise RuntimeError("the service does not start")

    def end(self):
        for process in (self.client, self.process):
            if process:
                process.kill()
                process.wait()

    def progress(self):
        self.log.seek(0)
        return Progress(self.log.read())

    def percentile(self, since, until):
        """The 99th percentile of the seconds of an answer."""
        self.latencies.seek(0)
        rows = [tuple(map(float, line.split())) for line in self.latencies if line.count(" ") == 1]
        seconds = sorted(took for start, took in rows if since <= start < until)
        return seconds[len(seconds) * 99 // 100] if seconds else float("nan")


class Part:
    """A part of a run: untraced (percent None), or traced with that budget."""

    def __init__(self, percent, since, until):
        self.percent, self.since, self.until = percent, since, until


def wall_rate(progress, since, until):
    first, last = (progress.at(when)[1] for when in (since, until))
    return (last - first) / (until - since)


def calibrated_rate(progress, since, until):
    """Units of work for a second of CPU time, on a processor of a constant speed."""
    first, last = progress.at(since), progress.at(until)
    work_s, units, loop_s, loops = (b - a for a, b in zip(first, last))
    return units / work_s * (loop_s / loops)


def trace_part(pid, percent, seconds, idle):
    budget = ["--overhead", str(percent)] if percent else []
    if idle:
        os.kill(pid, signal.SIGSTOP)
    since = time.time()
    tracer = subprocess.Popen(
        [TRACER, "-q", *budget, "-d", str(idle + seconds), "--top", "0", "-p", str(pid)],
        stdout=subprocess.DEVNULL,
    )
    try:
        if idle:
            time.sleep(idle)
            since = time.time()
            os.kill(pid, signal.SIGCONT)
        status = tracer.wait(interpreters.TIMEOUT)
    finally:
        tracer.kill()
        tracer.wait()
    if status:
        raise RuntimeError("the tracer ended with status %d" % status)
    return Part(percent, since, time.time())


def untraced_part():
    time.sleep(SETTLING)
    since = time.time()
    time.sleep(UNTRACED)
    return Part(None, since, time.time())


def run(python, name, budgets, reps, seconds, idle):
    """(Program, which has ended; its parts in order)"""
    parts = []
    budget_s = WARM_UP + (len(budgets) * reps + 1) * (2 * (idle + seconds) + UNTRACED) + 60
    program = Program(python, name, budget_s)
    try:
        time.sleep(WARM_UP)
        parts.append(untraced_part())
        for _ in range(reps):
            for percent in budgets:
                part = trace_part(program.process.pid, percent, seconds, idle)
                parts += [part, untraced_part()]
    finally:
        program.end()
    return program, parts


def burst_end(progress, since):
    """When the program has run for BURST since then."""
    ran = lambda values: values[0] + values[2]  # noqa: E731
    begun = ran(progress.at(since))
    rows = zip(progress.times, progress.values)
    return next(when for when, values in rows if ran(values) >= begun + BURST)


def slower(rate, parts, i, until=None):
    """1 - the rate of part i / the mean of that of its neighbours"""
    beside = [rate(parts[k].since, parts[k].until) for k in (i - 1, i + 1)]
    return 1 - rate(parts[i].since, until or parts[i].until) / statistics.mean(beside)


def rate_of(progress, rate):
    return lambda since, until: rate(progress, since, until)


def noise(progress, parts):
    untraced = [part for part in parts if part.percent is None]
    return statistics.median(
        [
            abs(slower(rate_of(progress, calibrated_rate), untraced, i))
            for i in range(1, len(untraced) - 1)
        ]
        or [0]
    )


def row(program, name, parts, percent, idle):
    progress = program.progress()
    pairs = [i for i, part in enumerate(parts) if part.percent == percent]
    median = lambda values: "%.1f %%" % (100 * statistics.median(values))  # noqa: E731
    calibrated = rate_of(progress, calibrated_rate)
    wall = rate_of(progress, wall_rate)
    latency = ""
    if program.latencies:
        each = [
            [program.percentile(part.since, part.until) for part in (parts[i], parts[i + 1])]
            for i in pairs
        ]
        latency = "%.1f, untraced %.1f ms" % tuple(
            1e3 * statistics.median(column) for column in zip(*each)
        )
    cpu = sorted(slower(calibrated, parts, i) for i in pairs)
    burst = [
        slower(calibrated, parts, i, burst_end(progress, parts[i].since)) for i in pairs if idle
    ]
    return [
        "%s %%" % percent if percent else "default",
        name,
        median(cpu),
        "%.1f to %.1f %%" % (100 * cpu[0], 100 * cpu[-1]),
        *([median(burst)] if idle else []),
        median([slower(calibrated, parts, i, parts[i].since + FIRST) for i in pairs]),
        median([slower(progress.rate, parts, i) for i in pairs]),
        median([slower(wall, parts, i) for i in pairs]),
        median([noise(progress, parts)]),
        latency,
    ]


def bench(
    python, reps, budgets=(1, 5, 10), programs=tuple(PROGRAMS), seconds=12, idle=0, at_once=AT_ONCE
):
    """python: an interpreters.Python. Measures and prints; the table's text."""
    header = ["--overhead", "program", "slower", "of all pairs"]
    header += [*(["first second"] if idle else []), "first 10 s"]
    rows = []

    def measure(name):
        print("bench: the budget of %s" % name, file=sys.stderr, flush=True)
        try:
            program, parts = run(python, name, budgets, reps, seconds, idle)
            rows.extend(row(program, name, parts, percent, idle) for percent in budgets)
        except (RuntimeError, OSError, statistics.StatisticsError) as error:
            print("bench: %s: %s" % (name, error), file=sys.stderr)

    with concurrent.futures.ThreadPoolExecutor(at_once) as executor:
        list(executor.map(measure, programs))
    names = ["%s %%" % percent if percent else "default" for percent in budgets]
    rows.sort(key=lambda cells: names.index(cells[0]))
    rows.insert(0, [*header, "by CPU time alone", "by wall clock", "noise", "99th percentile"])
    text = bench_page.table(rows, "%s, medians of %d pairs" % (python.label, reps))
    print("\n%s" % text, flush=True)
    return text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=12)
    parser.add_argument("--overhead", type=float, action="append")
    parser.add_argument("--program", action="append", choices=list(PROGRAMS))
    parser.add_argument("--idle", type=float, default=0)
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    parser.add_argument("--python")
    args = parser.parse_args()
    path = args.python or pythons.distribution() or pythons.newest()
    with tempfile.TemporaryDirectory() as folder:
        bench(
            interpreters.Python(path, folder),
            args.reps,
            tuple(args.overhead or (1, 5, 10)),
            tuple(args.program or PROGRAMS),
            args.seconds,
            args.idle,
            args.at_once,
        )


if __name__ == "__main__":
    main()
