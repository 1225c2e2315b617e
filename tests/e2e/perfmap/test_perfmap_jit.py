# SPDX-License-Identifier: Apache-2.0
"""tracer perfmap with JIT compilers: jitdumps, node, the GDB JIT interface and LLVM."""
import os
import shutil
import subprocess

import pytest

from harness import program, wait_until
from perfmaps import clean, compile_c, end, entries, map_of, names, perfmap, resolve  # noqa: F401


@pytest.mark.versions("3.13")
def test_jitdump(perfmap, start, python, tmp_path):
    """-X perf_jit writes no map."""
    target = start("/usr/bin/env", python.path, "-X", "perf_jit", program("calls.py"), "1.5")
    run = perfmap("-p", target.pid, "-o", tmp_path / "map", "--status")
    assert run.wait() == 0, run.stderr  # CPython writes the last records when it ends
    assert ", 1 of them jitdumps" in run.stdout
    assert {"leaf", "caller"} <= {name.split(":")[2] for name in names(tmp_path / "map")}


@pytest.mark.versions("3.13")
def test_ending_slowly(perfmap, python, tmp_path):
    """CPython frees its trampolines, and the process goes on for a while: whichever look at its
    mappings comes in between, the names are still those of the samples."""
    script = (
        "import ctypes, sys, time\nlibc = ctypes.CDLL(None)\nlibc.on_exit(libc.usleep, None)\n"
        "def once(): pass\nonce()\nprint(1, flush=True)\ntime.sleep(%s)\nsys.exit(350000)"
    )
    for pause in (1, 1.15, 1.3):
        process = subprocess.Popen(
            [python.path, "-X", "perf_jit", "-c", script % pause], stdout=subprocess.PIPE
        )
        assert process.stdout.readline() == b"1\n"
        run = perfmap("-p", process.pid, "--merge", "-o", tmp_path / "map")
        process.communicate()
        assert run.wait() == 0, run.stderr
        assert {"once", "<module>"} <= {name.split(":")[2] for name in names(tmp_path / "map")}
        assert len(names(tmp_path / "map")) > 100  # those from before the attach, too


def test_node_appends(perfmap, tmp_path):
    node = shutil.which("node")
    if not node:
        pytest.skip("no node on this machine")
    script = (
        "setInterval(() => 0, 100); process.stdin.on('data', (d) => { eval('(function ' + String(d).trim() + '(n) {"
        " let s = 0; for (let i = 0; i < n; i++) s += i % 7; return s })')(1e8); console.log('ok') }); console.log('ready')"
    )
    process = subprocess.Popen(
        [node, "--perf-basic-prof", "-e", script],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "ready\n"
        run = perfmap("-p", process.pid, "--merge", "--follow", "-o", tmp_path / "map")
        wait_until(
            lambda: any("Builtin:" in name for name in names(tmp_path / "map")),
            "what is there is written",
        )
        process.stdin.write("lateFunction\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ok\n"
        wait_until(
            lambda: any("lateFunction" in name for name in names(tmp_path / "map")),
            "what node appends is seen",
        )
        end(run)
        theirs, ours = resolve(map_of(process.pid)), entries(tmp_path / "map")
        for address, name in theirs.items():
            found = [n for a, (size, n) in ours.items() if a <= address < a + size]
            assert found == [name] or not found, hex(address)  # unmapped entries are removed
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def jit(start, tmp_path):
    """programs/perfmap/jit.c, and an object file with two functions as its image."""
    (tmp_path / "image.c").write_text(
        "int first(int a) { return a + 1; }\nint second(int a) { return first(a) * 2; }\n"
    )
    image = compile_c(str(tmp_path / "image.c"), str(tmp_path / "image.o"), "-c")
    path = compile_c(program("jit.c"), str(tmp_path / "jit"))
    target = start(path, image)
    assert target.read_line() == "ok"
    return target


def test_gdb_jit_interface(jit, perfmap, tmp_path):
    run = perfmap("-p", jit.pid, "--follow", "-o", tmp_path / "map")
    jit.step()
    assert jit.read_line() == "ok"
    wait_until(
        lambda: names(tmp_path / "map") == {"first", "second"}, "the image's functions are entries"
    )
    assert all(address >= 0x700000000000 for address in entries(tmp_path / "map"))
    jit.step()
    assert jit.read_line() == "ok"
    wait_until(lambda: not names(tmp_path / "map"), "what was unregistered is gone")
    end(run)


def test_gdb_jit_interface_registered_before(jit, perfmap, tmp_path):
    jit.step()
    assert jit.read_line() == "ok"
    end(perfmap("-p", jit.pid, "-o", tmp_path / "map"))
    assert names(tmp_path / "map") == {"first", "second"}


def test_llvm(perfmap, tmp_path):
    """LLVM's own JIT uses the same interface: the map has the functions at the addresses that LLVM
    reports."""
    lli = shutil.which("lli")
    if not lli:
        pytest.skip("no lli on this machine")
    process = subprocess.Popen(
        [lli, "--jit-kind=mcjit", program("jitted.ll")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        said = [int(word, 16) for word in process.stdout.readline().split()]
        end(perfmap("-p", process.pid, "-o", tmp_path / "map"))
        found = entries(tmp_path / "map")
        assert [found[address][1] for address in said] == ["jitted_inner", "jitted_outer"]
        assert all(0 < size < 200 for size, _ in found.values())
    finally:
        process.stdin.close()
        assert process.wait() == 0


def test_own_function_and_expiry(jit, perfmap, tmp_path):
    run = perfmap(
        "-p",
        jit.pid,
        "--follow",
        "-o",
        tmp_path / "map",
        "--perf-map-symbol",
        "jit:note_code:name=1,size=2,addr=3",
    )
    for _ in range(3):
        jit.step()
        assert jit.read_line() == "ok"
    wait_until(lambda: "fleeting" in names(tmp_path / "map"), "the function's entries are seen")
    assert entries(tmp_path / "map")[0x600000000000] == (
        0x100000010,
        "noted",
    )  # a size_t, all 64 bits
    jit.step()
    wait_until(lambda: "fleeting" not in names(tmp_path / "map"), "what was unmapped is gone")
    end(run)
    assert names(tmp_path / "map") == {"noted"}
