# SPDX-License-Identifier: Apache-2.0
"""Memory that is swapped out stays there, and what was not read is told; --swap-in reads it."""
import ctypes
import json
import os
import re
import shutil
import subprocess

import pytest

from harness import error_line
from test_heap_graph import ask

COUNT = 3000
SWAP_BYTES = 128 << 20
MADV_PAGEOUT = 21
PROCESS_MADVISE = 440


class Range(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("size", ctypes.c_size_t)]


@pytest.fixture
def swap(tmp_path):
    """A swap file of its own, behind all others."""
    path = str(tmp_path / "swap")
    if not shutil.which("mkswap") or not shutil.which("swapon"):
        pytest.skip("no mkswap, swapon (Debian: util-linux, mount)")
    with open(path, "wb") as file:
        os.chmod(path, 0o600)
        for _ in range(SWAP_BYTES >> 20):
            file.write(bytes(1 << 20))
    subprocess.run(["mkswap", path], check=True, capture_output=True)
    done = subprocess.run(["swapon", path], capture_output=True, text=True)
    if done.returncode:
        pytest.skip("no swap file here: " + done.stderr.strip())
    yield
    subprocess.run(["swapoff", path], check=True)


def swapped(pid):
    """Bytes of the process that are on swap."""
    with open("/proc/%d/status" % pid) as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmSwap"))


def page_out(pid, ranges=None):
    """Swaps out ranges, or all of the process's private memory; returns how many bytes are on swap
    then."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    with open("/proc/%d/maps" % pid) as file:
        maps = re.findall(r"^(\w+)-(\w+) rw-p (?!.*\[v)", file.read(), re.M)
    for start, end in ranges or [(int(start, 16), int(end, 16)) for start, end in maps]:
        # Pages in the caches of processors are not on the lists yet: a second try takes them.
        for _ in range(2):
            piece = Range(start, end - start)
            libc.syscall(PROCESS_MADVISE, pidfd, ctypes.byref(piece), 1, MADV_PAGEOUT, 0)
    os.close(pidfd)
    return swapped(pid)


@pytest.fixture
def target(swap, start, any_python):
    target = start(any_python, "graph_builtins.py", COUNT)
    target.wait_reading()
    yield target
    target.kill()


COMMANDS = (
    ("heap",),
    ("heap", "--by", "path"),
    ("heap", "waste"),
    ("memory",),
    ("list",),
)


def test_refused_if_all_is_out(target, run_tracer):
    """What leads to the heap is not read either: the message says how to."""
    before = page_out(target.pid)
    assert before > 4 << 20, "nothing was swapped out"
    for command in COMMANDS:
        done = run_tracer(*command, *(() if command == ("list",) else ("-p", target.pid)))
        assert abs(before - swapped(target.pid)) < 100 << 10, command
        if command[0] == "heap":
            assert "swapped out" in error_line(done, 1) and "--swap-in" in done.stderr
        if command[0] == "memory":
            assert "Python's heap" in done.stdout and "--swap-in" in done.stdout


def test_stays(swap, start, any_python, run_tracer, tmp_path):
    target = start(any_python, "row_pages.py", ready=False)
    ranges = json.loads(target.read_line())
    target.wait_reading()
    kept = page_out(target.pid, ranges)
    assert kept > 2 << 20, "nothing was swapped out"
    dump = str(tmp_path / "heap.dump")
    plain = ask(run_tracer, "-p", target.pid)
    assert 0 < plain["bytes_swapped"] <= kept
    graph = ask(run_tracer, "--by", "root", "-o", dump, "-p", target.pid)
    assert graph["bytes_swapped"] == kept == ask(run_tracer, "--by", "root", dump)["bytes_swapped"]
    for command in COMMANDS[1:-1]:
        text = run_tracer(*command, "-p", target.pid).stdout
        assert "on swap, which were not read" in text or "on swap, which was not read" in text
    assert kept == swapped(target.pid)
    # A session reads what leads to Python's state in any case: some pages.
    done = run_tracer("-p", target.pid, "-d", "0.5")
    assert done.returncode == 0, done.stderr
    assert swapped(target.pid) > kept // 2
    # With the option all of it comes back, and is read.
    full = ask(run_tracer, "--retained", "--swap-in", "-p", target.pid)
    assert full["bytes_swapped"] == 0 and full["total"]["count"] > graph["total"]["count"] > 0
    assert swapped(target.pid) < kept // 2


def test_refused(run_tracer, any_python, tmp_path):
    for arguments in (("--core", str(tmp_path)), ("a.dump",), ("why", "str", "a.dump"), ()):
        done = run_tracer("heap", "--swap-in", *arguments)
        assert done.returncode == 2, done.stderr
