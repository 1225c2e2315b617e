# SPDX-License-Identifier: Apache-2.0
"""What reading does to a target: nothing. A pool of forked workers that are quiet has the same
figures before and after every command that reads."""
import os
import re
import subprocess

import pytest

from harness import TIMEOUT, Target, environment, wait_reading

# A pool as large as a service: POOL_MEGABYTES=200.
MEGABYTES, WORKERS = int(os.environ.get("POOL_MEGABYTES", 24)), 8
SAME_KIB, PAGE_KIB = 100, 4

READS = (
    ("memory",),
    ("memory", "--freeze"),
    ("heap",),
    ("heap", "--by", "path"),
    ("heap", "why", "float"),
    ("heap", "cycles"),
    ("heap", "waste"),
    ("heap", "--freeze", "--by", "module"),
    ("--dry-run",),
    ("list",),
)
TRACES = (
    ("-m", "exact"),
    ("-m", "growth"),
    ("--overhead", "5"),
    ("--sample", "4096"),
    ("--layer", "all"),
    ("--source",),
    ("perfmap",),
    ("leaks", "-d", "1"),
)


def figures(pid):
    """KiB, of smaps. Of files only what is a copy of its own, and what is mapped: how much of the rest
    is private or shared changes with every other process that maps them."""
    found = dict.fromkeys(("Private", "Shared", "Pss", "Anonymous", "Rss", "Swap"), 0)
    with open("/proc/%d/smaps" % pid) as file:
        for line in file:
            fields = line.split()
            if not fields[0].endswith(":"):
                is_file = len(fields) > 5 and fields[5].startswith("/")
                continue
            key = fields[0][:-1].split("_")[0]
            if key in ("Anonymous", "Rss", "Swap") or (key in found and not is_file):
                found[key] += int(fields[1]) if fields[0] != "Pss_Dirty:" else 0
    return found


def check_same(before, after, allowed_kib=0):
    """allowed_kib: for the pages of probes; placing one also maps the pages around it, as running
    the text there would."""
    for key, value in before.items():
        if key == "Rss" and allowed_kib:
            continue
        assert abs(after[key] - value) <= SAME_KIB + allowed_kib, (key, before, after)


@pytest.fixture(scope="module")
def pool():
    """workers(python): a Target that has forked them, and their process ids."""
    started = {}

    def make(python):
        if python.path not in started:
            target = Target(python, "prefork.py", MEGABYTES, WORKERS, ready=False)
            pids = [int(pid) for pid in target.read_line().split()]
            target.read_until("ready")
            started[python.path] = target, pids
        return started[python.path]

    yield make
    for target, _ in started.values():
        target.kill()


@pytest.mark.versions("3.9", "3.13")
def test_reads(pool, run_tracer, python, tmp_path):
    target, pids = pool(python)
    is_shared = figures(pids[0])
    assert is_shared["Shared"] > 6 * is_shared["Private"] and is_shared["Pss"] < MEGABYTES << 8
    reads = [*READS, ("heap", "-o", str(tmp_path / "heap.dump"))]
    before = [figures(pid) for pid in (target.pid, *pids)]
    for i, command in enumerate(reads):
        pid = pids[i % WORKERS]
        done = run_tracer(*command, *(("-p", pid) if command != ("list",) else ()))
        assert done.returncode == 0, done.stderr
        check_same(before[1 + i % WORKERS], figures(pid))
    found = re.search(r"0x([0-9a-f]+)", run_tracer("heap", "holders", "list", "-p", pids[0]).stdout)
    assert found, "no holder has an address"
    assert run_tracer("heap", "show", "0x" + found[1], "-p", pids[0]).returncode == 0
    for pid, figure in zip((target.pid, *pids), before):
        check_same(figure, figures(pid))


@pytest.mark.versions("3.12")
def test_traces(pool, tracer, python):
    """A probe is a byte in a page of text, which is copied: at most a page for each."""
    _, pids = pool(python)
    before = [figures(pid) for pid in pids]
    runs = [
        subprocess.Popen(
            [tracer, *command, *(() if "-d" in command else ("-d", "0.5")), "-p", str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        for command, pid in zip(TRACES, pids)
    ]
    for command, run, pid, figure in zip(TRACES, runs, pids, before):
        said = run.communicate(timeout=TIMEOUT)[1]
        assert run.returncode == 0, (command, said)
        probes = re.search(r"(\d+) probes?", said)
        assert probes or command[0] == "leaks", (command, said)
        check_same(figure, figures(pid), PAGE_KIB * int(probes[1] if probes else 100))


@pytest.mark.versions("3.12")
def test_while_traced(pool, trace, run_tracer, python, tmp_path):
    """While the probes are there, snapshots and walks of the heap change nothing more."""
    _, pids = pool(python)
    run = trace("-p", pids[0])
    before = figures(pids[0])
    for name in ("a", "b"):
        done = run_tracer("ctl", pids[0], "snapshot", tmp_path / name)
        assert done.returncode == 0, done.stderr
    check_same(before, figures(pids[0]))
    run.finish()


def file_rss_kib(pid, path):
    with open("/proc/%d/smaps" % pid) as file:
        text = file.read()
    return sum(map(int, re.findall(re.escape(path) + r"\n.*\nKernel.*\nMMU.*\nRss: +(\d+)", text)))


def test_untouched_maps(run_tracer, start, any_python, tmp_path):
    """Mapped regions that were never touched stay so: of files, private and shared, and without."""
    path = str(tmp_path / "mapped")
    with open(path, "wb") as file:
        file.write(b"m" * (8 << 20))
    target = start(any_python, "mapped_untouched.py", path)
    wait_reading(target.pid)
    before = figures(target.pid)
    for command in (("memory",), ("heap",), ("heap", "--by", "path"), ("heap", "waste")):
        done = run_tracer(*command, "-p", target.pid)
        assert done.returncode == 0, done.stderr
        assert file_rss_kib(target.pid, path) == 0, command
        check_same(before, figures(target.pid))
