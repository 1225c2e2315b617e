# SPDX-License-Identifier: Apache-2.0
"""Measures what the live view costs: CPU time of its process, and of the session beyond what it
takes while the view is paused. Once of a program with many lines, once of many processes (-a)."""
import os
import re
import statistics
import subprocess
import time

import bench_page
from bench_columns import Terminal
from interpreters import environment

HERE = os.path.dirname(os.path.abspath(__file__))
CROWD = os.path.join(HERE, "..", "..", "tests", "e2e", "programs", "processes", "crowd.c")
LINES, FILES, PROCESSES, SECONDS = 100000, 100, 1000, 10
HISTORY = 20  # seconds: more than the refreshes that a view remembers
# Each line holds a block, and one in a hundred is allocated anew every second.
MANY_LINES = """
import os, sys, time
lines, files = int(sys.argv[1]), int(sys.argv[2])
kept = [None] * lines
parts = []
for i in range(files):
    first, each = i * (lines // files), lines // files
    source = "".join("kept[%d] = bytes(%d)\\n" % (first + n, 33 + n % 400) for n in range(each))
    parts.append(compile(source, "/srv/application/package%d/module%d.py" % (i % 7, i), "exec"))

def order():
    yield from range(files)
    os.write(1, b"ready\\n")
    while os.getppid() > 1:
        yield int(time.monotonic()) % files
        time.sleep(1)

os.write(1, b"ready\\n")
os.read(0, 1)
for i in order():
    exec(parts[i])  # of one place: no new tracebacks
"""


def cpu_seconds(pid):
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def view_of(session):
    """The one of its processes that has what the view reads answers from."""
    with open("/proc/%d/task/%d/children" % (session, session)) as file:
        children = [int(child) for child in file.read().split()]
    for pid in children:
        folder = "/proc/%d/fd" % pid
        if any(
            "tracer-watch" in os.readlink(os.path.join(folder, fd)) for fd in os.listdir(folder)
        ):
            return pid
    raise RuntimeError("the session has no view")


def shares(pids, seconds):
    """The shares of a CPU that they take in so many seconds."""
    before, start = [cpu_seconds(pid) for pid in pids], time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - start
    return [(cpu_seconds(pid) - was) / took for pid, was in zip(pids, before)]


def measured(terminal):
    """(the view's share of a CPU, the session's beyond that of a pause, seconds between
    refreshes)"""
    session = terminal.process.pid  # setsid runs it in its place
    view = view_of(session)
    shown, paused = [], []
    for _ in range(3):
        shown.append(shares((session, view), SECONDS))
        said = terminal.screen(rb"sorted by")
        terminal.press(b"p")
        terminal.screen(rb"PAUSED")
        paused.append(shares((session, view), SECONDS))
        terminal.press(b"p")
    slower = re.findall(rb"refreshed every (\d+) s", said)
    more = [a[0] - b[0] for a, b in zip(shown, paused)]
    return (
        statistics.median(a[1] for a in shown),
        max(0, statistics.median(more)),
        int(slower[-1]) if slower else 1,
    )


def many_lines(python, tracer):
    target = subprocess.Popen(
        [python.path, "-c", MANY_LINES, str(LINES), str(FILES)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    try:
        target.stdout.readline()
        terminal = Terminal([tracer, "--overhead=0", "-p", str(target.pid)])
        terminal.wait(rb"sorted by")
        target.stdin.write(b"g")
        target.stdin.flush()
        target.stdout.readline()
        return settled(terminal)
    finally:
        target.kill()
        target.wait()


def settled(terminal):
    """What it measures once all names are read, or after a minute: other processes come and go. The
    view's history, 16 refreshes, does not begin with all lines at once any more."""
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and b"still to be read" in terminal.screen(rb"sorted by"):
            time.sleep(2)
        time.sleep(HISTORY)
        return measured(terminal)
    finally:
        terminal.press(b"q")
        terminal.process.wait(60)


def many_processes(folder, tracer):
    """Each holds some blocks that it has taken since."""
    program = os.path.join(folder, "crowd")
    subprocess.run(["cc", "-O1", "-g", "-o", program, CROWD], check=True)
    crowd = subprocess.Popen(
        [program, str(PROCESSES)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        crowd.stdout.readline()
        terminal = Terminal([tracer, "--overhead=0", "-a"])
        terminal.screen(rb"\d{4,} processes")
        crowd.stdin.write(b"go\n")
        crowd.stdin.flush()
        crowd.stdout.readline()
        return settled(terminal)
    finally:
        crowd.stdin.close()
        crowd.wait()


def bench(python, tracer, folder):
    """Measures and prints; returns the table."""
    rows = [["what is shown", "the view", "the session, beyond a pause", "refreshed every"]]
    for what, measure in (
        ("%d lines" % LINES, lambda: many_lines(python, tracer)),
        (
            "%d processes with blocks of their own, -a" % PROCESSES,
            lambda: many_processes(folder, tracer),
        ),
    ):
        view, session, every = measure()
        rows.append([what, "%.2f %%" % (100 * view), "%.2f %%" % (100 * session), "%d s" % every])
        print("bench: view: %s" % ", ".join(rows[-1]), flush=True)
    text = bench_page.table(rows, "shares of a CPU, %s" % python.label)
    print("\n" + text, flush=True)
    return text
