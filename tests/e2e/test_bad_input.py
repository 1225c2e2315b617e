# SPDX-License-Identifier: Apache-2.0
"""What is wrong on the command line, with the target, with files: one line that says what, where, why and the remedy;
the right status; the target unharmed; a file that was there stays as it was."""
import gzip
import os
import resource
import shutil
import stat
import subprocess
import tempfile
import threading

import pytest

from harness import environment, error_line, libpython, program

# --- wrong usage ---------------------------------------------------------------------------------------------------

USAGE = (
    ("-n 0", "1 to 128"),
    ("-n 129", "1 to 128"),
    ("-n x", "1 to 128"),
    ("-n 1.5", "1 to 128"),
    ("-n -1", "1 to 128"),
    ("-d x", "--duration"),
    ("-d 0", "--duration"),
    ("-d -1", "--duration"),
    ("-d nan", "--duration"),
    ("-d inf", "--duration"),
    ("-i 0", "--interval"),
    ("-b 3K", "power of two"),
    ("-b 1", "power of two"),
    ("-b 4T", "power of two"),
    ("-b 99999999999999999999", "power of two"),
    ("-m census", "exact"),
    ("-m growth", "exact"),
    ("-m other", "exact"),
    ("--backend other", "perf"),
    ("--format yaml", "--format"),
    ("--group-by colour", "--group-by"),
    ("--top x", "--top"),
    ("-p x", "tracer list"),
    ("-p 0", "tracer list"),
    ("-p -1", "tracer list"),
    ("-p 1x", "tracer list"),
    ("-p 99999999999999999999", "tracer list"),
    ("-p ,", "tracer list"),
    ("-c name", "not in this version"),
    ("-a", "not in this version"),
    ("--no-such-option", "--help"),
    ("-Z", "--help"),
    ("-p", "--help"),
    ("-n 3", "-p PID"),
    ("trace", "-p PID"),
    ("trace -n", "--help"),
    ("--", "-p PID"),
    ("-p 1 -- true", "-p PID"),
    ("-o x -p 1,2", "--output"),
    ("frobnicate", "--help"),
    ("report", "tracer report FILE"),
    ("report --no-such-option", "--help"),
    ("report --top", "--help"),
    ("replay", "tracer replay CAPTURE"),
    ("replay a b", "tracer replay CAPTURE"),
    ("replay --no-such-option", "--help"),
    ("list x", "list"),
    ("list --no-such-option", "--help"),
    ("doctor x", "doctor"),
)


@pytest.mark.unprivileged
@pytest.mark.parametrize("arguments, remedy", USAGE, ids=lambda v: v if v.startswith("-") else None)
def test_usage(run_tracer, tmp_path, arguments, remedy):
    done = run_tracer(*arguments.split(), cwd=str(tmp_path))
    assert remedy in error_line(done, 2)
    assert done.stdout == ""
    assert os.listdir(str(tmp_path)) == []


@pytest.mark.unprivileged
def test_usage_with_hostile_words(run_tracer):
    """Control characters of the command line, too, never reach the terminal."""
    for arguments in (("\x1b[31m",), ("--\x1b[31m",), ("-p", "\x1b]0;x\x07"), ("report", "\x1b[2J\n"), ("--top", "1\n2", "-p", "1")):
        done = run_tracer(*arguments)
        error_line(done, done.returncode)
        assert done.returncode in (1, 2)


@pytest.mark.unprivileged
def test_nothing_at_all(run_tracer):
    done = run_tracer()
    assert done.returncode == 2
    assert done.stdout == "" and "--help" in done.stderr


# --- processes that cannot be traced -------------------------------------------------------------------------------


def free_pid():
    with open("/proc/sys/kernel/pid_max") as file:
        pid = int(file.read()) - 1
    while os.path.exists("/proc/%d" % pid):
        pid -= 1
    return pid


def kernel_thread():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % pid) as file:
                if int(file.read().rpartition(")")[2].split()[6]) & 0x00200000:
                    return int(pid)
        except OSError:
            pass
    pytest.skip("no kernel thread is to be seen here (a PID namespace)")


@pytest.fixture(params=("trace", "dry run"))
def attempt(request, run_tracer):
    """Tries to trace a process, or to plan it."""

    def run(pid, *options):
        return run_tracer(*(["--dry-run"] if request.param == "dry run" else []), *options, "-p", pid)

    return run


def test_no_such_pid(attempt):
    pid = free_pid()
    line = error_line(attempt(pid), 1)
    assert str(pid) in line and "tracer list" in line


def test_no_pid_that_large(attempt):
    assert "tracer list" in error_line(attempt(4194305), 2)


def test_kernel_thread(attempt):
    pid = kernel_thread()
    line = error_line(attempt(pid), 1)
    assert "PID %d" % pid in line and "kernel thread" in line


def test_zombie(attempt, any_python):
    process = subprocess.Popen([any_python.path, "-c", "pass"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    line = error_line(attempt(process.pid), 1)
    process.wait()
    assert str(process.pid) in line


def test_thread_id(attempt, any_python):
    code = "import os, threading; threading.Thread(target=os.read, args=(0, 1)).start(); os.write(1, b'ready\\n')"
    with subprocess.Popen([any_python.path, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as target:
        assert target.stdout.readline() == b"ready\n"
        thread = next(t for t in map(int, os.listdir("/proc/%d/task" % target.pid)) if t != target.pid)
        line = error_line(attempt(thread), 1)
        assert "thread" in line and str(target.pid) in line, "which process it belongs to"
        target.stdin.close()
        assert target.wait(60) == 0


def test_no_python(attempt):
    with subprocess.Popen(["sleep", "60"]) as target:
        line = error_line(attempt(target.pid), 1)
        assert "no Python" in line and "tracer list" in line
        assert target.poll() is None
        target.kill()


def test_exit_between_look_up_and_attach(run_tracer, any_python):
    """Processes that end at any point of the attach: traced or one line, never worse."""
    seen = set()
    for i in range(24):
        target = subprocess.Popen([any_python.path, "-S", "-c", "import time; time.sleep(%f)" % (i % 8 * 0.006)])
        timer = threading.Timer(2, target.kill)
        timer.start()
        waiter = threading.Thread(target=target.wait)  # reaps it at once: the number is gone
        waiter.start()
        done = run_tracer("-q", "--format", "json", "-p", target.pid)
        waiter.join()
        timer.cancel()
        seen.add(done.returncode)
        assert done.returncode in (0, 1)
        if done.returncode:
            error_line(done, 1)
        assert target.returncode == 0, "the target was harmed"
    assert seen


def test_some_of_several(start, trace, any_python):
    """One that cannot be traced does not keep the others from it."""
    target = start(any_python, "golden.py")
    missing = free_pid()
    run = trace("-p", "%d,%d" % (missing, target.pid), "--format", "json", "--top", "0", output=False)
    target.step()
    live = target.expect()
    run.interrupt()
    run.wait()
    assert str(missing) in run.stderr
    assert run.printed_reports()[0].marked("golden.py", live) == live


def test_same_pid_twice(start, trace, any_python):
    target = start(any_python, "golden.py")
    run = trace("-p", "%d,%d" % (target.pid, target.pid), "--format", "json", "--top", "0", output=False)
    target.step()
    live = target.expect()
    run.interrupt()
    assert run.wait() == 0
    (report,) = run.printed_reports()
    assert report.marked("golden.py", live) == live


# --- privileges ----------------------------------------------------------------------------------------------------


@pytest.fixture
def open_tracer(tracer):
    """A copy of the tracer where every user may run it."""
    folder = tempfile.mkdtemp(prefix="tracer-", dir="/tmp")
    os.chmod(folder, 0o755)
    yield shutil.copy(tracer, folder)
    shutil.rmtree(folder)


def run_as(options, *command):
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv (util-linux)")
    return subprocess.run(
        ["setpriv", *options, *map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, timeout=60, cwd="/", env=environment()
    )


NOBODY = ("--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all")


def test_not_root(start, open_tracer, any_python):
    target = start(any_python, "golden.py")
    line = error_line(run_as(NOBODY, open_tracer, "-p", target.pid), 1)
    assert "CAP_" in line and "sudo" in line


def test_not_root_with_a_command(open_tracer):
    line = error_line(run_as(NOBODY, open_tracer, "--", "/usr/bin/python3", "-c", "print('it ran')"), 1)
    assert "CAP_" in line and "sudo" in line


@pytest.mark.parametrize("name", ("bpf", "perfmon", "sys_ptrace", "sys_admin"))
def test_capability_missing(start, tracer, any_python, name):
    target = start(any_python, "golden.py")
    line = error_line(run_as(("--bounding-set=-" + name, "--inh-caps=-all"), tracer, "-p", target.pid), 1)
    assert "CAP_" + name.upper() in line


def test_list_and_doctor_without_root(open_tracer):
    listed = run_as(NOBODY, open_tracer, "list")
    assert listed.returncode == 0 and listed.stdout.startswith("    PID")
    doctor = run_as(NOBODY, open_tracer, "doctor")
    assert "CAP_BPF" in doctor.stdout
    assert doctor.returncode == 1, "a session cannot run"


# --- runtimes that cannot be read ----------------------------------------------------------------------------------


def compiled(folder, source, name, *options):
    """A C program: the smallest that has a certain feature."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    path = os.path.join(str(folder), name)
    with open(path + ".c", "w") as file:
        file.write(source)
    subprocess.run(["gcc", "-O1", "-o", path, path + ".c", *options], check=True, timeout=60)
    return path


MAPPER = """
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	int fd = open(argv[1], O_RDONLY);
	struct stat st;
	fstat(fd, &st);
	if (mmap(0, st.st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
		return 1;
	puts("ready");
	fflush(stdout);
	getchar();
	return 42;
}
"""

RUNTIME_ONLY = """
#include <stdio.h>
char _PyRuntime[100000];
const unsigned int Py_Version = %s;
int main(void)
{
	puts("ready");
	fflush(stdout);
	getchar();
	return 42;
}
"""


class Waiting:
    """A process that says "ready", and ends with 42 if it was not harmed."""

    def __init__(self, *command, env=None):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        self.pid = self.process.pid
        assert self.process.stdout.readline() == b"ready\n"

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        status = self.process.wait(60)
        assert kind or status == 42, "the target was harmed: %d" % status


PYTHON_WAITING = "import os; os.write(1, b'ready\\n'); os.read(0, 1); os._exit(42)"


def symbol_offset(path, name):
    """Offset in the file of a symbol of a library whose first segments map one to one."""
    table = subprocess.run(["readelf", "-sW", path], stdout=subprocess.PIPE, check=True, timeout=60).stdout.decode()
    address = next(int(line.split()[1], 16) for line in table.splitlines() if line.split()[-1:] == [name])
    segments = subprocess.run(["readelf", "-lW", path], stdout=subprocess.PIPE, check=True, timeout=60).stdout.decode()
    for line in segments.splitlines():
        word = line.split()
        if word[:1] == ["LOAD"] and int(word[2], 16) <= address < int(word[2], 16) + int(word[4], 16):
            return address - int(word[2], 16) + int(word[1], 16)
    raise KeyError(name)


@pytest.mark.versions("3.11", "3.13")
def test_unknown_version(attempt, python, tmp_path):
    path = libpython(python)
    copy = shutil.copy(path, str(tmp_path))
    with open(copy, "r+b") as file:
        file.seek(symbol_offset(path, "Py_Version"))
        assert file.read(4)[3] == 3
        file.seek(-4, os.SEEK_CUR)
        file.write((0x036300F0).to_bytes(4, "little"))
    with Waiting(python.path, "-c", PYTHON_WAITING, env=environment(LD_LIBRARY_PATH=str(tmp_path))) as target:
        line = error_line(attempt(target.pid), 1)
        assert "3.99" in line
        assert "3.8" in line and "3.13" in line, "the versions known"


def test_unknown_version_of_a_command(run_tracer, tmp_path):
    path = compiled(tmp_path, RUNTIME_ONLY % "0x036300f0", "python3.99", "-rdynamic")
    assert "3.99" in error_line(run_tracer("--", path), 1)


def test_no_usable_symbol(attempt, tmp_path):
    path = compiled(tmp_path, RUNTIME_ONLY % "0x030b07f0", "python3.11", "-rdynamic", "-s")
    with Waiting(path) as target:
        line = error_line(attempt(target.pid), 1)
        assert path in line and "symbol" in line


def test_stripped_of_every_symbol(attempt, tmp_path):
    """Not even _PyRuntime: it cannot be told from any other program."""
    path = compiled(tmp_path, RUNTIME_ONLY % "0x030b07f0", "python3.11", "-s")
    with Waiting(path) as target:
        assert "no Python" in error_line(attempt(target.pid), 1)


def patch(data, at, new):
    return data[:at] + new + data[at + len(new) :]


def corruptions(elf):
    """{name: bytes}: what may stand in a file that calls itself libpython."""
    section_headers = int.from_bytes(elf[40:48], "little")
    yield "one byte", elf[:1]
    yield "magic only", elf[:4]
    yield "header only", elf[:64]
    yield "no segments' table", elf[:100]
    yield "first page", elf[:4096]
    yield "half", elf[: len(elf) // 2]
    yield "no ELF", b"#!/bin/sh\n" + b"\0" * 5000
    yield "zeros", bytes(8192)
    yield "noise behind the header", elf[:64] + os.urandom(20000)
    yield "32 bits", patch(elf, 4, b"\x01")
    yield "big endian", patch(elf, 5, b"\x02")
    yield "another machine", patch(elf, 18, b"\xb7\x00")
    yield "segments far away", patch(elf, 32, b"\xff" * 7 + b"\x7f")
    yield "sections far away", patch(elf, 40, b"\xff" * 7 + b"\x7f")
    yield "sections at the end of numbers", patch(elf, 40, b"\xff" * 8)
    yield "many segments", patch(elf, 56, b"\xff\xfe")
    yield "many sections", patch(elf, 60, b"\xff\xfe")
    yield "names of sections elsewhere", patch(elf, 62, b"\xfe\xfe")
    yield "noise for section headers", elf[:section_headers] + os.urandom(len(elf) - section_headers)
    yield "ones for section headers", elf[:section_headers] + b"\xff" * (len(elf) - section_headers)


CORRUPTIONS = [name for name, _ in corruptions(b"\x7fELF" + bytes(10000))]


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_corrupt_elf(run_tracer, any_python, tmp_path, name):
    """A mapped file with the name of a libpython: refused, in a bounded time, and said in one line."""
    mapper = compiled(tmp_path, MAPPER, "mapper")
    with open(libpython(any_python), "rb") as file:
        data = dict(corruptions(file.read()))[name]
    path = tmp_path / ("libpython%s.so.1.0" % any_python.version)
    path.write_bytes(data)
    with Waiting(mapper, str(path)) as target:
        for options in (("--dry-run",), ("-d", "1")):
            done = run_tracer(*options, "-p", target.pid)
            error_line(done, 1)


@pytest.mark.parametrize("damage", ("no section headers", "noise for section headers", "tail cut off"))
def test_damaged_file_of_a_running_python(run_tracer, any_python, tmp_path, damage):
    """The loader needs no section headers: a Python runs from such a file. Traced or refused, but in an orderly way."""
    copy = shutil.copy(libpython(any_python), str(tmp_path))
    with open(copy, "r+b") as file:
        section_headers = int.from_bytes(file.read(48)[40:], "little")
        if damage == "no section headers":
            file.seek(40)
            file.write(bytes(8))
            file.seek(58)
            file.write(bytes(6))
        elif damage == "noise for section headers":
            file.seek(section_headers)
            file.write(os.urandom(3000))
    with Waiting(any_python.path, "-c", PYTHON_WAITING, env=environment(LD_LIBRARY_PATH=str(tmp_path))) as target:
        if damage == "tail cut off":
            os.truncate(copy, section_headers - 100000)  # debug information, which nobody has mapped
        done = run_tracer("-d", "0.3", "-p", target.pid)
        assert done.returncode in (0, 1)
        if done.returncode:
            error_line(done, 1)


# --- captures and snapshots ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(tracer, interpreters, tmp_path_factory):
    """(capture, snapshot) of a short run, as bytes."""
    if not interpreters:
        pytest.skip("no unstripped CPython on this machine")
    folder = tmp_path_factory.mktemp("recorded")
    capture, snapshot = folder / "run.cap", folder / "run.pb.gz"
    path = list(interpreters.values())[-1]
    subprocess.run(
        [tracer, "--capture", str(capture), "-o", str(snapshot), "--", path, "-S", program("short.py")],
        check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, env=environment()
    )
    return capture.read_bytes(), snapshot.read_bytes()


def flipped(data, count=40):
    """The same with one bit turned, at places all over it."""
    for i in range(count):
        at = i * (len(data) - 1) // (count - 1)
        yield data[:at] + bytes([data[at] ^ 1 << i % 8]) + data[at + 1 :]


def cut(data):
    for size in (0, 1, 7, 8, 12, 15, 16, 17, 30, 40, 63, 64, 100, len(data) // 3, len(data) // 2, len(data) - 1):
        yield size, data[:size]


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def foreign_profile():
    """A valid pprof of another tool: cpu/nanoseconds, one sample of one location."""
    strings = b"".join(field(6, s) for s in (b"", b"cpu", b"nanoseconds", b"main", b"main.c"))
    sample_type = field(1, b"\x08\x01\x10\x02")
    sample = field(2, b"\x0a\x01\x01\x12\x01\x05")
    location = field(4, b"\x08\x01\x22\x04\x08\x01\x10\x07")
    function = field(5, b"\x08\x01\x10\x03\x20\x04")
    return sample_type + sample + location + function + strings


def limited():
    resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))


def refused(run_tracer, folder, command, name, data):
    path = folder / name
    path.write_bytes(data)
    done = run_tracer(command, path)
    assert str(path) in error_line(done, 1)
    return done


@pytest.mark.parametrize("command", ("report", "replay"))
def test_no_such_file(run_tracer, tmp_path, command):
    assert str(tmp_path / "none") in error_line(run_tracer(command, tmp_path / "none"), 1)
    assert str(tmp_path) in error_line(run_tracer(command, tmp_path), 1)


def test_cut_capture(run_tracer, recorded, tmp_path):
    """Whatever is whole before the cut is reported, but not called whole."""
    for size, data in cut(recorded[0]):
        if size == 16:
            continue  # the header and no record: no process to report
        done = refused(run_tracer, tmp_path, "replay", "cut%d.cap" % size, data)
        if size > len(recorded[0]) // 4:
            assert "Total:" in done.stdout


def test_empty_capture(run_tracer, recorded, tmp_path):
    (tmp_path / "empty.cap").write_bytes(recorded[0][:16])
    error_line(run_tracer("replay", tmp_path / "empty.cap"), 1)


def test_flipped_capture(run_tracer, recorded, tmp_path):
    """It carries no sum: what cannot be is refused or counted as malformed."""
    for i, data in enumerate(flipped(recorded[0])):
        path = tmp_path / ("flip%d.cap" % i)
        path.write_bytes(data)
        done = run_tracer("replay", path)
        assert done.returncode in (0, 1)
        if done.returncode:
            error_line(done, 1)
        else:
            assert done.stderr == ""


def test_noise_for_a_capture(run_tracer, recorded, tmp_path):
    header = recorded[0][:16]
    for i, data in enumerate((os.urandom(1000), header + os.urandom(4000), header + bytes(4000), header + b"\xff" * 4000,
                              b"TRACERCP" + b"\x02" + bytes(7), recorded[1])):
        refused(run_tracer, tmp_path, "replay", "noise%d.cap" % i, data)


def test_cut_snapshot(run_tracer, recorded, tmp_path):
    for size, data in cut(recorded[1]):
        assert refused(run_tracer, tmp_path, "report", "cut%d.pb.gz" % size, data).stdout == ""


def test_flipped_snapshot(run_tracer, recorded, tmp_path):
    """gzip has a sum. What it does not cover (the header's time, name, system) may differ."""
    for i, data in enumerate(flipped(recorded[1])):
        path = tmp_path / ("flip%d.pb.gz" % i)
        path.write_bytes(data)
        done = run_tracer("report", path)
        if i:
            error_line(done, 1)
        else:
            assert done.returncode in (0, 1)


def test_flipped_profile(run_tracer, recorded, tmp_path):
    """The same inside, under a sum that is right."""
    for i, data in enumerate(flipped(gzip.decompress(recorded[1]))):
        path = tmp_path / ("flip%d.pb.gz" % i)
        path.write_bytes(gzip.compress(data, 1))
        done = run_tracer("report", path)
        assert done.returncode in (0, 1)
        if done.returncode:
            error_line(done, 1)


def test_other_contents(run_tracer, recorded, tmp_path):
    unpacked = gzip.decompress(recorded[1])
    for name, data in (
        ("text", b"a text\n" * 100),
        ("noise", os.urandom(5000)),
        ("packed-text", gzip.compress(b"a text\n" * 100)),
        ("packed-nothing", gzip.compress(b"")),
        ("packed-noise", gzip.compress(os.urandom(5000))),
        ("cut-inside", gzip.compress(unpacked[: len(unpacked) // 2])),
        ("another-tools", gzip.compress(foreign_profile())),
        ("another-tools-unpacked", foreign_profile()),
        ("capture", recorded[0]),
    ):
        assert refused(run_tracer, tmp_path, "report", name, data).stdout == ""


def test_gzip_bomb(tracer, tmp_path):
    """A few hundred kilobytes that unpack to more than there is room for: refused, and not by the kernel."""
    bomb = tmp_path / "bomb.pb.gz"
    part = gzip.compress(bytes(64 << 20), 9)
    bomb.write_bytes(part * 32)  # 2 GiB
    done = subprocess.run([tracer, "report", str(bomb)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=60, preexec_fn=limited)
    assert str(bomb) in error_line(done, 1)


def test_broken_stdout(tracer, recorded, tmp_path):
    """A report that cannot be printed is a failure."""
    (tmp_path / "good.pb.gz").write_bytes(recorded[1])
    with open("/dev/full", "w") as full:
        done = subprocess.run([tracer, "report", str(tmp_path / "good.pb.gz"), "--top", "0"], stdout=full,
                              stderr=subprocess.PIPE, text=True, timeout=60)
    error_line(done, 1)


# --- output files --------------------------------------------------------------------------------------------------

OLD = b"what was there before"


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB that is nearly full, with an old output file on it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], stderr=subprocess.PIPE)
    if mounted.returncode:
        pytest.skip("no tmpfs can be mounted: " + mounted.stderr.decode().strip())
    (folder / "old").write_bytes(OLD)
    with open(str(folder / "filler"), "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("name", ("old", "new"))
@pytest.mark.parametrize("option", ("-o", "--capture"))
def test_full_disk(run_tracer, any_python, small_disk, option, name):
    path = small_disk / name
    done = run_tracer("-q", option, path, "--", any_python.path, program("short.py"))
    line = error_line(done, 1)
    assert str(path) in line and "No space left" in line
    assert sorted(os.listdir(str(small_disk))) == ["filler", "old"]
    assert (small_disk / "old").read_bytes() == OLD
    if option == "-o":
        assert "Total:" in done.stdout, "the report is not lost with the file"


def test_full_disk_leaves_the_target_alone(start, run_tracer, any_python, small_disk):
    target = start(any_python, "golden.py")
    error_line(run_tracer("-q", "-d", "0.2", "-o", small_disk / "new", "-p", target.pid), 1)
    target.step()
    target.expect()
    assert target.finish() == 0


def outputs(folder):
    (folder / "file").write_bytes(OLD)
    (folder / "folder").mkdir()
    os.symlink("file", str(folder / "link"))
    os.symlink("none", str(folder / "broken"))
    os.mkfifo(str(folder / "pipe"))
    return ("folder", "folder/", "link", "broken", "pipe", "none/x", "file/x", "")


@pytest.mark.parametrize("option", ("-o", "--capture"))
def test_unusable_outputs(run_tracer, any_python, tmp_path, option):
    """Refused before any work is done: the command does not even start."""
    for name in outputs(tmp_path):
        mark = tmp_path / "ran"
        path = os.path.join(str(tmp_path), name) if name else ""
        done = run_tracer(option, path, "--", any_python.path, "-c", "open(%r, 'w')" % str(mark))
        error_line(done, 1)
        assert not mark.exists()
        assert sorted(os.listdir(str(tmp_path))) == ["broken", "file", "folder", "link", "pipe"]
        assert (tmp_path / "file").read_bytes() == OLD


def test_replay_to_unusable_outputs(run_tracer, recorded, tmp_path):
    (tmp_path / "run.cap").write_bytes(recorded[0])
    for name in outputs(tmp_path):
        path = os.path.join(str(tmp_path), name) if name else ""
        error_line(run_tracer("replay", tmp_path / "run.cap", "-o", path), 1)
        assert (tmp_path / "file").read_bytes() == OLD


def test_failure_keeps_the_old_file(run_tracer, tmp_path):
    """No target, no snapshot: what was there stays."""
    (tmp_path / "old").write_bytes(OLD)
    error_line(run_tracer("-o", tmp_path / "old", "-p", free_pid()), 1)
    error_line(run_tracer("-o", tmp_path / "old", "--capture", tmp_path / "old.cap", "--", "/bin/true"), 1)
    assert os.listdir(str(tmp_path)) == ["old"]
    assert (tmp_path / "old").read_bytes() == OLD


def test_success_replaces_the_old_file(run_tracer, any_python, tmp_path):
    (tmp_path / "old").write_bytes(OLD)
    os.chmod(str(tmp_path / "old"), 0o644)
    done = run_tracer("-o", tmp_path / "old", "--", any_python.path, program("short.py"))
    assert done.returncode == 0
    assert os.listdir(str(tmp_path)) == ["old"]
    assert run_tracer("report", tmp_path / "old").returncode == 0
    assert stat.S_IMODE(os.stat(str(tmp_path / "old")).st_mode) & 0o077 == 0, "file names of another's program are not for all"


def test_bad_capture_keeps_the_old_file(run_tracer, recorded, tmp_path):
    (tmp_path / "old").write_bytes(OLD)
    (tmp_path / "bad.cap").write_bytes(os.urandom(1000))
    error_line(run_tracer("replay", tmp_path / "bad.cap", "-o", tmp_path / "old"), 1)
    assert (tmp_path / "old").read_bytes() == OLD
    assert sorted(os.listdir(str(tmp_path))) == ["bad.cap", "old"]
