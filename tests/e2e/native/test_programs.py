# SPDX-License-Identifier: Apache-2.0
"""Real programs under real load: live bytes compared with their own figures or their allocator's,
within 0.1 %."""
import collections
import contextlib
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
from truth import PLAIN, WITHIN, expect_close, expect_nothing_lost, library, tool


def sizes(run, tmp_path, *options):
    """{requested bytes: blocks} of the live blocks in a snapshot, block by block, as tracemalloc
    loads them."""
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
    """The sum of these sizes rounded up to jemalloc's size classes. jemalloc must be the allocator
    of the process that calls nallocx()."""
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
    """The sum of glibc's chunks for these sizes: 8 bytes more than requested, a multiple of 16, at
    least 32."""
    return sum(max(32, (size + 8 + 15) & ~15) * count for size, count in counts.items())


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
        """(what redis, what jemalloc reports as allocated). redis queries jemalloc every 100 ms."""

        def settled():
            one = self.info()
            time.sleep(0.25)
            two = self.info()
            both = [(int(i["used_memory"]), int(i["allocator_allocated"])) for i in (one, two)]
            return both[0] == both[1] and both[0]

        return wait_until(settled, "redis is at rest")


def test_redis(trace, tmp_path):
    """The live bytes of a whole load equal redis's own sum, and jemalloc's figure after rounding to
    size classes."""
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
        # A connection that is idle for two seconds frees its buffer, which it allocated before the
        # attach, and allocates another one later.
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
    """All layers: the native blocks equal what glibc reports as allocated, and the Python blocks
    equal the program's own account."""
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
    """What the C library reports as allocated in a process that does not report it itself; see
    programs/native/allocated.c. All processes share one folder."""

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
    """Waits until all workers are idle. When a client's close() or request returns, the worker has
    been woken."""

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
    """A master and its workers, with connections that stay and others that come and go. Each
    worker's own figure is compared."""
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
    for pid in workers:  # a worker may have received few of the connections
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
        """The first word of the answer."""
        self.process.stdin.write(query + ";\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def finish(self):
        self.process.communicate(timeout=TIMEOUT)


def test_postgres(trace, allocated, tmp_path):
    """A backend that plans and keeps two thousand statements, traced together with the other
    postgres processes, is compared with postgres's own memory contexts and with mallinfo2."""
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
