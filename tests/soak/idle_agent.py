#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What an agent costs on a machine of many processes that do nothing: CPU time and memory of each
of its processes, from its start until that is steady.

usage: idle_agent.py [--processes N] [--working N] [--most SECONDS]
       (root; build/tracer, or TRACER)

The processes sleep after they have imported a part of the standard library; they are of all the
CPythons that tools/pythons.py finds. With --working so many of them do a small piece of work each
second. Prints a line every 30 s until two in a row agree, with the share of a CPU of each process
of the agent, then the memory of each (PSS). Exit status 1 if it is more than what is aimed at.
"""
import argparse
import contextlib
import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path[:0] = [HERE, TESTS, os.path.join(TESTS, "e2e"), os.path.join(TESTS, "services")]
sys.path.append(os.path.join(os.path.dirname(TESTS), "tools"))

import agent_world as world  # noqa: E402
import agents  # noqa: E402
import harness  # noqa: E402
import pythons  # noqa: E402

MOST_CPU, MOST_MEMORY = 0.005, 80 << 20  # of a CPU; bytes: what is aimed at
WINDOW = 30  # seconds
STEADY = 0.1, 0.0005  # two windows agree: by a part of the former, or by so much of a CPU
AT_ONCE = 8  # so many processes start at a time
FOUND = 60  # seconds that it may take to find all

IDLE = """
import asyncio, collections, decimal, email.message, http.client, json, logging, sys, time, uuid
print("ready", flush=True)
kept = collections.deque(maxlen=100)
while sys.argv[1] == "idle":
    time.sleep(3600)
while True:
    kept.append(json.loads(json.dumps({str(i): [i, str(decimal.Decimal(i))] for i in range(100)})))
    time.sleep(1)
"""

CONFIG = """[targets]
comm = {name}-*
[evidence]
folder = {folder}/evidence
[http]
listen = 127.0.0.1:{port}
"""


def interpreters(folder):
    """{name: a copy of an interpreter}, with copies of their libraries."""
    found, copies = {"debian": pythons.DISTRIBUTION, **pythons.unstripped()}, {}
    for name, path in found.items():
        for library in glob.glob(os.path.dirname(path) + "/../lib/libpython3.*.so.1.0"):
            shutil.copy2(library, folder)
        copies[name] = world.interpreter(folder, "%s-%s" % (world.NAME, name), path)
    return copies


class Crowd:
    """Processes of all interpreters, whose names begin alike."""

    def __init__(self, folder, processes, working):
        copies, env = interpreters(folder), harness.environment(LD_LIBRARY_PATH=folder)
        self.versions, self.processes = list(copies), []
        for i in range(processes):
            path = list(copies.values())[i % len(copies)]
            command = [path, "-c", IDLE, "works" if i < working else "idle"]
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
            self.processes.append(subprocess.Popen(command, env=env, **pipes))
            if i % AT_ONCE == 0 or i == processes - 1:
                line = self.processes[-1].stdout.readline()
                assert line == b"ready\n", "a process has not begun"

    def end(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait(harness.TIMEOUT)


def cpu_ns(pid):
    """CPU time of a process, and of children of it that have ended."""
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rsplit(") ", 1)[1].split()
    children = sum(map(int, fields[13:15])) * 10**9 // os.sysconf("SC_CLK_TCK")
    return time.clock_gettime_ns(~pid << 3 | 2) + children


class Idle:
    def __init__(self, options, parts):
        self.options, self.family = options, world.Family()
        self.folder = pathlib.Path(parts.enter_context(tempfile.TemporaryDirectory()))
        self.crowd = Crowd(str(self.folder), options.processes, options.working)
        parts.callback(self.crowd.end)
        self.port, self.spent = harness.free_port(), {}

    def cpu(self):
        """{role: CPU time in ns since the agent's start}; what has ended keeps its last figure."""
        for pid, role in self.family.roles(self.agent).items():
            with contextlib.suppress(OSError):
                self.spent[pid] = role, cpu_ns(pid)
        sums = dict.fromkeys(world.ROLES_ALL, 0)
        for role, spent in self.spent.values():
            sums[role] += spent
        return sums

    def memory(self):
        """{role: (PSS, the anonymous part of it)}"""
        sums = {}
        for pid, role in self.family.roles(self.agent).items():
            with contextlib.suppress(OSError, TypeError):
                figures = world.memory_of(pid, "Pss"), world.memory_of(pid)
                sums[role] = tuple(map(sum, zip(sums.get(role, (0, 0)), figures)))
        return sums

    def targets(self):
        """(how many processes it has found, how many of them it traces). The question costs it."""
        time.sleep(1)
        with contextlib.suppress(OSError):
            with urllib.request.urlopen("http://127.0.0.1:%d/targets" % self.port) as got:
                found = json.load(got)["processes"]
            return len(found), sum(each["traced"] for each in found)
        return 0, 0

    def row(self, label, shares):
        total = sum(shares.values())
        figures = [100 * shares[role] for role in world.ROLES_ALL] + [100 * total]
        print("%-10s" % label + "".join("%9.2f" % figure for figure in figures), flush=True)
        return total

    def window(self, seconds):
        before, began = self.cpu(), time.monotonic()
        time.sleep(seconds)
        now, elapsed = self.cpu(), (time.monotonic() - began) * 1e9
        return {role: (now[role] - before[role]) / elapsed for role in now}

    def watch(self):
        """Windows until two agree: the share of a CPU in the last one."""
        print("%-10s" % "% of a CPU" + "".join("%9s" % r for r in (*world.ROLES_ALL, "all")))
        began, before = time.monotonic(), None
        while True:
            at = time.monotonic() - began
            share = self.row("%d s" % at, self.window(WINDOW))
            if before is not None and abs(share - before) <= max(STEADY[0] * before, STEADY[1]):
                return share
            if at + WINDOW >= self.options.most:
                print("it was not steady after %d s" % self.options.most)
                return share
            before = share

    def run(self):
        config = CONFIG.format(name=world.NAME, folder=self.folder, port=self.port)
        (self.folder / "evidence").mkdir(mode=0o700)
        began = time.monotonic()
        tracer, env = harness.tracer_path(), self.family.environment()
        self.agent = agents.Agent(tracer, self.folder, config, env=env, rests=True)
        try:
            wanted = self.options.processes
            harness.wait_until(lambda: self.targets()[0] >= wanted, "all are found", FOUND)
            seconds, spent = time.monotonic() - began, sum(self.cpu().values()) / 1e9
            print(
                "%d processes (%d work) of %s: found after %.1f s, %.1f s of CPU time"
                % (wanted, self.options.working, " ".join(self.crowd.versions), seconds, spent)
            )
            share, memory = self.watch(), self.memory()
            traced = self.targets()[1]
        finally:
            status = self.agent.end()
        print("%-10s%12s%12s" % ("MiB", "PSS", "anonymous"))
        memory["all"] = tuple(map(sum, zip(*memory.values())))
        for role, sizes in memory.items():
            print("%-10s%12.1f%12.1f" % (role, *(size / (1 << 20) for size in sizes)))
        memory_mib = memory["all"][0] / (1 << 20)
        print("%.2f %% of a CPU, %.1f MiB; %d are traced" % (100 * share, memory_mib, traced))
        print(self.agent.log.read_text(), file=sys.stderr, end="")
        return int(bool(status) or share > MOST_CPU or memory["all"][0] > MOST_MEMORY)


def main():
    parser = argparse.ArgumentParser(description="an agent beside processes that do nothing")
    parser.add_argument("--processes", type=int, default=300)
    parser.add_argument("--working", type=int, default=0)
    parser.add_argument("--most", type=int, default=600)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what it has started is ended, too
    with contextlib.ExitStack() as parts:
        return Idle(parser.parse_args(), parts).run()


if __name__ == "__main__":
    sys.exit(main())
