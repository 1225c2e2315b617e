#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs sessions one after another over all processes, honest programs and hostile ones, and kills
the tracer at random moments.

usage: soak.py [--minutes N] [--seed N]     (root; the tracer is build/tracer, or TRACER)

A session is `tracer -a` with a budget. One in three runs for minutes: its memory is checked, and
its results must equal those of the honest programs. The others are killed at a random moment. After
each session nothing of it may be left: no program, map or link is in the kernel, and the code of
the surviving processes equals that in their files. Prints one line per session; the last line is
`soak: N sessions, N wrong`. Exit status 1 if any was wrong.
"""
import argparse
import collections
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path[:0] = [HERE, os.path.join(TESTS, "e2e")]

import bpf_objects  # noqa: E402
import harness  # noqa: E402
import procfs  # noqa: E402


TRACER = os.environ.get("TRACER") or os.path.join(os.path.dirname(TESTS), "build", "tracer")
BUDGET = "64M"
# Anonymous memory: the budget of the tables, and the same amount again for memory that is not
# charged to the budget and for a snapshot that is being written.
RSS_MAX = 2 * 64 << 20
# The memory of a long session may grow by this much from its middle to its end. The medians of two
# thirds are compared, since a temporary snapshot, or a large process that ends, is no growth.
RSS_GROWTH = 16 << 20
LONG, SHORT = (120, 300), (0, 10)  # seconds of a session
# seconds for the kernel to remove what a killed session left; before 6.6 it removes probes one by
# one
LEAVE = 120
HOSTILE = (
    ("corrupt.py", "cycle"),
    ("unrest.py", "4", "100"),
    ("segv.py", "SEGV"),
    ("segv.py",),
    ("race.py",),
    ("short_lived.py", "200"),
)


def compiled(folder, name):
    return harness.compiled(os.path.join(folder, name), name + ".c", "-ldl")


class Crowd:
    """Programs that start and end while sessions run."""

    def __init__(self, pythons, brief, seed):
        self.pythons, self.brief = pythons, brief
        self.random = random.Random(seed)
        self.briefs = 0
        self.failed = []
        self.pause, self.stop = threading.Event(), threading.Event()
        self.idle = threading.Event()
        self.threads = [
            threading.Thread(target=self.work, args=(one,)) for one in (self.honest, self.hostile)
        ]
        for thread in self.threads:
            thread.start()

    def work(self, one):
        while not self.stop.is_set():
            one()
            self.stop.wait(self.random.uniform(0.05, 0.5))

    def honest(self):
        if self.pause.is_set():
            self.idle.set()
            return
        self.idle.clear()
        if subprocess.run([self.brief]).returncode:
            self.failed.append("brief")
        self.briefs += 1

    def hostile(self):
        name, *args = self.random.choice(HOSTILE)
        command = [self.random.choice(self.pythons), harness.program(name), *args]
        quiet = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
        }
        process = subprocess.Popen(command, env=harness.environment(), **quiet)
        try:
            process.communicate(b"\n" * 4, timeout=self.random.uniform(0.3, 3))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()

    def rest(self):
        """Stops starting brief programs; returns how many have run."""
        self.idle.clear()
        self.pause.set()
        self.idle.wait()
        return self.briefs

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()


def memory_of(pid, field):
    """A field of the process's status, in bytes; 0 if the process is gone."""
    try:
        with open("/proc/%d/status" % pid) as file:
            match = re.search(r"^%s:\s*(\d+) kB" % field, file.read(), re.M)
    except OSError:
        match = None
    return int(match[1]) << 10 if match else 0


def workers(pid):
    """Anonymous memory of the worker processes that read symbols for a session."""
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
            return sum(memory_of(int(child), "RssAnon") for child in file.read().split())
    except OSError:
        return 0


def tracers():
    """The processes of sessions."""
    return [p for p in bpf_objects.processes() if (procfs.comm(p) or "").startswith("tracer")]


class Soak:
    def __init__(self, folder, options):
        self.folder = folder
        self.random = random.Random(options.seed)
        self.end = time.monotonic() + options.minutes * 60
        brief, blocks = compiled(folder, "brief"), compiled(folder, "blocks")
        stripped = os.path.realpath("/usr/bin/python3")
        paths = [stripped, *list(harness.pythons.unstripped().values())[-1:]]
        # One survivor is busy at the moment of each kill. More of them would leave the other
        # processes no processor.
        self.survivors = [
            harness.Target(paths[-1], "busy.py"),
            harness.Target(stripped, "golden.py"),
        ]
        self.survivors.append(harness.Target(blocks, None))
        self.crowd = Crowd(paths, brief, options.seed)
        self.counts = collections.Counter()
        self.objects = bpf_objects.BpfObjects()

    def left(self):
        """What differs from the state before the session."""
        wrong = []
        for target in self.survivors:
            if target.process.poll() is not None:
                wrong.append("a survivor died: %s" % target.process.returncode)
            elif procfs.text_differs(target.pid):
                wrong.append("the code of PID %d differs" % target.pid)
        return wrong + self.objects.left(tracers())

    def gone(self):
        deadline = time.monotonic() + LEAVE
        wrong = self.left()
        while wrong and time.monotonic() < deadline:
            time.sleep(0.5)
            wrong = self.left()
        return wrong

    def killed(self):
        run = harness.Traced(
            TRACER, self.folder, "-a", "--budget", BUDGET, attached=False, output=False
        )
        time.sleep(self.random.uniform(*SHORT))
        run.kill()
        return "killed", []

    def whole(self):
        """The session sees all that the honest programs do, in bounded memory."""
        before = self.crowd.rest()
        run = harness.Traced(TRACER, self.folder, "-a", "--budget", BUDGET, attached=False)
        try:
            return self.watch(run, before)
        finally:
            self.crowd.pause.clear()
            run.kill()  # if something went wrong on the way

    def watch(self, run, before):
        ready = re.compile(r"^tracer: attached to \d+ of \d+ processes", re.M)
        harness.wait_until(
            lambda: ready.search(run.stderr) or run.process.poll() is not None, "it has attached"
        )
        self.crowd.pause.clear()
        seconds = min(self.random.uniform(*LONG), max(20, self.end - time.monotonic()))
        memory, aside, until = [], [0], time.monotonic() + seconds
        while time.monotonic() < until and run.process.poll() is None:
            memory.append(memory_of(run.process.pid, "RssAnon"))
            aside.append(workers(run.process.pid))
            time.sleep(1)
        times = self.crowd.rest() - before
        time.sleep(1)
        run.interrupt()
        status = run.wait(300)
        self.crowd.pause.clear()
        wrong = ["status %s: %s" % (status, run.stderr[-300:])] if status else []
        report = run.report("--layer", "native")
        live = {"KEPT": (times * 6000, times * 6), "CHILD": (times * 500, times)}
        got = report.marked("brief.c", live)
        # There may be more ended processes than fit into memory.
        left_out = re.search(r"(\d+) processes that have ended, or that", run.stderr)
        lost = report.lost_events or left_out
        if got != live and not lost:
            wrong.append("%s, not %s" % (got, live))
        third = len(memory) // 3 + 1
        middle, last = (
            statistics.median(part)
            for part in (memory[-2 * third : -third] or memory, memory[-third:])
        )
        if max(memory) > RSS_MAX:
            wrong.append("its memory was %d MiB" % (max(memory) >> 20))
        if statistics.median(aside) > RSS_MAX:
            wrong.append("its workers' memory was %d MiB" % (statistics.median(aside) >> 20))
        if seconds >= LONG[0] and last > middle + RSS_GROWTH:
            wrong.append("its memory grew from %d to %d MiB" % (int(middle) >> 20, int(last) >> 20))
        os.unlink(run.snapshot)
        what = (
            "%d s, %d programs of %d seen whole, RssAnon %d then %d, at most %d MiB, workers at "
            "most %d MiB, %d events lost"
        )
        sizes = [int(bytes) >> 20 for bytes in (middle, last, max(memory), max(aside))]
        if left_out:
            what += ", %s programs left out" % left_out[1]
        return what % (seconds, got["CHILD"][1], times, *sizes, report.lost_events), wrong

    def session(self):
        kind = (
            self.whole if self.random.random() < 0.3 or not self.counts["sessions"] else self.killed
        )
        what, wrong = kind()
        wrong += self.gone() + self.crowd.failed
        self.crowd.failed = []
        self.counts["sessions"] += 1
        self.counts["wrong"] += bool(wrong)
        print(
            "%4d  %s%s"
            % (self.counts["sessions"], what, "  WRONG: " + "; ".join(wrong) if wrong else ""),
            flush=True,
        )

    def run(self):
        try:
            while time.monotonic() < self.end:
                self.session()
        finally:
            self.crowd.end()
            for target in self.survivors:
                target.kill()
        print("soak: %(sessions)d sessions, %(wrong)d wrong" % self.counts)
        return 1 if self.counts["wrong"] or not self.counts["sessions"] else 0


def main():
    parser = argparse.ArgumentParser(
        description="sessions over honest and hostile programs, killed at random"
    )
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return Soak(folder, options).run()


if __name__ == "__main__":
    sys.exit(main())
