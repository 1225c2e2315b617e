# SPDX-License-Identifier: Apache-2.0
"""`tracer memory`: the tree adds up to Rss, and its parts are those that the kernel, malloc and
pymalloc count themselves."""
import csv
import glob
import io
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

import containers
from memory_trees import check_sums, find, read, rollup
from harness import ROOT, TIMEOUT, Interpreter, Target, compiled, environment, error_line, program, wait_until

PAUSE = 34  # system call
SLEEP = 230  # clock_nanosleep


def check_tree(tree):
    low, high = tree["counted"]
    assert tree["name"] == "rss" and low <= tree["size"] <= high
    check_sums(tree)
    assert not find(tree, "changed while read")["size"]


def loaders():
    """{name: command prefix}: this machine's glibc, and those of the root file systems."""
    found = {"here": []}
    folder = os.environ.get("TRACER_ROOTS", os.path.join(ROOT, "build", "roots"))
    for root in folder.split(":") if ":" in folder else glob.glob(folder + "/[a-z]*"):
        loader = os.path.join(root, "lib64/ld-linux-x86-64.so.2")
        if os.path.exists(loader):
            libraries = os.path.join(root, "usr/lib/x86_64-linux-gnu")
            found[os.path.basename(root)] = [loader, "--library-path", libraries]
    return found


@pytest.fixture(scope="module")
def heaps(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("heaps") / "heaps", "heaps.c")


@pytest.fixture(params=loaders())
def heaps_target(request, heaps):
    with Target(heaps, None, prefix=loaders()[request.param], ready=False) as target:
        target.info = json.loads(target.read_line())
        target.read_until("ready")
        yield target


@pytest.mark.unprivileged
def test_mallinfo(heaps_target, run_tracer):
    """malloc's figures are those that it counts itself, in each version of glibc."""
    target, info = heaps_target, heaps_target.info
    tree = read(run_tracer, target.pid)
    check_tree(tree)
    free = {
        name: find(tree, "malloc", "free", name)["virtual"]
        for name in ("fastbins", "bins", "top", "tcache")
    }
    assert free["tcache"] > 0, "no thread's cache was found"
    assert free["fastbins"] + free["bins"] + free["top"] == info["fordblks"]
    assert free["fastbins"] == info["fsmblks"]
    assert len(tree["arenas"]) == 4 and tree["arenas"][0]["top"] == info["keepcost"]
    assert sum(arena["system"] for arena in tree["arenas"]) == info["arena"]
    assert not any(arena["unread"] for arena in tree["arenas"]) and tree["lists_cut"] == 0
    mapped = find(tree, "malloc", "mapped blocks")
    assert (mapped["count"], mapped["virtual"]) == (info["hblks"], info["hblkhd"])
    assert tree["mapped_blocks_counted"] == info["hblks"]
    assert tree["mapped_bytes_counted"] == info["hblkhd"]
    in_use = find(tree, "malloc", "in use")["virtual"]
    own = find(tree, "malloc", "malloc's structures")["virtual"]
    assert in_use + own + free["tcache"] == info["uordblks"]
    assert find(tree, "stacks", "other threads")["count"] == 3


@pytest.mark.unprivileged
def test_trim(heaps_target, run_tracer):
    tree = read(run_tracer, heaps_target.pid)
    estimate = find(tree, "malloc")["trimmable"]
    heaps_target.step()
    before, after = json.loads(heaps_target.read_line())
    assert estimate > 1 << 20
    assert abs(estimate - (before - after)) <= 0.05 * (before - after)
    again = read(run_tracer, heaps_target.pid)
    check_tree(again)
    assert find(again, "malloc")["trimmable"] < 65536


def stats(text):
    """The figures of sys._debugmallocstats()."""
    found = {
        key.strip(): int(value.replace(",", ""))
        for key, value in re.findall(r"^(.*\S) += +([\d,]+)$", text, re.M)
    }
    unused = next(value for key, value in found.items() if "unused pools" in key)
    arenas = next(value for key, value in found.items() if "bytes/arena" in key)
    return found, unused, arenas


@pytest.mark.unprivileged
@pytest.mark.versions("3.8", "3.11", "3.13")
def test_pymalloc(start, run_tracer, python):
    target = start(python, "heap_stats.py")
    wait_until(lambda: syscall(target.pid) == PAUSE, "it pauses")
    tree = read(run_tracer, target.pid)
    target.process.kill()
    found, unused, arenas = stats(target.process.stderr.read().decode())
    check_sums(tree)
    assert not find(tree, "changed while read")["size"]
    nodes = {node["name"]: node for node in find(tree, "python")["children"]}
    # A block that the printing itself has is free afterwards, in some runs of 3.13.
    live, free = nodes["live blocks"]["virtual"], nodes["free blocks in pools in use"]["virtual"]
    allocated, available = (found["# bytes in %s blocks" % of] for of in ("allocated", "available"))
    assert live + free == allocated + available
    assert 0 <= allocated - live <= 64
    assert (
        nodes["pool headers"]["virtual"]
        == found["# bytes lost to pool headers"] + found["# bytes lost to quantization"]
    )
    assert nodes["free pools"]["virtual"] == unused + found["# bytes lost to arena alignment"]
    assert sum(node["virtual"] for node in nodes.values()) == arenas


def syscall(pid):
    with open("/proc/%d/syscall" % pid) as file:
        number = file.read().split()[0]
    return int(number) if number.isdigit() else None


@pytest.mark.unprivileged
def test_large_blocks(start, run_tracer, any_python):
    """Blocks of more than 512 bytes are found by the objects that refer to them."""
    target = start(any_python, "heap_stats.py")
    wait_until(lambda: syscall(target.pid) == PAUSE, "it pauses")
    tree = read(run_tracer, target.pid)
    check_tree(tree)
    python = find(tree, "malloc", "in use", "large blocks of Python objects")
    assert python["virtual"] >= sum(633 + number for number in range(2000))
    assert find(tree, "malloc", "mapped blocks", "large blocks of Python objects")["size"] >= 4096
    # pymalloc counts the blocks that it passed on.
    assert 0.95 * tree["raw_blocks"] <= tree["large_blocks"] <= 1.05 * tree["raw_blocks"]


@pytest.mark.unprivileged
@pytest.mark.versions("3.11")
def test_pages(start, run_tracer, python):
    """Zero pages are not in Rss; large and shared pages are."""
    target = start(python, "untouched.py")
    wait_until(lambda: syscall(target.pid) == PAUSE, "it pauses")
    tree = read(run_tracer, target.pid)
    with open("/proc/%d/smaps" % target.pid) as file:  # the block of 24 MiB and its header's page
        block = int(re.search(r"\nSize: +24580 kB\n(?:.*\n){2}Rss: +(\d+) kB", file.read()).group(1)) << 10
    with open("/proc/%d/task/%d/children" % (target.pid, target.pid)) as file:
        os.kill(int(file.read()), signal.SIGKILL)
    check_tree(tree)
    mapped = find(tree, "malloc", "mapped blocks")
    # Whether a page that was only read is in Rss is the kernel's choice.
    assert (2 << 20) + 4096 <= block <= mapped["size"] < block + (4 << 20)
    assert mapped["virtual"] > 24 << 20
    assert 40 << 20 <= find(tree, "other anonymous memory")["size"] < 80 << 20  # 32 MiB are only read
    assert find(tree, "shared memory")["size"] == 3 << 20


@pytest.mark.unprivileged
def test_sparse(start, run_tracer, any_python):
    """What keeps arenas that are nearly empty."""
    target = start(any_python, "sparse_heap.py")
    wait_until(lambda: syscall(target.pid) == PAUSE, "it pauses")
    tree = read(run_tracer, target.pid)
    check_tree(tree)
    pinned = find(tree, "python", "free blocks in pools in use")
    assert pinned["size"] > 0.5 * find(tree, "python")["size"]
    sparse = tree["sparse"]
    assert sparse["size"] > 0.8 * find(tree, "python")["virtual"]
    first = sparse["types"][0]
    assert first["type"] == "Session" and 0.8 * 6667 < first["count"] <= 6667
    assert not any(kind["type"] == "Row" for kind in sparse["types"])


@pytest.mark.unprivileged
def test_runs_on(heaps, run_tracer):
    """A process that allocates and frees all the time: what does not add up is told."""
    with Target(heaps, None, "on") as target:
        for freeze in ((), ("--freeze",), ()):
            tree = read(run_tracer, target.pid, *freeze)
            check_sums(tree)
            assert (tree["frozen_ns"] > 0) == bool(freeze)
            assert find(tree, "malloc")["size"] > 0.5 * tree["size"]
            if freeze:
                assert not find(tree, "changed while read")["size"]
        assert target.process.poll() is None


@pytest.mark.unprivileged
def test_formats(start, run_tracer, any_python):
    target = start(any_python, "golden.py")
    tree = read(run_tracer, target.pid)
    rows = list(
        csv.DictReader(
            io.StringIO(run_tracer("memory", "-p", target.pid, "--format", "csv").stdout)
        )
    )
    # The kernel may take pages of files back meanwhile.
    low, high = sorted((tree["counted"][0], rollup(target.pid)))
    assert rows[0]["path"] == "rss" and low <= int(rows[0]["size"]) <= high
    paths = {row["path"]: int(row["size"]) for row in rows}
    assert paths["rss / python / live blocks"] == find(tree, "python", "live blocks")["size"]
    done = run_tracer("memory", "-p", target.pid, "--top", 1)
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert re.match(
        r"tracer: python\S* \(PID %d\), CPython [\d.]+, glibc 2\.\d+, " % target.pid, lines[0]
    )
    assert re.match(r"rss: [\d.]+ [KM]iB, private=[\d.]+ [KM]iB$", lines[1])
    assert any(re.match(r"  malloc: .*; malloc_trim\(0\) would return ", line) for line in lines)
    assert any(re.match(r"    \d+ other: ", line) for line in lines)
    assert "Not in RSS:" in lines and "Not seen:" in lines


@pytest.mark.unprivileged
def test_not_python(run_tracer):
    with subprocess.Popen(["sleep", "100"]) as process:
        wait_until(lambda: syscall(process.pid) == SLEEP, "it sleeps")
        tree = read(run_tracer, process.pid)
        check_tree(tree)
        process.kill()
    assert "python_version" not in tree and not find(tree, "python")["size"]
    assert find(tree, "files")["size"] > 0 and find(tree, "malloc", "in use")["size"] > 0


@pytest.mark.unprivileged
def test_other_allocator(run_tracer, heaps):
    library = next(iter(glob.glob("/usr/lib/x86_64-linux-gnu/libjemalloc.so.*")), None)
    if not library:
        pytest.skip("libjemalloc2 is not installed")
    env = dict(os.environ, LD_PRELOAD=library)
    with Target(heaps, None, env=env) as target:
        tree = read(run_tracer, target.pid)
        check_tree(tree)
        assert find(tree, "jemalloc")["size"] > 0.5 * tree["size"]


@pytest.mark.unprivileged
def test_own_allocator(run_tracer, tmp_path):
    """A program that is linked with jemalloc: its libc's malloc has nothing."""
    server = shutil.which("redis-server")
    if not server:
        pytest.skip("redis-server is not installed")
    socket = str(tmp_path / "socket")
    command = [server, "--port", "0", "--unixsocket", socket, "--save", ""]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=tmp_path) as process:
        wait_until(lambda: os.path.exists(socket), "it listens")
        tree = read(run_tracer, process.pid)
        process.kill()
    check_tree(tree)
    assert find(tree, "jemalloc", "in use")["size"] > 0
    assert "another one is used" in tree["malloc_refused"]


@pytest.mark.unprivileged
def test_other_user(run_tracer):
    if os.geteuid():
        pytest.skip("root is needed for a process of another user")
    with subprocess.Popen(["sleep", "100"], user="nobody") as process:
        wait_until(lambda: syscall(process.pid) == SLEEP, "it sleeps")
        check_tree(read(run_tracer, process.pid))
        process.kill()


@pytest.mark.unprivileged
def test_refused(run_tracer):
    if not os.geteuid():
        line = error_line(run_tracer("memory", "-p", 2), 1)
        assert "kernel thread" in line
    with subprocess.Popen(["true"]) as process:
        wait_until(lambda: " Z " in open("/proc/%d/stat" % process.pid).read(), "it is a zombie")
        line = error_line(run_tracer("memory", "-p", process.pid), 1)
        assert str(process.pid) in line and "ended" in line
    assert "PID" in error_line(run_tracer("memory"), 2)
    assert "format" in error_line(run_tracer("memory", "-p", 1, "--format", "yaml"), 2)


@pytest.mark.unprivileged
@pytest.mark.parametrize("seed", range(6))
def test_corrupt_heap(run_tracer, tmp_path, seed):
    """What cannot be read of a heap is told, and the tree adds up."""
    path = compiled(tmp_path / "scribbled", "scribbled.c")
    with Target(path, None, seed) as target:
        tree = read(run_tracer, target.pid)
        check_tree(tree)
        assert find(tree, "malloc", "could not be read")["virtual"] > 4096
        assert tree["arenas"][0]["unread"] == find(tree, "malloc", "could not be read")["virtual"]


@pytest.mark.unprivileged
def test_ends_meanwhile(run_tracer, tracer, heaps):
    """It ends at any moment: a whole tree, or one line."""
    for delay in (0, 0.002, 0.005, 0.01, 0.02, 0.04):
        with Target(heaps, None) as target:
            process = subprocess.Popen(
                [tracer, "memory", "-p", str(target.pid), "--format", "json"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            time.sleep(delay)
            os.kill(target.pid, signal.SIGKILL)
            out, err = process.communicate(timeout=60)
            if process.returncode:
                assert process.returncode == 1 and err.startswith("tracer: ")
                assert err.count("\n") == 1 and not out
            else:
                check_sums(json.loads(out))


@pytest.fixture(scope="module")
def docker(tmp_path_factory):
    paths = [path for path in (containers.harness.pythons.newest(),) if path]
    if not paths:
        pytest.skip("no CPython on this machine")
    try:
        daemon = containers.Docker(tmp_path_factory.mktemp("docker"))
    except containers.Unavailable as why:
        pytest.skip(str(why))
    with daemon:
        daemon.load(paths)
        yield daemon


def test_container(docker, run_tracer, any_python):
    with docker.start(any_python, "golden.py") as target:
        tree = read(run_tracer, target.pid)
        check_tree(tree)
        assert find(tree, "python", "live blocks")["size"] > 0
        assert find(tree, "malloc", "in use")["size"] > 0
        assert tree["cgroup"]["used"] >= tree["cgroup"]["anonymous"] > 0


MAPPER = """
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    shared = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
    private = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
sum(shared[::4096])
private[: 1 << 20] = b"x" * (1 << 20)
print("ready", flush=True)
sys.stdin.read()
"""


def test_shared_maps_are_page_cache(any_python, run_tracer):
    """A page of a MAP_SHARED file is the file's, however dirty; of a private map only what the
    process has written is its own."""
    with tempfile.NamedTemporaryFile(dir="/var/tmp") as file:
        file.write(b"y" * (8 << 20))
        file.flush()
        with subprocess.Popen(
            [any_python.path, "-c", MAPPER, file.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
        ) as process:
            assert process.stdout.readline() == b"ready\n"
            tree = json.loads(run_tracer("memory", "-p", process.pid, "--format", "json").stdout)
            process.stdin.close()
            assert process.wait(TIMEOUT) == 0
    sizes = {node["name"]: node["size"] for node in find(tree, "files", file.name)["children"]}
    assert sizes.pop("private, dirty") == 1 << 20
    assert sum(size for name, size in sizes.items() if name.startswith("page cache")) >= 8 << 20
