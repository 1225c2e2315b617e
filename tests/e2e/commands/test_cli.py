# SPDX-License-Identifier: Apache-2.0
"""Help, list, doctor and dry runs."""
import json
import os
import re
import subprocess
import sys

import pytest

from cli_text import listed
from harness import program, wait_until
from procfs import private_code


# --- help -----------------------------------------------------------------------------------------


@pytest.mark.unprivileged
@pytest.mark.parametrize(
    "command", ("", "trace", "report", "replay", "list", "heap", "memory", "doctor")
)
@pytest.mark.parametrize("option", ("--help", "--usage"))
def test_help(run_tracer, command, option):
    done = run_tracer(*command.split(), option)
    assert done.returncode == 0 and done.stderr == ""
    assert "tracer" in done.stdout
    if command:
        assert "tracer " + command in done.stdout, "the name under which it is called"


@pytest.mark.unprivileged
def test_version(run_tracer):
    done = run_tracer("--version")
    assert done.returncode == 0 and done.stderr == ""
    first, libraries = done.stdout.splitlines()
    assert re.fullmatch(r"tracer \d+\.\d+\.\d+( \([0-9a-f]{7,}(-dirty)?\))?", first)
    for name in (
        "libbpf",
        "libdw)",
        "capstone",
        "protobuf-c",
        "jansson",
        "zlib",
        "lzma",
        "zstd",
        "ncurses",
        "libmicrohttpd",
        "libcurl",
    ):
        assert re.search(r"[ ,]%s \d+\.\d+" % re.escape(name), libraries), name


@pytest.mark.versions()
def test_list(start, run_tracer, python):
    target = start(python, "golden.py", 17)
    (line,) = listed(run_tracer, target.pid)
    assert re.search(r" %s(\.\d+)? " % re.escape(python.version), line)
    answer = json.loads(run_tracer("list", "--format", "json").stdout)
    (entry,) = [entry for entry in answer["processes"] if entry["pid"] == target.pid]
    assert entry["python"].startswith(python.version) and entry["command"].endswith(" 17")
    assert entry["parent"] == os.getpid() and entry["uid"] == os.getuid() and entry["age"] >= 0
    with open("/proc/%d/status" % target.pid) as status:
        assert entry["rss"] == 1024 * int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])
    assert line.endswith("%s %s 17" % (python.path, program("golden.py")))
    library = os.path.join(
        os.path.dirname(os.path.dirname(python.path)), "lib", "libpython%s.so.1.0" % python.version
    )
    assert (" full " if os.path.exists(library) else " measured when traced ") in line


def test_list_stripped(start, run_tracer, debian_python):
    """The coverage of an inlined allocator is known only after a trace."""
    target = start(debian_python, "golden.py")
    (line,) = listed(run_tracer, target.pid)
    assert " " + debian_python.version in line
    assert " full " not in line


def test_list_explains(run_tracer, start, any_python):
    with start(any_python, "golden.py"):
        assert "COVERAGE is " in run_tracer("list", "-v").stderr


def test_list_names_no_others(run_tracer):
    with subprocess.Popen(["sleep", "60"]) as other:
        assert listed(run_tracer, other.pid) == []
        assert len(listed(run_tracer, other.pid, "--all")) == 1
        other.kill()


def test_doctor(run_tracer):
    """Doctor lists the kernel's features and tests them: a child's blocks arrive through the ring
    buffer unchanged."""
    done = run_tracer("doctor")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.startswith("Kernel " + os.uname().release)
    words = (
        "BTF",
        "ring buffer",
        "uprobe_multi",
        "uprobe.session",
        "perf events",
        "CAP_BPF",
        "CAP_PERFMON",
        "CAP_SYS_PTRACE",
        "CAP_SYS_ADMIN",
    )
    for word in words:
        assert re.search(r"^  (yes|NO) +.*%s" % re.escape(word), done.stdout, re.M), word
    assert re.search(r"CPython versions known: 3\.8, .*3\.13", done.stdout)
    assert re.search(r"^  yes  programs load +took \d+\.\d+ s$", done.stdout, re.M)
    assert re.search(
        r"^  yes  a probe is placed +by (uprobe_multi (session )?links|perf-event uprobes), took \d+\.\d ms$",
        done.stdout,
        re.M,
    )
    assert re.search(
        r"^  yes  its events arrive +3 blocks, 6000 bytes, all of them$", done.stdout, re.M
    )
    assert re.search(r"^A session can run here(, with less: kernel .*)?\.$", done.stdout, re.M)


def test_doctor_says_what_it_did_not_look_at(tracer, tmp_path):
    """In a file with 70 MiB of code, only 64 MiB are searched for breakpoints."""
    large = str(tmp_path / "large")
    subprocess.run(["gcc", "-o", large, program("large_code.c")], check=True)
    with subprocess.Popen([large], stdin=subprocess.PIPE) as process:
        wait_until(lambda: os.readlink("/proc/%d/exe" % process.pid) == large, "it runs")
        told = subprocess.run([tracer, "doctor"], capture_output=True, text=True).stdout
        process.stdin.close()
    assert int(re.search(r"(\d+) MiB of their code +not compared", told)[1]) >= 6, told


def test_doctor_tells_how_far_it_came(tracer):
    """If the BPF programs cannot be loaded, doctor reports none of the later steps as working."""
    for limit in range(16, 32):
        command = ["prlimit", "--nofile=%d" % limit, tracer, "doctor"]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60
        )
        assert done.returncode == 1 and done.stderr == ""
        assert (
            re.findall(
                r"^  (yes|NO) +(?:programs load|a probe is placed|its events arrive)",
                done.stdout,
                re.M,
            )
            == ["NO"] * 3
        )
        last = done.stdout.splitlines()[-1]
        assert (
            last.startswith("A session cannot run here: ")
            and "Too many open files" in last
            and "ulimit -n" in last
        ), (limit, last)


def test_any_step_may_lack_descriptors(tracer):
    """With few descriptors a trace is right, or ends with one error line, which has the remedy."""
    results = []
    for limit in range(32, 112, 8):
        command = ["prlimit", "--nofile=%d" % limit, tracer, "-q", "--", sys.executable, "-c", ""]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        results.append(done.returncode)
        if done.returncode:
            (error,) = done.stderr.splitlines()
            assert "ulimit -n" in error, (limit, error)
    assert results[0] and not results[-1], results


# --- dry run --------------------------------------------------------------------------------------


@pytest.mark.versions()
def test_dry_run(start, run_tracer, python, undisturbed):
    """The plan has file, symbol, offset, instruction and reason. The target is not modified."""
    target = start(python, "golden.py")
    before = private_code(target.pid)
    assert before
    done = run_tracer("--dry-run", "-p", target.pid)
    # A breakpoint would create a private copy of a page of code.
    assert private_code(target.pid) == before
    assert done.returncode == 0 and done.stderr == ""
    head, mode, level, *sites = done.stdout.splitlines()
    assert re.match(
        r"PID %d: CPython %s(\.\d+)? in /" % (target.pid, re.escape(python.version)), head
    )
    assert mode == "census mode"
    assert "raw" in level and "mem" in level and "obj" in level
    for symbol in (
        "_PyObject_Realloc",
        "_PyMem_RawMalloc",
        "_PyMem_RawCalloc",
        "_PyMem_RawRealloc",
        "_PyMem_RawFree",
    ):
        line = [s for s in sites if s.split()[0].split("+")[0] == symbol][0]
        assert re.match(r"  \S+ +file offset 0x[0-9a-f]+ +[a-z].* {2,}\S.*", line), line


def test_dry_run_of_exact_mode(start, run_tracer, any_python):
    """Only exact mode probes the frees of pymalloc's blocks."""
    target = start(any_python, "golden.py")
    frees = {}
    for mode in "census", "exact":
        done = run_tracer("--dry-run", "-m", mode, "-p", target.pid)
        assert done.stdout.splitlines()[1] == mode + " mode"
        frees[mode] = [
            line for line in done.stdout.splitlines() if line.startswith("  _PyObject_Free")
        ]
    assert not frees["census"] and frees["exact"]


def test_repeated_option(start, run_tracer, any_python):
    """-p can be repeated, as one with several values."""
    pids = [start(any_python, "golden.py").pid for _ in range(3)]
    words = ("-p", pids[0], "-p", "%d,%d" % (pids[1], pids[2]), "-p", pids[0])
    for command in (("--dry-run",), ("heap",)):
        done = run_tracer(*command, *words)
        assert done.returncode == 0, done.stderr
        for pid in pids:
            assert "PID %d" % pid in done.stdout + done.stderr, (command, pid)


def test_dry_run_of_a_command(run_tracer, any_python, tmp_path):
    """The command is started only to read its maps."""
    mark = tmp_path / "ran"
    done = run_tracer("--dry-run", "--", any_python.path, "-c", "open(%r, 'w')" % str(mark))
    assert done.returncode == 0 and "_PyObject_Malloc" in done.stdout
    assert not mark.exists()


def test_dry_run_public(start, run_tracer, any_python):
    target = start(any_python, "golden.py")
    done = run_tracer("--dry-run", "--public", "-p", target.pid)
    symbols = [line.split()[0] for line in done.stdout.splitlines() if " file offset " in line]
    assert "PyObject_Malloc" in symbols and "_PyObject_Malloc" not in symbols
