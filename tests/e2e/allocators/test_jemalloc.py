# SPDX-License-Identifier: Apache-2.0
"""`tracer memory` reads the heaps of jemalloc from outside: its figures are those that jemalloc
itself counts."""
import json
import os
import re
import shutil
import subprocess

import pytest

from harness import NATIVE_FLAGS, TIMEOUT, Target, compiled, environment, program, wait_until
from truth import library

pytestmark = pytest.mark.unprivileged

WITHIN = 0.005


def tool(name):
    return shutil.which(name) or pytest.skip("this machine has no " + name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("jemalloc")


@pytest.fixture(scope="module")
def counts(folder):
    """The C program, to be run with jemalloc preloaded."""
    library("libjemalloc.so.2")
    return compiled(folder / "counts", "jemalloc_counts.c")


@pytest.fixture(scope="module")
def prefixed(folder):
    """jemalloc as an archive whose functions begin with _rjem_, as in programs of Rust."""
    path = str(folder / "libprefixed.a")
    nm = subprocess.run(
        ["nm", "--defined-only", "-g", library("libjemalloc.a")], stdout=subprocess.PIPE, text=True
    )
    defined = {line.split()[-1] for line in nm.stdout.splitlines() if " " in line}
    names = [name for name in defined if not name.startswith(("je_", "_Z"))]
    renamed = ["--redefine-sym=%s=_rjem_%s" % (name, name) for name in names]
    shutil.copy(library("libjemalloc.a"), path)
    members = subprocess.run(["ar", "t", path], stdout=subprocess.PIPE, text=True).stdout.split()
    others = [name for name in members if "cpp" in name]  # operators new and delete
    if others:
        subprocess.run(["ar", "d", path, *others], check=True)
    subprocess.run(["objcopy", *renamed, path], check=True)
    return path


class Counting(Target):
    """A program that answers each line with jemalloc's own figures."""

    def __init__(self, command, *args, conf="", preload=None, ready=False):
        env = environment(MALLOC_CONF=conf)
        if preload:
            env["LD_PRELOAD"] = preload
        super().__init__(command, None, *args, env=env, ready=ready)

    def ask(self, line="look"):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.read_line())

    def rss(self):
        with open("/proc/%d/statm" % self.pid) as file:
            return int(file.read().split()[1]) * 4096


def read(run_tracer, pid):
    done = run_tracer("memory", "-p", pid, "--format", "json")
    assert done.returncode == 0, done.stderr
    tree = json.loads(done.stdout)
    check_sums(tree)
    assert "allocators_refused" not in tree, tree["allocators_refused"]
    (heap,) = tree["allocators"]
    assert heap["name"] == "jemalloc"
    return tree, heap


def check_sums(node):
    if node["children"]:
        assert sum(child["size"] for child in node["children"]) == node["size"], node["name"]
    for child in node["children"]:
        check_sums(child)


def node_of(tree):
    return next(child for child in tree["children"] if child["name"] == "jemalloc")


def figures(heap):
    """Ours, by jemalloc's names."""
    active = heap["used"] + heap["cached"] + heap["free"]
    free = heap["dirty"] + heap["muzzy"]
    return {
        "allocated": heap["used"] + heap["cached"],
        "active": active,
        "mapped": active + free + heap["metadata"],
        "retained": heap["retained"],
        "dirty": heap["dirty"],
        "muzzy": heap["muzzy"],
        "tcache_bytes": heap["cached"],
        "base": heap["metadata"] - heap["metadata_unused"],
    }


def between(heap, before, after, within=WITHIN, names=("allocated", "active", "mapped")):
    """Are ours between those before and after the reading?"""
    ours = figures(heap)
    wrong = {
        name: (before[name], ours[name], after[name])
        for name in names
        if not min(before[name], after[name]) * (1 - within)
        <= ours[name]
        <= max(before[name], after[name]) * (1 + within)
    }
    print({name: (before[name], ours[name], after[name]) for name in names})
    return wrong


def check_at_rest(run_tracer, target, more=True):
    """Read until nothing changed meanwhile; then all is equal."""

    def steady():
        before = target.ask()
        tree, heap = read(run_tracer, target.pid)
        return target.ask() == before and (before, tree, heap)

    own, tree, heap = wait_until(steady, "the program is at rest")
    ours = figures(heap)
    for name in ("allocated", "active", "mapped", "retained"):
        assert ours[name] == own[name], (name, own, ours)
    assert heap["unread"] == heap["lists_cut"] == heap["reads_swapped"] == 0
    assert sum(size["used"] * size["size"] for size in heap["sizes"]) <= heap["used"]
    for size in heap["sizes"]:
        blocks = size["used"] + size["cached"] + size["free"]
        assert blocks * size["size"] <= size["slab_bytes"], size
    if more:
        assert ours["tcache_bytes"] == own["tcache_bytes"]
        assert ours["dirty"] == own["pdirty"] * 4096 and ours["muzzy"] == own["pmuzzy"] * 4096
        assert abs(ours["base"] - own["base"]) <= WITHIN * own["base"]
        bins = {size: (used, slabs) for size, used, slabs in own["bins"] if slabs}
        assert bins == {
            size["size"]: (size["used"] + size["cached"], size["slabs"]) for size in heap["sizes"]
        }
        # It knows its own blocks, too; jemalloc has some of its own among them, for each cache.
        most = own["live"] + (1 << 20) + heap["caches"] * (64 << 10)
        assert own["live"] <= heap["used"] <= most, (own["live"], heap["used"])
    return tree, heap


def check_purge(target, tree):
    said, before = node_of(tree)["trimmable"], target.rss()
    target.ask("purge")
    fell = before - target.rss()
    print("a purge returns %d, RSS fell by %d" % (said, fell))
    assert abs(said - fell) <= 0.05 * max(said, fell) + 65536


@pytest.mark.parametrize(
    "conf",
    [
        "",
        "narenas:1",
        "narenas:400",
        "tcache:false",
        "percpu_arena:percpu",
        "muzzy_decay_ms:100000",
        "dirty_decay_ms:0",
        "retain:false",
        "lg_tcache_max:20",
        "slab_sizes:1-4096:17",
        "metadata_thp:always,thp:always",
        "oversize_threshold:1000000",
    ],
)
def test_counts(run_tracer, counts, conf):
    threads = 200 if conf == "narenas:400" else 6
    scale = 3 if conf == "narenas:400" else 30
    preload = library("libjemalloc.so.2")
    with Counting(counts, threads, scale, conf=conf, preload=preload) as target:
        target.read_line()
        tree, heap = check_at_rest(run_tracer, target)
        assert re.match(r"5\.\d+\.\d+$", heap["version"])
        assert heap["caches"] == 0 if conf == "tcache:false" else heap["caches"] > threads
        check_purge(target, tree)


def test_prefixed(run_tracer, folder, prefixed):
    """A copy in the program itself, stripped."""
    path = compiled(
        folder / "static", "jemalloc_counts.c", "-DPREFIX=_rjem_", prefixed, "-lm", "-ldl", "-s"
    )
    with Counting(path, 4, 30) as target:
        target.read_line()
        tree, _ = check_at_rest(run_tracer, target)
        check_purge(target, tree)


def test_rust(run_tracer, folder, prefixed):
    path = str(folder / "rust")
    link = ["-C", "link-arg=" + prefixed, "-C", "link-arg=-lm", "-C", "strip=symbols"]
    subprocess.run(
        [tool("rustc"), "-O", "-o", path, *link, program("jemalloc_rust.rs")], check=True
    )
    with Counting(path, ready=True) as target:
        check_at_rest(run_tracer, target, more=False)


def test_cpp(run_tracer, folder):
    path = str(folder / "maps")
    subprocess.run([tool("g++"), "-O1", "-o", path, program("jemalloc_maps.cc")], check=True)
    with Counting(path, preload=library("libjemalloc.so.2"), ready=True) as target:
        tree, _ = check_at_rest(run_tracer, target, more=False)
        check_purge(target, tree)


def test_python(run_tracer):
    """Blocks that Python's objects refer to are told apart."""
    preload = library("libjemalloc.so.2")
    python = tool("/usr/bin/python3")
    with Counting(python, program("jemalloc_blocks.py"), preload=preload, ready=True) as target:
        tree, heap = check_at_rest(run_tracer, target, more=False)
        check_purge(target, tree)
    used = next(child for child in node_of(tree)["children"] if child["name"] == "in use")
    large = next(c for c in used["children"] if c["name"] == "large blocks of Python objects")
    assert large["count"] >= 5000 and large["size"] >= 5000 * 5000
    assert next(size for size in heap["sizes"] if size["size"] == 5120)["used"] >= 5000


def test_working(run_tracer, counts):
    """While its threads allocate and free."""
    with Counting(counts, 2, 100, preload=library("libjemalloc.so.2")) as target:
        target.read_line()
        target.ask("work")

        def reading():
            before = target.ask()
            tree, heap = read(run_tracer, target.pid)
            after = target.ask()
            assert heap["unread"] <= WITHIN * figures(heap)["mapped"]
            return not between(heap, before, after)

        wait_until(reading, "figures of a program that works")
        target.ask("rest")
        check_at_rest(run_tracer, target)


def test_purging(run_tracer, counts):
    """While it returns its free pages."""
    conf = "dirty_decay_ms:10,muzzy_decay_ms:10,background_thread:true"
    with Counting(counts, 3, 30, conf=conf, preload=library("libjemalloc.so.2")) as target:
        target.read_line()
        target.ask("work")
        for _ in range(3):
            before = target.ask("purge")
            _, heap = read(run_tracer, target.pid)
            after = target.ask("purge")
            assert not between(heap, before, after, 0.05, ["allocated", "active"])
        target.ask("rest")


def test_two_copies(run_tracer, folder, prefixed):
    """One in the program, and one that is preloaded, of which libc's functions are a part."""
    path = compiled(folder / "two", "jemalloc_counts.c", "-DPREFIX=_rjem_", prefixed, "-lm", "-ldl")
    with Counting(path, 2, 20, preload=library("libjemalloc.so.2")) as target:
        target.read_line()
        own = target.ask()
        tree, heap = read(run_tracer, target.pid)
    ours = figures(heap)
    for name in ("allocated", "active", "mapped"):
        assert own[name] < ours[name] < 1.5 * own[name] + (16 << 20), (name, own, ours)
    # The preloaded one has the arrays of the threads and little else.
    assert heap["used"] >= own["live"] + 2 * 4000 * 8


def test_beside_malloc(run_tracer, folder, prefixed):
    """libc's own malloc has the arrays of the threads."""
    path = compiled(
        folder / "beside", "jemalloc_counts.c", "-DPREFIX=_rjem_", prefixed, "-lm", "-ldl"
    )
    with Counting(path, 2, 20) as target:
        target.read_line()
        tree, _ = check_at_rest(run_tracer, target)
    assert {"jemalloc", "malloc"} <= {child["name"] for child in tree["children"]}
    assert not any(child["name"].startswith("mapped by") for child in tree["children"])


class Redis:
    def __init__(self, path):
        self.path = path

    def ask(self, *words):
        return subprocess.run(
            [tool("redis-cli"), "-s", self.path, *words], stdout=subprocess.PIPE, text=True
        ).stdout

    def counts(self):
        """jemalloc's own, which redis asks for now and then."""
        text = self.ask("memory", "stats")
        info = self.ask("memory", "malloc-stats")
        found = re.search(
            r"Allocated: (\d+), active: (\d+), .*mapped: (\d+), retained: (\d+)", info
        )
        assert found, text + info
        return dict(zip(("allocated", "active", "mapped", "retained"), map(int, found.groups())))


@pytest.fixture
def redis(tmp_path):
    path = str(tmp_path / "socket")
    command = [tool("redis-server"), "--port", "0", "--unixsocket", path, "--save", ""]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=tmp_path) as process:
        wait_until(lambda: os.path.exists(path), "redis listens")
        server = Redis(path)
        server.pid = process.pid
        yield server
        process.kill()


FILL = "for i = 1, %d do redis.call('set', 'key:' .. i, string.rep('x', i %% 700)) end"
EMPTY = "for i = 1, %d do if i %% 4 > 0 then redis.call('del', 'key:' .. i) end end"


def test_redis(run_tracer, redis):
    def reading():
        before = redis.counts()
        tree, heap = read(run_tracer, redis.pid)
        return not between(heap, before, redis.counts()) and tree

    redis.ask("eval", FILL % 200000, "0")
    wait_until(reading, "figures of redis at rest")
    command = ["redis-benchmark", "-s", redis.path, "-t", "set,lpush", "-n", "10000000", "-q"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT) as client:
        wait_until(reading, "figures of redis under load")
        assert client.poll() is None
        client.kill()
    redis.ask("eval", EMPTY % 200000, "0")
    tree = wait_until(reading, "figures of redis with free memory")

    def resident():
        with open("/proc/%d/statm" % redis.pid) as file:
            return int(file.read().split()[1]) * 4096

    said, before = node_of(tree)["trimmable"], resident()
    redis.ask("memory", "purge")
    fell = before - resident()
    print("a purge returns %d, RSS fell by %d" % (said, fell))
    assert abs(said - fell) <= 0.05 * max(said, fell) + (1 << 20)


def test_unknown(run_tracer, folder):
    """A library of that name with other structures: what it has stays together, and it is said."""
    source = folder / "other.c"
    source.write_text("char data[1 << 20]; int other(void) { return data[0]; }\n")
    path = str(folder / "libjemalloc.so.2")
    subprocess.run(["gcc", *NATIVE_FLAGS, "-shared", "-fPIC", "-o", path, str(source)], check=True)
    command = ["sleep", str(TIMEOUT)]
    with subprocess.Popen(command, env=dict(os.environ, LD_PRELOAD=path)) as process:
        wait_until(lambda: path in open("/proc/%d/maps" % process.pid).read(), "it is loaded")
        done = run_tracer("memory", "-p", process.pid, "--format", "json")
        process.kill()
    tree = json.loads(done.stdout)
    assert tree["allocators_refused"].startswith("jemalloc: its structures are not those"), tree
    assert any(c["name"] == "mapped by libjemalloc.so.2" for c in tree["children"]), tree
