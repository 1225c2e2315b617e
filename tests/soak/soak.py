#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Sessions one after another over all that runs, honest programs and hostile ones, and kills of the
tracer at random.

usage: soak.py [--minutes N] [--seed N]     (root; the tracer is build/tracer, or TRACER)

A session is `tracer -a` with a budget. One in three lives for minutes: the memory that it has is
looked at, and its results are those that the honest programs have told. The others are killed at
a random moment. After each one nothing of it is left: no program, map or link in the kernel, and
the code of the processes that went on is as it is in their files. Prints a line a session; the
last line is `soak: N sessions, N wrong`. Exit status 1 if any was wrong.
"""
import argparse
import collections
import json
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
sys.path[:0] = [os.path.join(TESTS, "e2e")]

import harness  # noqa: E402


TRACER = os.environ.get("TRACER") or os.path.join(os.path.dirname(TESTS), "build", "tracer")
BUDGET = "64M"
# Anonymous memory: the budget of the tables, and as much again for what is not charged to it and for a
# snapshot that is being written.
RSS_MAX = 2 * 64 << 20
# What it has in the middle of a long session it has at the end, but for so much: the medians of two
# thirds, since a snapshot that is made for a moment, or a large process that ends, is no growth.
RSS_GROWTH = 16 << 20
LONG, SHORT = (120, 300), (0, 10)  # seconds of a session
# seconds in which the kernel has taken out what a killed one left; before 6.6 it takes them one by
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
CC = ("gcc", "-g", "-O1", "-fno-omit-frame-pointer", "-fno-builtin", "-pthread")


def compiled(folder, name):
    path = os.path.join(folder, name)
    subprocess.run([*CC, "-o", path, harness.program(name + ".c"), "-ldl"], check=True)
    return path


class Crowd:
    """What comes and goes while sessions run."""

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
        """No brief program runs from here on; how many have."""
        self.idle.clear()
        self.pause.set()
        self.idle.wait()
        return self.briefs

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()


def memory_of(pid, field):
    """A field of its status, in bytes; 0 where it is gone."""
    try:
        with open("/proc/%d/status" % pid) as file:
            match = re.search(r"^%s:\s*(\d+) kB" % field, file.read(), re.M)
    except OSError:
        match = None
    return int(match[1]) << 10 if match else 0


def workers(pid):
    """Anonymous memory of those that read symbols for a session."""
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
            return sum(memory_of(int(child), "RssAnon") for child in file.read().split())
    except OSError:
        return 0


def ours_in_kernel():
    """Programs and links of a tracer in the kernel."""
    found = []
    for kind in ("prog", "map", "link"):
        said = subprocess.run(
            ["bpftool", "--json", kind, "show"], capture_output=True, text=True
        ).stdout
        for entry in json.loads(said or "[]"):
            if any(pid.get("comm", "").startswith("tracer") for pid in entry.get("pids", ())):
                found.append("%s %s" % (kind, entry.get("name") or entry.get("type")))
    return found


class Soak:
    def __init__(self, folder, options):
        self.folder = folder
        self.random = random.Random(options.seed)
        self.end = time.monotonic() + options.minutes * 60
        brief, blocks = compiled(folder, "brief"), compiled(folder, "blocks")
        stripped = os.path.realpath("/usr/bin/python3")
        paths = [stripped, *list(harness.pythons.unstripped().values())[-1:]]
        # One is hit at every moment by a kill; more would leave the others no processor.
        self.survivors = [
            harness.Target(paths[-1], "busy.py"),
            harness.Target(stripped, "golden.py"),
        ]
        self.survivors.append(harness.Target(blocks, None))
        self.crowd = Crowd(paths, brief, options.seed)
        self.counts = collections.Counter()

    def left(self):
        """What is not as it was before there was a session."""
        wrong = []
        for target in self.survivors:
            if target.process.poll() is not None:
                wrong.append("a survivor died: %s" % target.process.returncode)
            elif harness.text_differs(target.pid):
                wrong.append("the code of PID %d differs" % target.pid)
        return wrong + ours_in_kernel()

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
        """It sees all that the honest programs do, in a bounded space."""
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
        # Of processes that have ended there may be more than there is memory for.
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
