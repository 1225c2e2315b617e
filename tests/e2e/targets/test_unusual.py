# SPDX-License-Identifier: Apache-2.0
"""Processes that are unlike most: in what threads they have, in what system calls they may make, in
what they do with their code. Each is traced, or refused with the reason; none is harmed."""
import contextlib
import os
import re
import shutil
import signal
import subprocess

import pytest

from harness import Target, compiled, error_line, wait_until

pytestmark = pytest.mark.usefixtures("undisturbed")


def returns_by_call():
    """Does a return probe make a system call on this kernel?"""
    with open("/proc/kallsyms") as file:
        return any("sys_uretprobe" in line for line in file)


@pytest.fixture
def program_of(tmp_path):
    """Compiles a program of tests/e2e/programs/, with a name of the test's own."""
    return lambda name, *flags: compiled(tmp_path / ("t" + name[:-2]), name, *flags)


def test_first_thread_ended(start, trace, run_tracer, program_of):
    """Other threads run on. The kernel places no probe in such a process; probes that are in place
    stay."""
    path = program_of("headless.c")
    target = start(path, None, "begin")
    for command in (("--layer", "native", "-d", "1"), ("--dry-run",), ("memory",), ("heap",)):
        words = (
            [*command[:1], "-p", target.pid] if len(command) == 1 else ["-p", target.pid, *command]
        )
        line = error_line(run_tracer(*words), 1)
        assert "its first thread has ended while others run (2 threads)" in line, command
    done = run_tracer("--comm", "theadless", "--layer", "native", "-d", "1")
    assert done.returncode == 1 and "its first thread has ended" in done.stderr
    target.step()
    assert target.read_line() == "done" and target.finish() == 0

    target = start(path, None, "read", ready=False)
    target.read_until("begun")
    run = trace("-p", target.pid, "--layer", "native")
    target.step()
    target.read_until("ready")
    target.step()
    target.read_until("done")
    kept = run.finish("--group-by", "traceback").statistics
    assert (1000000, 1000) in [(entry["size"], entry["count"]) for entry in kept]
    assert target.finish() == 0


@pytest.fixture
def dispatched(start):
    """Starts a program whose system calls are sent to itself: a Target."""

    def make(*words):
        target = start(*words, ready=False)
        if target.read_line() != "ready":
            pytest.skip("no syscall user dispatch on this kernel or machine")
        return target

    return make


def test_system_calls_dispatched_later(dispatched, trace, tmp_path):
    """A return probe makes a system call on some kernels. A thread that has its system calls sent
    to itself would end the process for that. If it comes to that while it is traced, its returns
    are not probed from then on. It has a malloc of its own: traces of other tests may have return
    probes in the C library's, and with them the kernel would end it (docs/limits.md)."""
    program = compiled(tmp_path / "dispatched", "dispatched.c", "-static")
    target = dispatched(program, None, "later")
    run = trace("-p", target.pid, "--layer", "native")
    target.step()
    target.read_until("done")
    if returns_by_call():
        said = "PID %d has its system calls sent to itself" % target.pid
        wait_until(lambda: said in run.stderr, "it is said")
    seen = run.finish("--group-by", "traceback")
    assert target.finish() == 0
    missing = seen.data["not_seen"]["missing_returns"]
    blocks = [(entry["size"], entry["count"]) for entry in seen.statistics]
    assert missing >= 3000 if returns_by_call() else not missing
    assert ((200000, 1000) in blocks) != returns_by_call()
    assert (300000, 1000) in blocks


@pytest.mark.parametrize("backend", ("session", "multi"))
def test_system_calls_dispatched(dispatched, start, trace, run_tracer, program_of, backend):
    """Such a process is refused at the attach. Beside a second trace, of another process with the
    same C library, a return would be probed also where each program of ours says not to."""
    other = start(program_of("keeper.c"), None)
    trace("-p", other.pid, "--layer", "native")
    target = dispatched(program_of("dispatched.c"), None, "begin")
    done = run_tracer("-p", target.pid, "--layer", "native", "-d", "1", "--backend", backend)
    target.step()
    target.read_until("done")
    assert target.finish() == 0
    if returns_by_call():
        assert "it has its system calls sent to itself" in error_line(done, 1)
    else:
        assert done.returncode == 0


@pytest.mark.versions("3.11")
def test_dispatched_without_returns(dispatched, trace, python):
    """A mode without return probes is possible for it."""
    target = dispatched(python, "dispatched.py")
    run = trace("-p", target.pid, "--layer", "python", "-m", "growth")
    run.finish()
    assert target.finish() == 0


@pytest.fixture
def translated(program_of):
    """Starts a program under valgrind: a Target."""
    if not shutil.which("valgrind"):
        pytest.skip("no valgrind")
    started = []

    def make(name, *args):
        words = ("valgrind", "-q", "--tool=none")
        started.append(Target(program_of(name), None, *args, prefix=words))
        return started[-1]

    yield make
    for target in started:
        target.kill()


@pytest.mark.disturbing
def test_code_is_copied(run_tracer, translated):
    """Under valgrind the program that runs is a copy. With a breakpoint in it the program would be
    killed."""
    target = translated("keeper.c")
    for words in (("-d", "1"), ("--dry-run",)):
        line = error_line(run_tracer("-p", target.pid, "--layer", "native", *words), 1)
        assert "it runs under valgrind" in line
    name = open("/proc/%d/comm" % target.pid).read().strip()
    done = run_tracer("--comm", name, "--layer", "native", "-d", "1")
    assert done.returncode == 1 and "it runs under valgrind" in done.stderr
    target.step()
    assert target.read_line() == "done" and target.finish() == 0


@pytest.mark.disturbing
def test_command_that_copies_code(run_tracer, program_of, tmp_path):
    """The command is valgrind, which is traced until it calls the program that makes the copies."""
    if not shutil.which("valgrind"):
        pytest.skip("no valgrind")
    path = str(tmp_path / "snapshot.pb.gz")
    words = ("valgrind", "-q", "--tool=none", program_of("keeper.c"))
    done = run_tracer("--layer", "native", "-o", path, "--", *words)
    assert done.returncode == 0, done.stderr
    assert "is not traced: it runs under valgrind" in done.stderr


def test_breakpoint_in_a_copy(start, trace, program_of):
    """A copy that a program makes of its code while it is probed cannot be helped. It is said."""
    path = program_of("copier.c", "-ldl")
    target = start(path, None)
    run = trace("-p", target.pid, "--layer", "native")
    target.step()
    assert target.finish() == -signal.SIGTRAP and run.wait() == 0
    assert re.search(
        r"PID %d was killed by SIGTRAP\. .* a copy of its code" % target.pid, run.stderr
    )


@contextlib.contextmanager
def gdb_process(pid, folder):
    """A debugger that has attached once the FIFO that is returned with it can be opened for
    writing, and leaves when that is closed."""
    if not shutil.which("gdb"):
        pytest.skip("no gdb")
    gate = str(folder / "gate")
    os.mkfifo(gate)
    words = ("gdb", "-q", "-nx", "-batch", "-p", str(pid), "-ex", "shell cat " + gate)
    nothing = subprocess.DEVNULL
    with subprocess.Popen(words, stdin=nothing, stdout=nothing, stderr=nothing) as gdb:
        yield gdb, gate


def test_debugger_meanwhile(start, trace, program_of, tmp_path):
    """The same of one that attaches while the process is traced: it is said at once, so that its
    breakpoints can be removed before the trace ends."""
    target = start(program_of("keeper.c"), None)
    run = trace("-p", target.pid, "--layer", "native")
    with gdb_process(target.pid, tmp_path) as (gdb, gate):
        with open(gate, "w"):
            told = "PID %d: PID %d traces it by ptrace" % (target.pid, gdb.pid)
            wait_until(lambda: told in run.stderr, "it is said")
    run.finish()
    assert run.stderr.count("traces it by ptrace") == 1, run.stderr
    target.step()
    assert target.read_line() == "done" and target.finish() == 0


def test_debugger(start, run_tracer, program_of, tmp_path):
    """A debugger that attaches takes a probe's breakpoint for the program's own byte. It is said
    when the trace begins, and when it ends before the debugger has."""
    target = start(program_of("keeper.c"), None)
    with gdb_process(target.pid, tmp_path) as (gdb, gate):
        with open(gate, "w"):  # opened by gdb once it has attached
            done = run_tracer("-p", target.pid, "--layer", "native", "-d", "1")
    assert done.returncode == 0, done.stderr
    assert "PID %d: PID %d traces it by ptrace" % (target.pid, gdb.pid) in done.stderr
    assert "PID %d: PID %d still traces it by ptrace" % (target.pid, gdb.pid) in done.stderr
    target.step()
    assert target.read_line() == "done" and target.finish() == 0


def test_shared_memory(start, trace, program_of):
    """A process that shares the target's memory is not seen, which is said. A child of vfork is none
    of those, unless it allocates."""
    target = start(program_of("sharer.c"), None)
    run = trace("-p", target.pid, "--layer", "native", "--no-follow")
    target.step()
    target.read_until("done")
    seen = run.finish("--group-by", "traceback")
    assert target.finish() == 0
    assert seen.data["not_seen"]["memory_sharers"] == 1
    blocks = [(entry["size"], entry["count"]) for entry in seen.statistics]
    assert (500000, 1000) in blocks and (1000000, 1000) not in blocks
