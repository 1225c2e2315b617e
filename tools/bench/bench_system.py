# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of tracing the whole machine: for programs that start and end, for programs
that compute, of the tracer itself, and of the attach; also the cost for processes that are not
traced while another one is. Prints ratios within one run; asserts nothing.

Ways run in turn, round after round, so that a noisy minute affects all of them; medians are shown.
A program's CPU time is shown beside its seconds. It includes the processes that the program has
started, as in `perf stat -e task-clock`.
"""
import collections
import contextlib
import os
import re
import select
import shutil
import signal
import statistics
import subprocess
import sys
import time

import bench_events
import bench_page
from bench_session import Client
from interpreters import TIMEOUT

HERE = os.path.dirname(os.path.abspath(__file__))
FILES, EACH = 50, 10  # files with an allocator of their own, processes of each
ATTACH_BAR = 2.0  # seconds for all of them
IDLE_SECONDS = 5


def programs(folder):
    """{name: path} of the C workloads. The sleeper is also built static, with an allocator of its
    own."""
    built = {}
    for name, source, flags in (
        ("pairs", "pairs", "-pthread"),
        ("spin", "spin", "-O2"),
        ("forks", "forks", "-O2"),
        ("sleeper", "sleeper", "-O2"),
        ("static", "sleeper", "-static"),
    ):
        built[name] = os.path.join(folder, name)
        subprocess.run(
            [
                os.environ.get("CC", "cc"),
                "-O2",
                "-fno-omit-frame-pointer",
                flags,
                "-o",
                built[name],
                os.path.join(HERE, "workloads", source + ".c"),
            ],
            check=True,
            timeout=TIMEOUT,
        )
    return built


def measure(argv):
    """(seconds that the program prints, CPU seconds of it and of all children that it has waited
    for)"""
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError("%s: status %d" % (argv[0], process.returncode))
    return float(out), usage.ru_utime + usage.ru_stime


class Tracer:
    """A session. self.attached is its first message about its targets, self.seconds the time until
    that message. end() waits for its exit."""

    def __init__(self, tracer, arguments):
        start = self.start = time.monotonic()
        self.process = subprocess.Popen(
            [tracer, "--overhead=0", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self.said = b""
        try:
            self.attached = self.wait(rb"^tracer: (attached to (?:PID )?\d+[^\n]*)\n")
        except RuntimeError:
            self.end()
            raise
        self.seconds = time.monotonic() - start

    def wait(self, pattern):
        end = time.monotonic() + 60
        while True:
            found = re.search(pattern, self.said, re.M)
            if found:
                return found.group(1).decode(errors="replace")
            ready, _, _ = select.select(
                [self.process.stderr], [], [], max(0, end - time.monotonic())
            )
            data = os.read(self.process.stderr.fileno(), 65536) if ready else b""
            if not data:
                raise RuntimeError(
                    "the tracer did not attach: %s"
                    % self.said.decode(errors="replace").strip()[-300:]
                )
            self.said += data

    def answer_seconds(self):
        """Seconds from its start until it answers; it is then attached to all processes found."""
        Client(self.process.pid).status()
        return time.monotonic() - self.start

    def cpu_seconds(self):
        with open("/proc/%d/stat" % self.process.pid) as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def pss_kib(self):
        with open("/proc/%d/smaps_rollup" % self.process.pid) as file:
            return int(re.search(r"^Pss: +(\d+)", file.read(), re.M).group(1))

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


@contextlib.contextmanager
def sleepers(paths):
    """Sleeping processes of these programs."""
    processes = []
    try:
        for path in paths:
            processes.append(
                subprocess.Popen([path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            )
            processes[-1].stdout.readline()
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


# --- programs under a session ---------------------------------------------------------------------


def workloads(built, scale):
    """[(name, argv, ways under which it runs)]. Programs that only call malloc are measured
    elsewhere, since -a traces them."""
    count = lambda n: str(max(1, int(n * scale)))
    return [
        ("computes, 1 process", [built["spin"], count(5e8)], ("-a", "-p")),
        ("malloc and free, 1 thread", [built["pairs"], "1", count(2e7)], ("-p",)),
        (
            "fork, exec, exit: 1 at a time",
            [built["forks"], "1", count(2000), "/bin/true"],
            ("-a", "-p"),
        ),
        (
            "fork, exec, exit: 200 at once",
            [built["forks"], "200", count(2000), "/bin/true"],
            ("-a", "-p"),
        ),
    ]


class Programs:
    """(seconds, CPU seconds) by (workload, way)."""

    def __init__(self, tracer, built, scale):
        self.tracer, self.built, self.workloads = tracer, built, workloads(built, scale)
        self.times = collections.defaultdict(list)

    def run(self, way):
        for name, argv, ways in self.workloads:
            if not way or way in ways:
                print(
                    "bench: %s, %s" % (name, "tracer " + way if way else "untraced"),
                    file=sys.stderr,
                    flush=True,
                )
                self.times[name, way].append(measure(argv))

    def measure(self, reps):
        with sleepers([self.built["sleeper"]]) as (other,):
            for _ in range(reps):
                self.run("")
                with Tracer(self.tracer, ["-a"]):
                    self.run("-a")
                with Tracer(self.tracer, ["--layer", "native", "-p", str(other.pid)]):
                    self.run("-p")

    def cell(self, name, way):
        if not self.times.get((name, way)):
            return "–"
        (seconds, cpu), (base, base_cpu) = (
            [statistics.median(v) for v in zip(*self.times[name, w])] for w in (way, "")
        )
        ratios = " (%.2f; %.2f)" % (seconds / base, cpu / base_cpu) if way else ""
        return "%.3f s; %.3f s CPU%s" % (seconds, cpu, ratios)

    def table(self):
        rows = [["work", "untraced", "`tracer -a`", "`tracer -p` of another"]]
        return bench_page.table(
            rows
            + [
                [name, *(self.cell(name, way) for way in ("", "-a", "-p"))]
                for name, _, _ in self.workloads
            ],
            "seconds; CPU seconds (their ratios to untraced)",
        )


# --- the tracer itself ----------------------------------------------------------------------------


class Sessions:
    """Sessions over all processes, with few processes and with many more."""

    def __init__(self, tracer, built, folder):
        self.tracer = tracer
        copies = [
            shutil.copy(built["static"], os.path.join(folder, "sleeper-%d" % i))
            for i in range(FILES)
        ]
        self.kinds = [
            ("as the machine is", []),
            (
                "and %d that sleep, of %d files with an allocator each" % (FILES * EACH, FILES),
                copies * EACH,
            ),
            (
                "and %d that sleep, of one file and the C library" % (FILES * EACH),
                [built["sleeper"]] * (FILES * EACH),
            ),
        ]
        self.seconds, self.cpu, self.kib, self.said = (
            collections.defaultdict(list) for _ in range(4)
        )

    def measure(self, reps):
        for name, paths in self.kinds:
            with sleepers(paths):
                for _ in range(reps):
                    print("bench: tracer -a: processes: %s" % name, file=sys.stderr, flush=True)
                    with Tracer(self.tracer, ["-a"]) as tracer:
                        self.take(name, tracer)

    def take(self, name, tracer):
        self.seconds[name].append(tracer.answer_seconds())
        before, start = tracer.cpu_seconds(), time.monotonic()
        time.sleep(IDLE_SECONDS)
        self.cpu[name].append((tracer.cpu_seconds() - before) / (time.monotonic() - start))
        self.kib[name].append(tracer.pss_kib())
        self.said[name] = tracer.attached

    def table(self):
        """Memory beyond that of the first row, for each additional process."""
        rows = [["processes", "attached after", "CPU share while they sleep", "memory (Pss)"]]
        first = self.kinds[0][0]
        for name, paths in self.kinds:
            kib, base = statistics.median(self.kib[name]), statistics.median(self.kib[first])
            more = "; %.1f KiB a process" % ((kib - base) / len(paths)) if paths else ""
            rows.append(
                [
                    name,
                    "%.2f s" % statistics.median(self.seconds[name]),
                    "%.2f %%" % (statistics.median(self.cpu[name]) * 100),
                    "%.1f MiB%s" % (kib / 1024, more),
                ]
            )
        return bench_page.table(rows, "`tracer -a` itself")

    def bars(self):
        lines = []
        for name, paths in self.kinds[1:]:
            worst = max(self.seconds[name])
            lines.append(
                "- attach at most %.0f s, %s: at most %.2f s: %s (%s)"
                % (
                    ATTACH_BAR,
                    name,
                    worst,
                    "met" if worst <= ATTACH_BAR else "MISSED",
                    self.said[name],
                )
            )
        return "\n".join(lines)


def bench(tools, python, options, folder):
    """python: an interpreters.Python. Measures and prints; the tables' text."""
    built = programs(folder)
    with contextlib.ExitStack() as stack:
        tables = [bench_events.bench(tools, built["pairs"], python, options, folder, stack)]
    under = Programs(tools["tracer"], built, options.scale)
    under.measure(options.reps)
    print("\n%s" % under.table(), flush=True)
    sessions = Sessions(tools["tracer"], built, folder)
    sessions.measure(options.reps)
    print("\n%s\n\nBars:\n%s" % (sessions.table(), sessions.bars()), flush=True)
    return "\n\n".join([*tables, under.table(), sessions.table()])
