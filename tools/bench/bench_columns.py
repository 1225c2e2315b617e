# SPDX-License-Identifier: Apache-2.0
"""Measures what columns beside the live blocks (allocated, short-lived, threads, the peak) cost a
program in census mode: with nobody looking, and with a live view on a terminal that shows them; and
what --by task and --by greenlet cost programs of these, and --by context and --by local the same
workloads.

Every variant runs in turn, round after round, and is compared with plain census of the same round.
With --other, another tracer runs in turn with them: a build that counts nothing of this.
"""
import collections
import fcntl
import os
import pty
import re
import statistics
import struct
import subprocess
import sys
import termios
import threading

import bench_page
import pythons
from interpreters import TIMEOUT, Python, environment

ROUNDS = {"w1": 200000, "w2": 240000, "w3": 120}
TASK_ROUNDS = {"tasks": 20000, "served": 1000}
TASK_VERSION = "3.14"
GREENLET_ROUNDS = {"greened": 20000}
# The workload begins once the tracer, and the view, are there.
WAIT = """
import os, runpy, sys, time
os.write(1, b"ready\\n")
os.read(0, 1)
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(sys.argv[0])
begun = time.process_time()
runpy.run_path(sys.argv[0], run_name="__main__")
print("%.3f" % (time.process_time() - begun))
"""

# tracer: the program; options: of it; keys: None: no view, else those pressed in it; shows: what is
# then on the screen.
Variant = collections.namedtuple("Variant", "name tracer options keys shows")
PLAIN = "census"
OWN_CPU = 2  # of what run() returns: it is steadier than the seconds if the machine is busy
RECORD = ("--record", "FOLDER/columns.rec", "--every", "1")
# The value of a context variable, and an attribute of another one's, which change 200 times a
# second, as requests come; and arguments that change with each round.
REQUESTS = """
import contextvars, itertools, signal
class Route:
    def __init__(self, path):
        self.path = path
request, route = contextvars.ContextVar("bench.request"), contextvars.ContextVar("bench.route")
numbers = itertools.count()
def come(*_):
    request.set("request %d" % next(numbers))
    route.set(Route(request.get()))
signal.signal(signal.SIGALRM, come)
come()
signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
"""
LOCALS = {"w1": "work:i", "w2": "down:i", "w3": "loads:s"}


def variants(tracer, other):
    found = [
        Variant("untraced", None, (), None, None),
        Variant(PLAIN, tracer, (), None, None),
        Variant("census, recorded every second", tracer, RECORD, None, None),
        Variant("census, live view by line", tracer, (), b"", rb"by line"),
        Variant("census, live view by thread", tracer, (), b"7", rb"by thread"),
    ]
    if other:
        found.insert(1, Variant("census, the other tracer", other, (), None, None))
    return found


def task_variants(tracer, other):
    by_task = "--by", "task"
    found = [
        Variant("untraced", None, (), None, None),
        Variant(PLAIN, tracer, (), None, None),
        Variant("census, --by task", tracer, by_task, None, None),
    ]
    if other:
        found.append(Variant("census, --by task, the other tracer", other, by_task, None, None))
    return found


def label_variants(tracer):
    path = "--by", "context bench.route.path"
    return [
        Variant("untraced", None, (), None, None),
        Variant(PLAIN, tracer, (), None, None),
        Variant("census, --by context", tracer, ("--by", "context bench.request"), None, None),
        Variant("census, --by context, a path", tracer, path, None, None),
        Variant("census, --by local", tracer, ("--by", "local LOCAL"), None, None),
    ]


def greenlet_variants(tracer):
    return [
        Variant("untraced", None, (), None, None),
        Variant(PLAIN, tracer, (), None, None),
        Variant("census, --by greenlet", tracer, ("--by", "greenlet"), None, None),
    ]


class Terminal:
    """A process on a terminal of its own, which is read all the time."""

    def __init__(self, argv):
        self.master, slave = pty.openpty()
        self.columns = 120
        self.resize()
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *argv],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**environment(), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
        )
        os.close(slave)
        self.said, self.changed = b"", threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def resize(self):
        size = struct.pack("HHHH", 40, self.columns, 0, 0)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    def screen(self, pattern):
        """Waits until the whole screen, drawn anew, has the pattern; returns what was written."""
        for _ in range(60):
            with self.changed:
                self.said = b""
                self.columns ^= 1
                self.resize()
                if self.changed.wait_for(lambda: re.search(pattern, self.said), 1):
                    self.changed.wait(0.2)
                    return self.said
        raise RuntimeError("%r is not on the terminal: %r" % (pattern, self.said[-300:]))

    def read(self):
        while True:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                data = b""
            with self.changed:
                self.said = (self.said + data)[-1000000:]
                self.changed.notify_all()
            if not data:
                return

    def wait(self, pattern):
        with self.changed:
            if not self.changed.wait_for(lambda: re.search(pattern, self.said), 60):
                raise RuntimeError("%r is not on the terminal: %r" % (pattern, self.said[-300:]))

    def press(self, keys):
        os.write(self.master, keys)


def attach(variant, pid, name, folder):
    """The tracer, once it has attached and shows what it is to show."""
    words = {"FOLDER": folder, "LOCAL": LOCALS.get(name, "")}
    options = [re.sub("FOLDER|LOCAL", lambda found: words[found[0]], o) for o in variant.options]
    argv = [variant.tracer, "--overhead=0", "-p", str(pid)]
    argv += ["-o", os.path.join(folder, "columns.pb.gz"), *options]
    terminal = Terminal(argv + ["--no-live"] * (variant.keys is None))
    terminal.wait(rb"attached to PID" if variant.keys is None else rb"sorted by")
    if variant.keys:
        terminal.press(variant.keys)
        terminal.screen(variant.shows)
    return terminal


def run(variant, python, name, rounds, folder, loads=""):
    """Seconds: (of the workload, CPU time of the tracer with its view, the workload's CPU time)"""
    path, *arguments = python.workload(name, rounds)
    target = subprocess.Popen(
        [*python.prefix, path, "-c", loads + WAIT, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    terminal, cpu = None, 0.0
    try:
        target.stdout.readline()
        if variant.tracer:
            terminal = attach(variant, target.pid, name, folder)
        said, _ = target.communicate(b"g", TIMEOUT)
        if terminal:
            _, status, usage = os.wait4(terminal.process.pid, 0)
            terminal.process.returncode = os.waitstatus_to_exitcode(status)
            cpu = usage.ru_utime + usage.ru_stime
            os.close(terminal.master)
            if terminal.process.returncode:
                raise RuntimeError("the tracer: %r" % terminal.said[-300:])
    finally:
        for process in filter(None, (target, terminal and terminal.process)):
            if process.poll() is None:
                process.kill()
                process.wait()
    seconds, own_cpu = map(float, said.split())
    return seconds, cpu, own_cpu


def cell(times, name, which):
    """The seconds, and their ratios to plain census of the same rounds."""
    seconds = [took[which] for took in times[name]]
    ratios = sorted(a / b[which] for a, b in zip(seconds, times[PLAIN]))
    if name in (PLAIN, "untraced"):
        return "%.2f s" % statistics.median(seconds)
    return "%.2f s (%.3f; %.3f to %.3f)" % (
        statistics.median(seconds),
        statistics.median(ratios),
        ratios[0],
        ratios[-1],
    )


def measure(python, chosen, rounds_by_name, options, folder, loads="", which=0):
    """Measures and prints; returns the table. loads: what each program does before it begins; which:
    of what run() returns."""
    rows = [[variant.name] for variant in chosen]
    for name, rounds in rounds_by_name.items():
        times = collections.defaultdict(list)
        rounds = max(1, int(rounds * options.scale))
        for turn in range(options.reps):
            # Each begins as often as the others.
            for variant in chosen[turn % len(chosen) :] + chosen[: turn % len(chosen)]:
                print("bench: columns, %s, %s" % (name, variant.name), file=sys.stderr, flush=True)
                times[variant.name].append(run(variant, python, name, rounds, folder, loads))
        for row, variant in zip(rows, chosen):
            cpu = statistics.median(took[1] for took in times[variant.name])
            row.append(cell(times, variant.name, which))
            row.append("%.2f s" % cpu if variant.tracer else "")
    head = [
        "traced by",
        *(text for name in rounds_by_name for text in (name, "the tracer's CPU time")),
    ]
    text = bench_page.table(
        [head, *rows],
        "%s, medians of %d rounds%s"
        % (python.label, options.reps, ", CPU time" if which == OWN_CPU else ""),
    )
    print("\n" + text, flush=True)
    return text


def rounds_of(options):
    names = options.workloads.split(",")
    return {name: rounds for name, rounds in ROUNDS.items() if name in names}


def bench(python, tracer, options, folder):
    """Measures and prints; returns the table."""
    return measure(python, variants(tracer, options.other), rounds_of(options), options, folder)


def bench_labels(python, tracer, options, folder):
    """The same of --by context and --by local."""
    chosen = rounds_of(options)
    return measure(python, label_variants(tracer), chosen, options, folder, REQUESTS, OWN_CPU)


def bench_greenlets(python, tracer, options, folder):
    """The same of --by greenlet; the distribution's interpreter has greenlet."""
    chosen = greenlet_variants(tracer)
    loads = "import greenlet\n"
    return measure(python, chosen, GREENLET_ROUNDS, options, folder, loads, OWN_CPU)


def bench_tasks(tracer, options, folder):
    """The same of --by task, with the interpreter that tells tasks."""
    path = pythons.unstripped().get(TASK_VERSION)
    if not path:
        raise LookupError("no CPython %s with symbols (make roots)" % TASK_VERSION)
    python = Python(path, folder)
    chosen = task_variants(tracer, options.other)
    try:
        # A service that runs has loaded asyncio.
        return measure(python, chosen, TASK_ROUNDS, options, folder, "import asyncio\n")
    finally:
        python.remove()
