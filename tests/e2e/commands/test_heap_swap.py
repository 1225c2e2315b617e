# SPDX-License-Identifier: Apache-2.0
"""--no-swap-in: a heap that is swapped out stays there, and what was not read is told."""
import ctypes
import os
import shutil
import subprocess

import pytest

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


def page_out(pid):
    """Swaps out the process's private memory; returns how many bytes are on swap then."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    with open("/proc/%d/maps" % pid) as file:
        maps = [line.split() for line in file]
    for fields in maps:
        if "rw-p" != fields[1] or (len(fields) > 5 and fields[5].startswith("[v")):
            continue
        start, end = (int(number, 16) for number in fields[0].split("-"))
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


def test_no_swap_in(target, run_tracer):
    before = page_out(target.pid)
    assert before > 4 << 20, "nothing was swapped out"
    # What leads to the heap is read in any case: some pages.
    plain = ask(run_tracer, "--no-swap-in", "-p", target.pid)
    kept = swapped(target.pid)
    assert before - kept < 3 << 20
    assert 0 < plain["bytes_swapped"] <= kept
    assert plain["pools_unreadable"] > 9 * plain["pools"]
    for options in (("--by", "class"), ("--retained",), ("--by", "root"), ("why", "S")):
        run_tracer("heap", *options, "--no-swap-in", "-p", target.pid)
        assert swapped(target.pid) == kept, options
    graph = ask(run_tracer, "--retained", "--no-swap-in", "-p", target.pid)
    assert graph["bytes_swapped"] == kept
    text = run_tracer("heap", "--retained", "--no-swap-in", "-p", target.pid).stdout
    assert "MiB on swap, which were not read" in text
    assert swapped(target.pid) == kept
    # Without the option all of it comes back, and is read.
    full = ask(run_tracer, "--retained", "-p", target.pid)
    assert full["bytes_swapped"] == 0 and full["total"]["count"] > 20 * graph["total"]["count"] > 0
    assert swapped(target.pid) < kept // 2


def test_no_swap_in_memory(target, run_tracer):
    before = page_out(target.pid)
    report = run_tracer("memory", "--no-swap-in", "--format", "json", "-p", target.pid)
    assert report.returncode == 0, report.stderr
    assert before - swapped(target.pid) < 3 << 20
    text = run_tracer("memory", "--no-swap-in", "-p", target.pid).stdout
    assert "Python's heap on swap, which was not read" in text


def test_no_swap_in_dump(target, run_tracer, tmp_path):
    """A dump says what was left out of it."""
    page_out(target.pid)
    dump = str(tmp_path / "heap.dump")
    written = ask(run_tracer, "--by", "root", "--no-swap-in", "-o", dump, "-p", target.pid)
    assert ask(run_tracer, "--by", "root", dump)["bytes_swapped"] == written["bytes_swapped"] > 0


def test_refused(run_tracer, any_python, tmp_path):
    for arguments in (("--core", str(tmp_path)), ("a.dump",), ("why", "str", "a.dump"), ()):
        done = run_tracer("heap", "--no-swap-in", *arguments)
        assert done.returncode == 2, done.stderr
