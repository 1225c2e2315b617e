# SPDX-License-Identifier: Apache-2.0
"""Reads perf maps, and runs a tracer that writes them."""
import fcntl
import os
import re
import shutil
import subprocess
import tempfile

import pytest

from harness import program

LINE = re.compile(r"^([0-9a-f]+) ([0-9a-f]+) (.+)$")


def entries(path):
    """{address: (size, name)} of a map file. Every line must be a valid entry."""
    with open(path, errors="surrogateescape") as file:
        found = [LINE.match(line) for line in file.read().split("\n") if line]
    assert all(found), path
    return {int(m[1], 16): (int(m[2], 16), m[3]) for m in found}


def names(path):
    """The names in a map file. Empty if the file does not exist yet."""
    return {name for _, name in entries(path).values()} if os.path.exists(path) else set()


def resolve(path):
    """The entry that perf finds at each address at which an entry begins, ends or begins to be
    overlapped."""
    table = {}
    with open(path, errors="surrogateescape") as file:
        lines = [LINE.match(line) for line in file.read().split("\n") if line]
    for match in lines:
        table[int(match[1], 16)] = match
    ends = sorted(
        {int(m[1], 16) for m in lines} | {int(m[1], 16) + int(m[2], 16) - 1 for m in lines}
    )

    def at(address):
        for match in reversed(lines):
            if 0 <= address - int(match[1], 16) < int(match[2], 16):
                return match[3]
        return None

    return {address: at(address) for address in ends}


def map_of(pid):
    return "/tmp/perf-%d.map" % pid


OF_A_PROCESS = re.compile(r"(?:perf-(\d+)\.map|jit-(\d+)\.dump)")


def _remove(name):
    path = os.path.join("/tmp", name)
    (shutil.rmtree if os.path.isdir(path) and not os.path.islink(path) else os.unlink)(path)


@pytest.fixture(autouse=True)
def clean():
    """Map files are named after process IDs, and process IDs are reused: CPython appends to what an
    earlier process has left. One test at a time has files there."""
    with open(os.path.join(tempfile.gettempdir(), "tracer-tests-perfmaps.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for match in filter(None, map(OF_A_PROCESS.fullmatch, os.listdir("/tmp"))):
            if not os.path.exists("/proc/" + (match[1] or match[2])):
                _remove(match[0])
        before = set(os.listdir("/tmp"))
        yield
        for name in set(os.listdir("/tmp")) - before:
            if OF_A_PROCESS.fullmatch(name):
                _remove(name)


class Api:
    """A client of programs/perfmap/perf_api.py."""

    def __init__(self, start, python, *options, env=None):
        # The options go between the interpreter and the program.
        self.target = start("/usr/bin/env", python.path, *options, program("perf_api.py"), env=env)
        self.pid = self.target.pid

    def say(self, *words):
        self.target.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.target.process.stdin.flush()

    def call(self, *words):
        self.say(*words)
        return int(self.target.read_line())


@pytest.fixture
def perfmap(trace):
    """A running `tracer perfmap`."""

    def run(*args, **options):
        return trace("perfmap", *args, output=False, **options)

    return run


def end(run, status=0):
    if run.process.poll() is None:
        run.interrupt()
    assert run.wait() == status, run.stderr
    return run.stdout


def compile_c(source, output, *options):
    subprocess.run(["gcc", "-O1", "-g", *options, "-o", output, source], check=True, timeout=60)
    return output
