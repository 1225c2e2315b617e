# SPDX-License-Identifier: Apache-2.0
"""The static tracer: what is in it, and what it does where there is nothing but Busybox, and in
root file systems of other Debians. $SUITES names suites of which fresh ones are made."""
import contextlib
import fcntl
import glob
import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest

import bare
import fresh
import harness
from conftest import ROOT

SIZE_MAX = 15 << 20
LEAK = "demo_leak.py:20"
OLDER = ("bullseye",)  # a glibc that is older than all on which the package is built
DEMO = """/usr/bin/python3 /mnt/demo_leak.py &
sleep 1
/mnt/tracer %s -p $!
status=$?
kill $!
exit $status"""


@pytest.fixture(scope="module")
def shared(static, tmp_path_factory):
    """The folder that all systems have at /mnt."""
    folder = tmp_path_factory.mktemp("shared")
    shutil.copy(static, folder / "tracer")
    shutil.copy(os.path.join(ROOT, "tools", "demo_leak.py"), folder)
    return folder


@pytest.fixture(scope="module")
def inside(shared, tmp_path_factory):
    """inside(word…): the tracer's result in a root with nothing but Busybox."""
    if not shutil.which("busybox"):
        pytest.skip("no busybox on this machine")
    root = tmp_path_factory.mktemp("bare")
    bare.make(root)

    def run(*words, **options):
        return bare.run(root, ["/mnt/tracer", *words], shared, **options)

    run.root = root
    return run


def check_leak(done):
    """The line that leaks is the first of the report."""
    assert done.returncode == 0, done.stderr
    first = re.search(r"^All \d+ lines by size\n(.*)$", done.stdout, re.M)
    assert first and LEAK in first[1], done.stdout + done.stderr


# --- the file ----------------------------------------------------------------------------------


def readelf(*words):
    return subprocess.check_output(["readelf", "-W", *words], text=True)


def test_needs_no_library(static):
    assert "INTERP" not in readelf("-l", static)
    assert "NEEDED" not in readelf("-d", static)


def test_size(static):
    assert ".symtab" not in readelf("-S", static)
    assert os.path.getsize(static) <= SIZE_MAX


def test_no_tls(static, tmp_path):
    """The agent refuses a certificate."""
    config, log = tmp_path / "agent.conf", tmp_path / "log"
    config.write_text(
        "[trace]\nenabled = no\n[evidence]\nenabled = no\n"
        "[http]\nlisten = 127.0.0.1:9\ncertificate = /a\nkey = /b\n"
    )
    with open(log, "w") as out:
        agent = subprocess.Popen([static, "agent", "--config", config], stderr=out)
    try:
        said = "tracer: http: this build has no TLS: put a proxy in front\n"
        harness.wait_until(lambda: said in log.read_text(), "the certificate is refused")
    finally:
        agent.kill()
        agent.wait()


# --- nothing but Busybox -----------------------------------------------------------------------


def test_version(inside):
    done = inside("--version")
    assert done.returncode == 0 and re.match(r"tracer \d+\.\d+\.\d+\b", done.stdout), done.stderr


def test_doctor(inside):
    done = inside("doctor")
    assert done.returncode == 0 and "A session can run here" in done.stdout, done.stdout


def test_leak(inside, leaking):
    check_leak(inside("-m", "census", "-p", leaking.pid, "-d", "2"))


def test_heap(inside, leaking):
    done = inside("heap", "-p", leaking.pid, "--top", "0")
    assert done.returncode == 0 and re.search(r"^ +list: own size=", done.stdout, re.M), done.stderr


def test_heap_why(inside, leaking):
    done = inside("heap", "why", "list", "-p", leaking.pid)
    assert done.returncode == 0 and "sys.modules['__main__'].history" in done.stdout, done.stderr


def test_perfmap(inside):
    """Written to the target's /tmp, which is not that of the system."""
    found = harness.pythons.unstripped()
    versions = [version for version in found if int(version.split(".")[1]) >= 12]
    if not versions:
        pytest.skip("no CPython 3.12 or later, which names its functions")
    command = ("-X", "perf", harness.program("golden.py"))
    with harness.Target("/usr/bin/env", None, found[versions[0]], *command) as target:
        path = "/tmp/perf-%d.map" % target.pid
        done = inside("perfmap", "-p", target.pid, "--install", "--merge", "-d", "1")
        assert done.returncode == 0, done.stderr
        with open(path) as file:
            assert "py::<module>" in file.read()
        os.unlink(path)


def test_native(inside, shared):
    """Functions and lines of a C program come from its DWARF."""
    path = harness.compiled(shared / "steady_native", "steady_native.c")
    with harness.Target(path, None) as target:
        target.step()
        done = inside("--layer", "native", "-m", "exact", "-p", target.pid, "-d", "1")
    assert done.returncode == 0, done.stderr
    assert "steady_native.c:%d:" % harness.marked_line("steady_native.c", "A") in done.stdout


def test_debuginfod(inside, leaking):
    """It loads no library, and says what it needs instead."""
    done = inside(
        "--layer", "native", "--debuginfod=http://127.0.0.1:1", "-p", leaking.pid, "-d", "1"
    )
    assert "debuginfod-find is not installed" in done.stderr


def on_terminal(command, key):
    """What a command writes to a terminal on which a key is pressed once its view is there."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvp(command[0], command)
    output, end = b"", time.monotonic() + bare.TIMEOUT
    while time.monotonic() < end:
        if select.select([fd], [], [], 1)[0]:
            try:
                output += os.read(fd, 65536)
            except OSError:  # its end is closed
                break
        if key and LEAK.encode() in output:
            os.write(fd, key)
            key = None
    os.close(fd)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), output.decode(errors="replace")


@pytest.mark.parametrize("terminal, known", (("xterm-256color", True), ("unheard-of", False)))
def test_live_view(inside, shared, leaking, terminal, known):
    """There is no terminfo database."""
    words = ["/bin/busybox", "env", "TERM=" + terminal, "/mnt/tracer", "-m", "census"]
    words += ["-p", leaking.pid, *(() if known else ("-d", "1"))]
    status, output = on_terminal(bare.entered(inside.root, words, shared), b"q" if known else b"")
    assert status == 0, output
    assert ("q quit" in output) == known
    assert ("no live view" in output and terminal in output) != known
    assert re.search(r"Total: ", output)


# --- nothing can be written -------------------------------------------------------------------


def test_read_only(inside, leaking):
    """A trace works. One line says that other tracers cannot reach it, and what would help."""
    done = inside("-m", "census", "-p", leaking.pid, "-d", "2", scratch="ro")
    check_leak(done)
    (line,) = [line for line in done.stderr.splitlines() if "Read-only" in line]
    assert "cannot create /run/tracer: Read-only file system; a tmpfs in which" in line


def test_read_only_leaks(inside, leaking):
    done = inside("leaks", "-p", leaking.pid, "-d", "4", scratch="ro")
    assert done.returncode == 0 and re.search(r"^  \S+\.history$", done.stdout, re.M), done.stderr


@pytest.mark.parametrize("option", ("-o", "--record", "--capture"))
def test_read_only_file(inside, leaking, option):
    """Before anything is traced."""
    done = inside("-p", leaking.pid, option, "/tmp/file", scratch="ro")
    check_read_only(done, "/tmp/file")


def test_read_only_dump(inside, leaking):
    check_read_only(inside("heap", "-p", leaking.pid, "-o", "dump", scratch="ro"), "dump")


def check_read_only(done, path):
    line = harness.error_line(done, 1)
    assert line.startswith("tracer: %s: " % path) and line.count(path) == 1
    assert line.endswith("Read-only file system; give a path where files can be written\n")


# --- other Debians -----------------------------------------------------------------------------


def suites():
    """{name: how its root is made}: those of `make roots`, or those of $SUITES."""
    if "SUITES" in os.environ:
        return {suite: fresh_root for suite in os.environ["SUITES"].split()}
    return {os.path.basename(path): ready_root for path in glob.glob(ROOT + "/build/roots/*")}


@contextlib.contextmanager
def ready_root(suite, _):
    """Its python3 is the newest that it has: `python3.N`."""
    yield os.path.join(ROOT, "build", "roots", suite)


@contextlib.contextmanager
def fresh_root(suite, log):
    system = fresh.System(suite, os.path.join(ROOT, "build", "distros", suite))
    with open(system.path("lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        system.make_base(log)
        system.unpack(system.root)
        install = "apt-get update -q && apt-get install -y -q --no-install-recommends python3"
        system.run(system.root, install, log)
        try:
            yield system.root
        finally:
            fresh.remove(system.root)


def check_package_refused(root, shared):
    """It is linked to this machine's glibc. apt says so before anything is installed."""
    (package,) = glob.glob(os.path.join(ROOT, "build", "deb", "tracer_*.deb"))
    shutil.copy(package, shared / "tracer.deb")
    done = bare.run(root, ["apt-get", "--simulate", "install", "/mnt/tracer.deb"], shared)
    assert done.returncode == 100 and re.search(r"Depends: libc6 \(>= 2\.\d+\)", done.stdout)


@pytest.mark.parametrize("suite", sorted(suites()) or [None])
def test_debian(suite, shared, tmp_path):
    """The system's own Python, traced in it."""
    if not suite:
        pytest.skip("no root file systems: make roots")
    with suites()[suite](suite, tmp_path / "log") as root:
        python = sorted(glob.glob(root + "/usr/bin/python3.*[0-9]"))[-1]
        script = DEMO.replace("/usr/bin/python3", python[len(root) :])
        check_leak(bare.run(root, ["sh", "-c", script % "-m census -d 2"], shared))
        doctor = bare.run(root, ["/mnt/tracer", "doctor"], shared)
        if suite in OLDER:
            check_package_refused(root, shared)
    assert "A session can run here" in doctor.stdout, doctor.stdout + doctor.stderr
