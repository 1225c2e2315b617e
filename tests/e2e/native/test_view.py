# SPDX-License-Identifier: Apache-2.0
"""Native blocks are charged to the program's own functions, not to what wraps malloc for them."""
import json
import os
import subprocess

import pytest

from harness import TIMEOUT, compiled, program, read_report, wait_until
from test_unwind_programs import service
from truth import tool

POSTGRES = "/usr/lib/postgresql/15/bin"


@pytest.fixture
def traced_command(tracer, tmp_path):
    """traced_command(argument...): the snapshot of a command that tracer starts."""

    def run(*command, options=(), **how):
        path = str(tmp_path / "command.pb.gz")
        done = subprocess.run(
            [tracer, "--layer", "native", "-n", "64", *options, "-o", path, "--"]
            + [str(word) for word in command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=4 * TIMEOUT,
            **how
        )
        assert done.returncode == 0, done.stderr
        return path

    return run


def tops(tracer, snapshot, *options):
    """{function: bytes}, by the most recent frame of each traceback."""
    sizes = {}
    report = read_report(tracer, snapshot, "--group-by", "traceback", *options)
    for entry in report.statistics:
        name = entry["traceback"][0].get("function", "?")
        sizes[name] = sizes.get(name, 0) + entry["size"]
    print(sizes)  # shown by pytest -rP
    return sizes


def exported(tracer, snapshot, tmp_path, kind, *options):
    out = tmp_path / ("out." + kind)
    subprocess.run([tracer, "export", snapshot, "--format", kind, "-o", out, *options], check=True)
    return out


def test_redis(tracer, trace, tmp_path):
    path = str(tmp_path / "redis.socket")
    options = ["--port", 0, "--unixsocket", path, "--save", "", "--dir", tmp_path]
    with service(tool("redis-server"), *options) as server:
        wait_until(lambda: os.path.exists(path), "redis listens")
        run = trace("-p", server.pid, "--layer", "native", "-n", 64)
        load = ["-s", path, "-t", "set,lpush", "-r", 1000, "-n", 3000, "-c", 2, "-q"]
        subprocess.run(
            [tool("redis-benchmark"), *map(str, load)], check=True, stdout=subprocess.DEVNULL
        )
        run.finish()
    whole = tops(tracer, run.snapshot, "--no-skip")
    wrapped = sum(size for name, size in whole.items() if name.startswith(("zm", "zc", "zr", "zt")))
    assert wrapped > 0.9 * sum(whole.values())
    shown = tops(tracer, run.snapshot)
    assert sum(shown.values()) == sum(whole.values())
    assert not [name for name in shown if name.startswith(("zmalloc", "zcalloc", "zrealloc"))]
    # The user's own wrapper is skipped, too.
    largest = max(shown, key=shown.get)
    assert largest not in tops(tracer, run.snapshot, "--alloc-wrapper", largest)


def test_cxx(tracer, traced_command, tmp_path):
    binary = compiled(tmp_path / "program", "view_orders.cc", "-O2", "-g0", compiler=tool("g++"))
    snapshot = traced_command(binary)
    shown = tops(tracer, snapshot)
    assert {"add_order", "fill"} <= set(shown)
    assert not [name for name in shown if name.startswith(("std::", "operator new"))]
    assert shown["fill"] == 1000 * 100 * 8
    whole = tops(tracer, snapshot, "--no-skip", "--full-names")
    assert sum(whole.values()) == sum(shown.values())
    assert any(name.startswith("std::vector<double") for name in whole)
    # Functions of the same name are one entry, whatever the format.
    folded = exported(tracer, snapshot, tmp_path, "folded").read_text()
    assert any(line.split(";")[-1].startswith("fill (") for line in folded.splitlines())
    assert "_M_fill_insert" not in folded
    speedscope = json.loads(exported(tracer, snapshot, tmp_path, "speedscope").read_text())
    assert "fill" in {frame["name"] for frame in speedscope["shared"]["frames"]}
    assert "_M_fill_insert" not in json.dumps(speedscope)
    html = exported(tracer, snapshot, tmp_path, "html").read_text()
    assert '"fill"' in html and "_M_fill_insert" not in html
    csv = subprocess.run(
        [tracer, "report", snapshot, "--format", "csv", "--top", "0"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    assert ",fill," in csv and "_M_fill_insert" not in csv
    # What tracer reads again is whole; filters judge what is shown.
    again = exported(tracer, snapshot, tmp_path, "pprof")
    assert tops(tracer, again, "--no-skip", "--full-names") == whole
    out = tmp_path / "filtered.pb.gz"
    subprocess.run([tracer, "filter", snapshot, "--exclude", "*/libstdc++*", "-o", out], check=True)
    assert tops(tracer, out)["add_order"] == shown["add_order"]
    assert set(tops(tracer, out, "--no-skip", "--full-names")) <= set(whole)


def test_rust(tracer, traced_command, tmp_path):
    path = str(tmp_path / "program")
    subprocess.run(
        [tool("rustc"), "-O", "-o", path, program("view_orders.rs")],
        check=True,
        stderr=subprocess.PIPE,
    )
    snapshot = traced_command(path)
    shown = tops(tracer, snapshot)
    own = sum(size for name, size in shown.items() if name.startswith(("view_orders::", "main")))
    assert own > 0.95 * sum(shown.values())
    assert "view_orders::add_order" in shown
    inside = [name for name in shown if name.startswith(("alloc::", "<alloc::", "hashbrown::"))]
    assert not inside


def read_until(stream, text):
    seen = b""
    while not seen.endswith(text):
        byte = os.read(stream.fileno(), 1)
        assert byte, seen
        seen += byte


def test_postgres(tracer, trace, tmp_path):
    """A backend that is run for itself; as a user other than root."""
    user = "postgres"
    for name in ("initdb", "postgres"):
        if not os.path.exists(os.path.join(POSTGRES, name)):
            pytest.skip("PostgreSQL 15 is not installed")
    data = str(tmp_path / "data")
    for path in (tmp_path, *tmp_path.parents[:3]):
        path.chmod(0o755)
    os.mkdir(data)
    subprocess.run(["chown", user, data], check=True)
    as_user = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups"]
    subprocess.run(
        [*as_user, POSTGRES + "/initdb", "-D", data, "-A", "trust", "--no-sync"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    backend = subprocess.Popen(
        [*as_user, POSTGRES + "/postgres", "--single", "-j", "-D", data, "postgres"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        read_until(backend.stdout, b"backend> ")
        run = trace("-p", backend.pid, "--layer", "native", "-n", 64)
        backend.stdin.write(b"prepare q as select * from pg_class, pg_proc, pg_type;\n\n")
        backend.stdin.flush()
        read_until(backend.stdout, b"backend> ")
        run.finish()
    finally:
        backend.kill()
        backend.wait(TIMEOUT)
    snapshot = run.snapshot
    whole = tops(tracer, snapshot, "--no-skip")
    assert any(name.startswith("AllocSet") for name in whole)
    shown = tops(tracer, snapshot)
    assert sum(shown.values()) == sum(whole.values())
    # AllocSetAlloc has no name in a stripped postgres: it is what MemoryContextAlloc calls.
    wrappers = ("AllocSet", "palloc", "MemoryContextAlloc", "pg_malloc")
    assert not [name for name in shown if name.startswith(wrappers)]
