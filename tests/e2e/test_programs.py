# SPDX-License-Identifier: Apache-2.0
"""Real programs at real work, each held against the truth that it or its allocator tells of itself:
within 0.1 %."""
import collections
import contextlib
import glob
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tracemalloc

import pytest

from harness import TIMEOUT, environment, program, wait_until

WITHIN = 0.001
# What lies in a thread's cache is live to them; and what they map for a single block is whole
# pages.
PLAIN = {
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0:glibc.malloc.mmap_max=0",
    "MALLOC_CONF": "tcache:false",
}
FLAGS = ["-g", "-O1", "-fno-omit-frame-pointer", "-fno-builtin"]


def tool(name, *places):
    """Its path: on PATH, or where one of the patterns says."""
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
    found = [
        p
        for p in [
            shutil.which(name, path=path),
            *(p for pattern in places for p in sorted(glob.glob(pattern))),
        ]
        if p
    ]
    return found[0] if found else pytest.skip("this machine has no " + name)


def library(name):
    found = sorted(glob.glob("/usr/lib/*/" + name))
    return found[0] if found else pytest.skip("this machine has no " + name)


def expect_close(ours, truth, what):
    assert truth > 0, what
    share = abs(ours - truth) / truth
    print(
        "%s: ours %d, truth %d, %.4f %% apart" % (what, ours, truth, 100 * share)
    )  # pytest -rP shows it
    assert share <= WITHIN, "%s: ours %d, truth %d" % (what, ours, truth)


def sizes(run, tmp_path, *options):
    """{bytes asked for: blocks} of what is live in a snapshot, block by block, as tracemalloc loads
    them."""
    path = str(tmp_path / "blocks.tracemalloc")
    command = [
        run.tracer,
        "export",
        "--format",
        "tracemalloc",
        *map(str, options),
        "-o",
        path,
        run.snapshot,
    ]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    return collections.Counter(trace.size for trace in tracemalloc.Snapshot.load(path).traces)


def rounded_by_jemalloc(counts):
    """Bytes of jemalloc's size classes for them. It has to be the allocator of the process that
    asks it."""
    ask = (
        "import ctypes, json, sys; f = ctypes.CDLL(None).nallocx; f.restype = ctypes.c_size_t; f.argtypes = [ctypes.c_size_t, ctypes.c_int];"
        "print(sum(f(size, 0) * count for size, count in json.load(sys.stdin)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", ask],
        input=json.dumps(list(counts.items())),
        env=environment(LD_PRELOAD=library("libjemalloc.so.2")),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return int(done.stdout)


def chunks(counts):
    """Bytes of glibc's chunks for them: 8 more than were asked for, a multiple of 16, at least
    32."""
    return sum(max(32, (size + 8 + 15) & ~15) * count for size, count in counts.items())


def expect_nothing_lost(report):
    not_seen = report.data["not_seen"]
    assert (
        report.lost_events == 0 and not_seen["replaced"] == 0 and not_seen["missing_returns"] == 0
    ), not_seen


@pytest.fixture
def built(tmp_path):
    """built(compiler, name, *options): a program of tests/e2e/programs, compiled."""

    def make(compiler, name, *options):
        path = str(tmp_path / name.split(".")[0])
        done = subprocess.run(
            [tool(compiler), "-o", path, program(name), *options], stderr=subprocess.PIPE, text=True
        )
        assert done.returncode == 0, done.stderr
        return path

    return make


@contextlib.contextmanager
def service(*command, **options):
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


WHICH = {"libc": 1, "jemalloc": 2, "tcmalloc": 3, "mimalloc": 4, "musl": 0}


@pytest.mark.parametrize(
    "family, how, name, threads",
    [
        ("libc", "linked", None, 4),
        ("libc", "static", None, 4),
        ("musl", "static", None, 4),
        ("jemalloc", "preloaded", "libjemalloc.so.2", 4),
        ("jemalloc", "linked", "libjemalloc.so.2", 4),
        ("jemalloc", "static", "libjemalloc.a", 4),
        ("tcmalloc", "preloaded", "libtcmalloc_minimal.so.4", 4),
        ("tcmalloc", "linked", "libtcmalloc.so.4", 4),
        ("tcmalloc", "static", "libtcmalloc_minimal.a", 4),
        ("mimalloc", "preloaded", "libmimalloc.so.2*", 1),
        ("mimalloc", "linked", "libmimalloc.so.2*", 1),
    ],
)
def test_allocator(start, trace, built, family, how, name, threads):
    """Ours is the program's own books to the byte, and what its blocks take is what the allocator
    says it has handed out."""
    flags = [*FLAGS, "-pthread"]
    env = environment(**PLAIN)
    if how == "static":
        # Static archives of the allocators go into a program with a dynamic C library; what they
        # need comes last.
        flags += [library(name), "-lstdc++", "-lm", "-ldl"] if name else ["-static"]
    elif how == "linked" and name:
        flags += ["-Wl,--no-as-needed", library(name)]
    elif name:
        env["LD_PRELOAD"] = library(name)
    target = start(
        built("musl-gcc" if family == "musl" else "gcc", "allocator.c", *flags),
        None,
        threads,
        40000,
        env=env,
    )
    before = target.expect()
    run = trace("-p", target.pid)
    for _ in range(2):
        target.step()
        after = target.expect()
    report = run.finish()
    expect_nothing_lost(report)
    lines = [pair for (file, _), pair in report.lines().items() if file == program("allocator.c")]
    assert tuple(map(sum, zip(*lines))) == after["own"]
    says, which = after["allocator"]
    assert which == WHICH[family]
    if family != "musl":  # which says nothing of itself
        takes, blocks = after["usable"]
        if family == "libc":
            takes += 8 * blocks  # a chunk's header
        expect_close(takes, says - before["allocator"][0], "%s, %s" % (family, how))
    assert target.finish() == 0


class Redis:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(TIMEOUT)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")

    def info(self):
        self.socket.sendall(b"INFO memory\r\n")
        text = self.file.read(int(self.file.readline()[1:])).decode()
        self.file.readline()
        return dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)

    def settled(self):
        """(what redis, what jemalloc says is allocated); redis asks jemalloc every 100 ms."""

        def settled():
            one = self.info()
            time.sleep(0.25)
            two = self.info()
            both = [(int(i["used_memory"]), int(i["allocator_allocated"])) for i in (one, two)]
            return both[0] == both[1] and both[0]

        return wait_until(settled, "redis is at rest")


def test_redis(trace, tmp_path):
    """Of a whole load: redis's own sum, and what jemalloc says of it, in size classes."""
    path = str(tmp_path / "redis.socket")
    options = [
        "--port",
        "0",
        "--unixsocket",
        path,
        "--save",
        "",
        "--dir",
        str(tmp_path),
        "--activerehashing",
        "no",
    ]
    client = tool("redis-benchmark")
    with open(str(tmp_path / "redis.log"), "wb") as log, service(
        tool("redis-server"), *options, stdout=log, stderr=log, env=environment(**PLAIN)
    ) as server:
        wait_until(lambda: os.path.exists(path), "redis listens")
        redis = Redis(path)
        before = redis.settled()
        run = trace("-p", server.pid)
        work = [
            "-s",
            path,
            "-t",
            "set,lpush,hset,sadd",
            "-r",
            "100000",
            "-n",
            "40000",
            "-P",
            "16",
            "-c",
            "4",
            "-q",
        ]
        # A connection that is idle for two seconds gives up its buffer, of before the attach, and
        # takes another one later.
        with subprocess.Popen([client, *work], stdout=subprocess.DEVNULL) as benchmark:
            wait_until(lambda: redis.info() and benchmark.poll() is not None, "the load is over")
        assert benchmark.returncode == 0
        after = redis.settled()
        report = run.finish()
        redis.socket.close()
    expect_nothing_lost(report)
    takes = rounded_by_jemalloc(sizes(run, tmp_path))
    expect_close(takes, after[0] - before[0], "redis's used_memory")
    expect_close(takes, after[1] - before[1], "redis's allocator_allocated")


def heaptrack_sum(data, cost, tmp_path):
    path = str(tmp_path / cost)
    subprocess.run(
        ["heaptrack_print", "-f", data, "-F", path, "--flamegraph-cost-type", cost],
        stdout=subprocess.DEVNULL,
        check=True,
    )
    with open(path) as file:
        return sum(int(line.rsplit(" ", 1)[1]) for line in file)


def allocations(capture):
    """Requests that gave a block, in a capture: (type, size) begin every record, 1 is an
    allocation, 4 a realloc's."""
    with open(str(capture), "rb") as file:
        data = file.read()
    place, count = 16, 0
    while place < len(data):
        kind, size = (int.from_bytes(data[place + i : place + i + 4], "little") for i in (0, 4))
        count += kind in (1, 4)
        place += size
    return count


def test_heaptrack(trace, built, tmp_path):
    """A C++ program, the same in every run: what it has leaked, and how often it asked."""
    tool("heaptrack_print")
    path = built("g++", "containers.cc", "-std=c++17", *FLAGS)
    done = subprocess.run(
        [tool("heaptrack"), "-o", tmp_path / "heaptrack", path],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
    )
    (data,) = glob.glob(str(tmp_path / "heaptrack.*"))
    own, _ = json.loads([line for line in done.stdout.split("\n") if line.startswith("{")][0])[
        "own"
    ]
    leaked, asked = heaptrack_sum(data, "leaked", tmp_path), heaptrack_sum(
        data, "allocations", tmp_path
    )
    assert leaked == own
    run = trace("--layer", "native", "--capture", tmp_path / "capture", "--", path)
    assert run.wait() == 0
    report = run.report()
    assert report.data["from_start"] and report.data["moment"] == "exited"
    expect_nothing_lost(report)
    # Heaptrack leaves out what it knows to be kept on purpose, here the C++ library's reserve for
    # exceptions.
    of_library = sum(size for (file, _), (size, _) in report.lines().items() if "libstdc++" in file)
    assert report.total["size"] - of_library == leaked
    assert allocations(tmp_path / "capture") == asked


def test_cxx(start, trace, built, run_tracer):
    """Containers of a program that runs on: their allocator's books, to the byte; and the session
    says of what it speaks."""
    target = start(built("g++", "containers.cc", "-std=c++17", *FLAGS), None, "wait")
    run = trace("-p", target.pid)
    for _ in range(2):
        target.step()
        own = target.expect()["own"]
    status = run_tracer("ctl", target.pid, "status", "--session", run.pid).stdout
    assert status.startswith(
        "PID %d (containers), native blocks: is traced, exact mode, " % target.pid
    ), status
    assert "CPython" not in status and "coverage" not in status
    report = run.finish()
    expect_nothing_lost(report)
    counted = [
        pair for (file, _), pair in report.lines().items() if file == program("containers.cc")
    ]
    assert tuple(map(sum, zip(*counted))) == own
    assert target.finish() == 0
    functions = {
        s["traceback"][0]["function"] for s in run.report("--group-by", "function").statistics
    }
    assert "counting<char>::allocate(unsigned long)" in functions, functions


def test_rust(start, trace, built):
    target = start(built("rustc", "counted.rs", "-O", "-g"), None)
    before = target.expect()["own"]
    run = trace("-p", target.pid)
    for _ in range(3):
        target.step()
        after = target.expect()["own"]
    report = run.finish()
    expect_nothing_lost(report)
    expect_close(report.total["size"], after[0] - before[0], "Rust's bytes")
    expect_close(report.total["count"], after[1] - before[1], "Rust's blocks")
    assert target.finish() == 0


def test_node(start, trace, tmp_path):
    target = start(tool("node"), "buffers.js")
    before, _ = target.expect()["own"]
    run = trace("-p", target.pid)
    target.step()
    after, kept = target.expect()["own"]
    report = run.finish()
    expect_nothing_lost(report)
    blocks = {size: count for size, count in sizes(run, tmp_path).items() if size == 50021}
    assert blocks == {50021: kept}
    expect_close(50021 * kept, after - before, "node's buffers")


def test_python(start, trace, tmp_path):
    """All layers: the native blocks are what glibc says it has handed out, Python's the program's
    own account."""
    target = start(sys.executable, "mallinfo.py", env=environment(**PLAIN))
    before = target.expect()
    run = trace("-p", target.pid, "--layer", "all")
    for _ in range(3):
        target.step()
        after = target.expect()
    report = run.finish()
    expect_nothing_lost(report)
    assert report.line("mallinfo.py", "BUFFER")[0] >= after["buffers"][0]
    expect_close(
        chunks(sizes(run, tmp_path, "--layer", "native")),
        after["malloc"][0] - before["malloc"][0],
        "python3's mallinfo2",
    )
    assert target.finish() == 0


@pytest.fixture
def allocated():
    """What the C library of a process without a word of its own has handed out; see
    programs/allocated.c. A folder for all."""

    class Allocated:
        folder = tempfile.mkdtemp(prefix="tracer-programs-")
        env = environment(LD_PRELOAD=folder + "/allocated.so", ALLOCATED=folder + "/said", **PLAIN)

        def of(self, pid):
            path = "%s/said/%d" % (self.folder, pid)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            os.kill(pid, signal.SIGRTMAX)
            wait_until(lambda: os.path.exists(path), "PID %d has said what is allocated" % pid)
            with open(path) as file:
                return int(file.read())

    it = Allocated()
    os.chmod(it.folder, 0o755)
    os.mkdir(it.folder + "/said")
    os.chmod(it.folder + "/said", 0o777)
    subprocess.run(
        [
            tool("gcc"),
            "-O1",
            "-shared",
            "-fPIC",
            "-o",
            it.folder + "/allocated.so",
            program("allocated.c"),
        ],
        check=True,
    )
    yield it
    shutil.rmtree(it.folder)


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
        return list(map(int, file.read().split()))


NGINX = """
daemon off; worker_processes 2; pid FOLDER/pid; error_log FOLDER/error.log; user root;
events { worker_connections 600; }
http {
	access_log off; keepalive_timeout 600; keepalive_requests 100000; connection_pool_size 2k; client_header_buffer_size 4k;
	client_body_temp_path FOLDER/1; proxy_temp_path FOLDER/2; fastcgi_temp_path FOLDER/3; uwsgi_temp_path FOLDER/4; scgi_temp_path FOLDER/5;
	server { listen unix:FOLDER/socket; location / { root FOLDER/files; } }
}
"""


EPOLL_WAIT = "232"


def rest(pids):
    """Waits until all have done what they were asked: a client's close() or request has woken a
    worker when it returns."""

    def waits(pid):
        with open("/proc/%d/syscall" % pid) as file:
            return file.read().split()[0] == EPOLL_WAIT

    wait_until(lambda: all(map(waits, pids)), "nginx's workers wait for work")


def http_get(path):
    client = http.client.HTTPConnection("localhost", timeout=TIMEOUT)
    client.sock = socket.socket(socket.AF_UNIX)
    client.sock.settimeout(TIMEOUT)
    client.sock.connect(path)
    client.request("GET", "/hello.txt")
    assert client.getresponse().read() == b"hello"
    return client


def test_nginx(trace, allocated, tmp_path):
    """A master and its workers, with connections that stay and others that come and go: each
    worker's own figure."""
    server = tool("nginx")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "hello.txt").write_text("hello")
    (tmp_path / "nginx.conf").write_text(NGINX.replace("FOLDER", str(tmp_path)))
    path = str(tmp_path / "socket")
    with service(
        server, "-e", tmp_path / "error.log", "-c", tmp_path / "nginx.conf", env=allocated.env
    ) as master:
        workers = wait_until(
            lambda: len(children(master.pid)) == 2
            and os.path.exists(path)
            and children(master.pid),
            "nginx has workers",
        )
        http_get(path).close()
        rest(workers)
        before = {pid: allocated.of(pid) for pid in workers}
        run = trace("-p", ",".join(map(str, [master.pid, *workers])), attached=3)
        kept = []
        for i in range(1200):
            client = http_get(path)
            if i % 3 == 0:
                kept.append(client)
            else:
                client.close()
        for client in kept:
            client.close()
        kept = [http_get(path) for _ in range(300)]
        rest(workers)
        after = {pid: allocated.of(pid) for pid in workers}
        report = run.finish()
    expect_nothing_lost(report)
    assert {p["pid"] for p in report.data["processes"]} == {master.pid, *workers}
    ours = {pid: chunks(sizes(run, tmp_path, "--pid", pid)) for pid in workers}
    grown = {pid: after[pid] - before[pid] for pid in workers}
    expect_close(sum(ours.values()), sum(grown.values()), "mallinfo2 of nginx's workers")
    for pid in workers:  # one may have got few of the connections
        assert abs(ours[pid] - grown[pid]) <= WITHIN * sum(grown.values())


class Psql:
    def __init__(self, command, folder, user):
        self.process = subprocess.Popen(
            [command, "-h", folder, "-X", "-A", "-t", "-q", "postgres", user],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=environment(),
            user=user,
        )

    def ask(self, query):
        """The first word of its answer."""
        self.process.stdin.write(query + ";\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def finish(self):
        self.process.communicate(timeout=TIMEOUT)


def test_postgres(trace, allocated, tmp_path):
    """A backend that plans and keeps two thousand statements: postgres's own memory contexts, and
    mallinfo2; beside its kin."""
    places = "/usr/lib/postgresql/*/bin/"
    server, initdb, psql, pgbench = (
        tool(name, places + name) for name in ("postgres", "initdb", "psql", "pgbench")
    )
    user = "postgres"
    folder = allocated.folder + "/data"
    os.mkdir(folder)
    shutil.chown(folder, user)
    run_as = {
        "user": user,
        "group": user,
        "extra_groups": [],
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    subprocess.run(
        [initdb, "-N", "-A", "trust", "-D", folder], check=True, env=environment(), **run_as
    )
    options = [
        "-D",
        folder,
        "-k",
        folder,
        "-c",
        "listen_addresses=",
        "-c",
        "fsync=off",
        "-c",
        "shared_buffers=16MB",
        "-c",
        "jit=off",
        "-c",
        "autovacuum=off",
    ]
    with service(server, *options, env=allocated.env, **run_as) as master:
        wait_until(lambda: os.path.exists(folder + "/.s.PGSQL.5432"), "postgres listens")
        wait_until(
            lambda: subprocess.run(
                [psql, "-h", folder, "-c", "select 1", "postgres", user], **run_as
            ).returncode
            == 0,
            "postgres answers",
        )
        client = Psql(psql, folder, user)
        contexts = "select sum(total_bytes) from pg_backend_memory_contexts"
        backend = int(client.ask("select pg_backend_pid()"))
        for _ in range(2):
            client.ask(contexts)
        before = int(client.ask(contexts)), allocated.of(backend)
        pids = [master.pid, *children(master.pid)]
        run = trace("--layer", "native", "-p", ",".join(map(str, pids)), attached=len(pids))
        for i in range(2000):
            statement = (
                "select relname, %d from pg_class where oid = $1 and relkind = 'r' order by 1" % i
            )
            client.process.stdin.write("prepare s%d as %s;\n" % (i, statement))
            client.process.stdin.write("execute s%d(1);\n" % i)
        subprocess.run(
            [pgbench, "-h", folder, "-i", "-s", "1", "-q", "postgres"], check=True, **run_as
        )
        after = int(client.ask(contexts)), allocated.of(backend)
        report = run.finish()
        client.finish()
    expect_nothing_lost(report)
    counts = sizes(run, tmp_path, "--pid", backend)
    expect_close(
        sum(size * count for size, count in counts.items()),
        after[0] - before[0],
        "postgres's memory contexts",
    )
    expect_close(chunks(counts), after[1] - before[1], "a postgres backend's mallinfo2")
    assert len(report.data["processes"]) > len(pids), "pgbench had a backend of its own"
