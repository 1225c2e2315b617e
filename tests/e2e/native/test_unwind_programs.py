# SPDX-License-Identifier: Apache-2.0
"""Native stacks of real programs, built as distributions build them, without frame pointers: at
least 99 of 100 are whole, down to their outermost frame."""
import contextlib
import json
import os
import platform
import re
import signal
import socket
import subprocess

import pytest

from harness import TIMEOUT, compiled, program, read_report, wait_until
from truth import tool

NO_FRAME_POINTERS = ("-O2", "-g0", "-fomit-frame-pointer")
SQL = """
create table t(a integer primary key, b text);
with recursive c(x) as (select 1 union all select x + 1 from c where x < 2000)
    insert into t select x, hex(randomblob(20)) from c;
create index i on t(b);
select count(*) from t one join t two on one.b = two.b;
"""
PYTHON = """
import json, decimal, xml.dom.minidom, time
kept = [json.loads('[1, {"a": 3}]') for i in range(1000)] + [bytes(1000 + i) for i in range(100)]
time.sleep(1)  # its mappings are read: the files have names
"""
NODE = "let kept = []; for (let i = 0; i < 20000; i++) kept.push(Buffer.alloc(5000 + i % 50));"
NGINX = """
daemon off; master_process off; pid FOLDER/pid; error_log FOLDER/error.log; user root;
events { worker_connections 60; }
http {
    access_log off; keepalive_timeout 600;
    client_body_temp_path FOLDER/1; proxy_temp_path FOLDER/2; fastcgi_temp_path FOLDER/3;
    uwsgi_temp_path FOLDER/4; scgi_temp_path FOLDER/5;
    server { listen unix:FOLDER/socket; location / { root FOLDER; } }
}
"""


def expect_whole(report, stacks_min, late=None):
    """late: a folder of libraries that are mapped late. Their tables come some milliseconds later,
    and stacks that end there meanwhile do not count."""
    stacks = report.data["stacks"]
    print(stacks)  # shown by pytest -rP
    lost = {k: v for k, v in report.data["not_seen"].items() if v}
    assert report.lost_events == 0, lost
    assert sum(stacks["reasons"].values()) == stacks["cut"]
    assert stacks["whole"] >= stacks_min
    assert stacks["whole_bytes"] + stacks["cut_bytes"] > 0
    if not stacks["cut"]:
        assert stacks["cut_bytes"] == 0
    # Before 6.1 mappings cannot be read while the tracer places probes, longer on a busy machine.
    release = tuple(map(int, platform.release().split(".")[:2]))
    excused = stacks["reasons"].get("mappings locked", 0) if release < (6, 1) else 0
    assert excused <= 0.1 * stacks["whole"], stacks
    if late and "no table" in stacks["reasons"]:
        waited = sum(count for path, count in stacks["files"].items() if late in path)
        assert waited == stacks["reasons"]["no table"], stacks
        excused += waited
    assert stacks["whole"] >= 0.99 * (stacks["whole"] + stacks["cut"] - excused), stacks


@pytest.fixture
def of_command(tracer, tmp_path):
    """of_command(argument...): the report of a command that tracer starts."""

    def run(*command, options=()):
        path = str(tmp_path / "command.pb.gz")
        done = subprocess.run(
            [tracer, "--layer", "native", *options, "-o", path, "--", *map(str, command)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=4 * TIMEOUT,
        )
        assert done.returncode == 0, done.stderr
        return read_report(tracer, path, "--group-by", "traceback")

    return run


def test_sqlite(of_command):
    expect_whole(of_command(tool("sqlite3"), ":memory:", SQL), 3)


def test_python(of_command):
    """The interpreter of the distribution, which is stripped."""
    path = "/usr/bin/python3"
    if not os.path.exists(path):
        pytest.skip("this machine has no " + path)
    expect_whole(of_command(path, "-c", PYTHON, options=("-n", "128")), 20, late="/lib-dynload/")


def test_python_modules(tracer, tmp_path):
    """Those of the standard library have a table before they are mapped."""
    path = "/usr/bin/python3"
    if not os.path.exists(path):
        pytest.skip("this machine has no " + path)
    find = "import sysconfig; print(sysconfig.get_config_var('DESTSHARED'))"
    found = subprocess.run([path, "-c", find], stdout=subprocess.PIPE, text=True, check=True)
    count = sum(name.endswith(".so") for name in os.listdir(found.stdout.strip()))
    if count < 10:
        pytest.skip("the modules are in the interpreter")
    done = subprocess.run(
        [tracer, "-v", "--layer", "native", "-o", str(tmp_path / "s.pb.gz"), "--"]
        + [path, "-c", "import time; time.sleep(2)"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=4 * TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    assert int(re.search(r"unwind tables: (\d+) files", done.stderr)[1]) > count, done.stderr


def test_node(of_command):
    """Its own C++, and code that it compiles at run time, which keeps frame pointers."""
    expect_whole(of_command(tool("node"), "-e", NODE, options=("-n", "128", "-b", "256M")), 50)


@pytest.mark.parametrize("compiler", ("gcc", "clang"))
def test_exceptions(of_command, tmp_path, compiler):
    path = compiled(
        tmp_path / "program",
        "stack_exceptions.cc",
        *NO_FRAME_POINTERS,
        compiler=tool({"gcc": "g++", "clang": "clang++"}[compiler]),
    )
    expect_whole(of_command(path), 90)


def test_rust(of_command, tmp_path):
    path = str(tmp_path / "program")
    subprocess.run(
        [tool("rustc"), "-O", "-o", path, program("stack_tree.rs")],
        check=True,
        stderr=subprocess.PIPE,
    )
    expect_whole(of_command(path), 5)


@pytest.mark.parametrize("linking", ("-static", "-dynamic"))
@pytest.mark.parametrize("compiler", ("gcc", "musl-gcc"))
def test_libc(of_command, tmp_path, compiler, linking):
    """musl's assembly has no unwind information: its stacks end where the memory of a stack does."""
    flags = (*NO_FRAME_POINTERS, *(["-static"] if linking == "-static" else []))
    path = compiled(tmp_path / "program", "stack_depth.c", *flags, compiler=tool(compiler))
    expect_whole(of_command(path), 40)


def test_compiler(of_command, tmp_path):
    """The compiler proper is a child of the command."""
    source = tmp_path / "source.c"
    source.write_text('#include <stdio.h>\nint main(void) { return puts("text"); }\n')
    report = of_command(tool("gcc"), "-O2", "-c", source, "-o", tmp_path / "object.o")
    expect_whole(report, 50)


@contextlib.contextmanager
def service(*command, **options):
    process = subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **options,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(TIMEOUT)


def test_redis(trace, tmp_path):
    path = str(tmp_path / "redis.socket")
    options = ["--port", 0, "--unixsocket", path, "--save", "", "--dir", tmp_path]
    with service(tool("redis-server"), *options) as server:
        wait_until(lambda: os.path.exists(path), "redis listens")
        run = trace("-p", server.pid, "--layer", "native")
        load = ["-s", path, "-t", "set,lpush,hset,sadd", "-r", 1000, "-n", 4000, "-c", 4, "-q"]
        subprocess.run(
            [tool("redis-benchmark"), *map(str, load)], check=True, stdout=subprocess.DEVNULL
        )
        report = run.finish("--group-by", "traceback")
    expect_whole(report, 8)
    names = json.dumps(report.statistics)
    assert "main" in names or "libc_start" in names


def test_nginx(trace, tmp_path):
    (tmp_path / "hello.txt").write_text("hello")
    (tmp_path / "nginx.conf").write_text(NGINX.replace("FOLDER", str(tmp_path)))
    path = str(tmp_path / "socket")
    arguments = ["-e", tmp_path / "error.log", "-c", tmp_path / "nginx.conf"]
    with service(tool("nginx"), *arguments) as server:
        wait_until(lambda: os.path.exists(path), "nginx listens")
        run = trace("-p", server.pid, "--layer", "native")
        clients = []
        for _ in range(20):
            clients.append(socket.socket(socket.AF_UNIX))
            clients[-1].settimeout(TIMEOUT)
            clients[-1].connect(path)
            clients[-1].sendall(b"GET /hello.txt HTTP/1.1\r\nHost: a\r\n\r\n")
            assert clients[-1].recv(100)
        report = run.finish("--group-by", "traceback")
        for client in clients:
            client.close()
    expect_whole(report, 1)
