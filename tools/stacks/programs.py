# SPDX-License-Identifier: Apache-2.0
"""The programs whose stacks are compared, as distributions build them, and what they are given to
do. Each request of a program is one sample of perf, with a copy of the stack: a few thousand are
enough."""
import contextlib
import glob
import os
import re
import shutil
import socket
import subprocess
import time

import records

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.join(HERE, "..", "..", "tests", "e2e", "programs", "stacks")
HOLD = os.path.join(HERE, "hold.c")
TIMEOUT = 120
PLACES = os.environ["PATH"] + ":/usr/sbin:/sbin"
NO_FRAME_POINTERS = ["-O2", "-g0", "-fomit-frame-pointer", "-fno-builtin", "-pthread"]

SQL = """
create table t(a integer primary key, b text);
with recursive c(x) as (select 1 union all select x + 1 from c where x < 1000)
    insert into t select x, hex(randomblob(20)) from c;
create index i on t(b);
select count(*) from t one join t two on one.b = two.b;
"""
PYTHON = """
import json, decimal, re
kept = [json.loads('[1, {"a": 3}]') for i in range(300)] + [bytes(1000 + i) for i in range(300)]
kept += [re.compile('a{%d}[b-z]+' % i) for i in range(30)]
"""
NODE = "let kept = []; for (let i = 0; i < 1000; i++) kept.push(Buffer.alloc(5000 + i % 50));"
C = """
#include <stdio.h>
#include <stdlib.h>
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int main(void) { int a[9] = {3, 1}; qsort(a, 9, sizeof(*a), compare); return puts("text"); }
"""
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


class Missing(Exception):
    """This machine does not have the program."""


def tool(name, places=""):
    found = shutil.which(name, path=PLACES) or next(iter(sorted(glob.glob(places))), None)
    if not found:
        raise Missing(name)
    return found


def run(*command, **options):
    subprocess.run(
        [str(word) for word in command],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=TIMEOUT,
        **options
    )


def wait_until(condition, what):
    end = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.02)


class Program:
    """command: what is run, held before its main() by hold.c. preload: hold.c comes by LD_PRELOAD;
    otherwise it is linked in. use(): what is done with a server, which is then terminated. user:
    whose it is. copied: bytes of the stack that perf copies. only: perf's filter of requests. sites:
    where the program calls malloc(), if perf cannot unwind from inside it. interpreter: of a Python
    program."""

    def __init__(
        self,
        command,
        preload=True,
        use=None,
        user=None,
        copied=16384,
        only=None,
        sites=(),
        interpreter=None,
    ):
        self.command = [str(word) for word in command]
        self.preload, self.use, self.user = preload, use, user
        self.copied, self.only, self.sites = copied, only, sites
        self.interpreter = interpreter


def compiled(folder, source, compiler, *flags):
    path = os.path.join(folder, "program")
    run(tool(compiler), *NO_FRAME_POINTERS, *flags, "-o", path, os.path.join(PROGRAMS, source))
    return path


def call_sites(path):
    """ "path:offset bytes=…" of each call of malloc() in descend()."""
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", "-F", path], stdout=subprocess.PIPE, text=True
    ).stdout
    start, place = re.search(
        r"^([0-9a-f]+) <descend>.*File Offset: (0x[0-9a-f]+)", listing, re.M
    ).groups()
    body = listing[listing.index(start + " <descend>") :].split("\n\n")[0]
    calls = re.findall(r"^ *([0-9a-f]+):\s+call\s.*<malloc(?:@plt)?>", body, re.M)
    shift = int(place, 16) - int(start, 16)
    return ["%s:%#x bytes=%%di:x64" % (path, int(call, 16) + shift) for call in calls]


def sqlite(folder):
    return Program([tool("sqlite3"), ":memory:", SQL])


def evaluation_loop(path):
    """records.Interpreter of a file, by the function that every build exports."""

    def found(option, pattern):
        listing = subprocess.run(
            ["readelf", "-W", option, path], stdout=subprocess.PIPE, text=True, check=True
        ).stdout
        return re.search(pattern, listing).groups()

    address, size = found("--dyn-syms", r"([0-9a-f]+) +(\w+) FUNC .* _PyEval_EvalFrameDefault\n")
    offset, base = found("--segments", r"LOAD +0x([0-9a-f]+) 0x([0-9a-f]+) .* R E ")
    start = int(address, 16) - int(base, 16) + int(offset, 16)
    size = int(size, 0)  # in decimal, or with 0x
    return records.Interpreter(os.path.realpath(path), start, start + size)


def python(folder):
    path = "/usr/bin/python3"
    if not os.path.exists(path):
        raise Missing(path)
    return Program([path, "-c", PYTHON], copied=32768, interpreter=evaluation_loop(path))


def node(folder):
    return Program([tool("node"), "-e", NODE], copied=32768, only="bytes > 300")


def cc1(folder):
    source = os.path.join(folder, "source.c")
    with open(source, "w") as file:
        file.write(C)
    found = subprocess.run(
        [tool("gcc"), "-print-prog-name=cc1"], stdout=subprocess.PIPE, text=True, check=True
    )
    return Program([found.stdout.strip(), "-quiet", "-O2", source, "-o", os.devnull])


def exceptions(folder):
    return Program([compiled(folder, "stack_exceptions.cc", "g++")], copied=8192)


def rust(folder):
    path = os.path.join(folder, "program")
    run(tool("rustc"), "-O", "-o", path, os.path.join(PROGRAMS, "stack_tree.rs"))
    return Program([path], copied=65528)


def static(folder, compiler):
    path = compiled(folder, "stack_depth.c", compiler, HOLD, "-static", "-Wl,--eh-frame-hdr")
    return Program([path], preload=False, sites=call_sites(path))


def musl_dynamic(folder):
    """musl itself has no unwind information."""
    path = compiled(folder, "stack_depth.c", "musl-gcc", HOLD)
    return Program([path], preload=False, sites=call_sites(path))


def redis(folder):
    path = os.path.join(folder, "socket")

    def use():
        wait_until(lambda: os.path.exists(path), "redis listens")
        load = ["-t", "set,lpush,hset,sadd", "-r", 1000, "-n", 400, "-c", 4, "-q"]
        run(tool("redis-benchmark"), "-s", path, *load)

    options = ["--port", 0, "--unixsocket", path, "--save", "", "--dir", folder]
    return Program([tool("redis-server"), *options], use=use, copied=8192)


def nginx(folder):
    path, settings = os.path.join(folder, "socket"), os.path.join(folder, "nginx.conf")
    with open(os.path.join(folder, "hello.txt"), "w") as file:
        file.write("hello")
    with open(settings, "w") as file:
        file.write(NGINX.replace("FOLDER", folder))

    def use():
        wait_until(lambda: os.path.exists(path), "nginx listens")
        for _ in range(100):
            with contextlib.closing(socket.socket(socket.AF_UNIX)) as client:
                client.settimeout(TIMEOUT)
                client.connect(path)
                client.sendall(b"GET /hello.txt HTTP/1.1\r\nHost: a\r\n\r\n")
                client.recv(100)

    return Program([tool("nginx"), "-e", os.path.join(folder, "log"), "-c", settings], use=use)


def postgres(folder):
    """The server and a backend that it forks."""
    places = "/usr/lib/postgresql/*/bin/"
    server, initdb, psql = (tool(name, places + name) for name in ("postgres", "initdb", "psql"))
    data, user = os.path.join(folder, "data"), "postgres"
    os.mkdir(data)
    shutil.chown(data, user)
    as_user = {"user": user, "group": user, "extra_groups": []}
    run(initdb, "-N", "-A", "trust", "-D", data, **as_user)

    def use():
        wait_until(lambda: os.path.exists(data + "/.s.PGSQL.5432"), "postgres listens")
        time.sleep(2)  # it accepts after it has recovered
        query = "select relname, attname from pg_class, pg_attribute order by 1, 2 limit 30"
        # The backend sleeps until tracer has found it.
        queries = ("select pg_sleep(2)", query, query)
        words = [word for query in queries for word in ("-c", query)]
        run(psql, "-h", data, *words, "postgres", user, **as_user)

    options = {"listen_addresses": "", "fsync": "off", "shared_buffers": "16MB", "jit": "off"}
    words = [word for item in options.items() for word in ("-c", "%s=%s" % item)]
    return Program([server, "-D", data, "-k", data, *words], use=use, user=user)


ALL = {
    "redis": redis,
    "postgres": postgres,
    "nginx": nginx,
    "node": node,
    "python3 (stripped)": python,
    "cc1": cc1,
    "sqlite3": sqlite,
    "Rust": rust,
    "C++, exceptions": exceptions,
    "musl, static": lambda folder: static(folder, "musl-gcc"),
    "musl, dynamic": musl_dynamic,
    "glibc, static": lambda folder: static(folder, "gcc"),
}
