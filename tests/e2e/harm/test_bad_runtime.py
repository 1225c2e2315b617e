# SPDX-License-Identifier: Apache-2.0
"""Runtimes that cannot be read: unknown versions, no symbols, corrupt ELF files. One line, status
1, the target unharmed."""
import os
import re
import shutil
import subprocess

import pytest

import pythons
from harness import environment, error_line


def compiled(folder, source, name, *options):
    """Compiles a minimal C program that has a certain feature."""
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
    """A process that prints "ready", and exits with 42 if it was not harmed."""

    def __init__(self, *command, env=None):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
        )
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
    """The file offset of a symbol in a library whose first segments are mapped one to one."""
    table = subprocess.run(
        ["readelf", "-sW", path], stdout=subprocess.PIPE, check=True, timeout=60
    ).stdout.decode()
    address = next(
        int(line.split()[1], 16) for line in table.splitlines() if line.split()[-1:] == [name]
    )
    segments = subprocess.run(
        ["readelf", "-lW", path], stdout=subprocess.PIPE, check=True, timeout=60
    ).stdout.decode()
    for line in segments.splitlines():
        word = line.split()
        if word[:1] == ["LOAD"] and int(word[2], 16) <= address < int(word[2], 16) + int(
            word[4], 16
        ):
            return address - int(word[2], 16) + int(word[1], 16)
    raise KeyError(name)


@pytest.mark.versions("3.11", "3.13")
def test_unknown_version(attempt, python, tmp_path, libpython):
    path = libpython(python)
    copy = shutil.copy(path, str(tmp_path))
    with open(copy, "r+b") as file:
        file.seek(symbol_offset(path, "Py_Version"))
        assert file.read(4)[3] == 3
        file.seek(-4, os.SEEK_CUR)
        file.write((0x036300F0).to_bytes(4, "little"))
    with Waiting(
        python.path, "-c", PYTHON_WAITING, env=environment(LD_LIBRARY_PATH=str(tmp_path))
    ) as target:
        line = error_line(attempt(target.pid), 1)
        assert "3.99" in line
        assert "3.8" in line and "3.13" in line, "the versions known"


@pytest.mark.versions("3.13")
def test_version_from_the_future(attempt, python, tmp_path, libpython):
    """The library looks like a build of CPython's main branch. The error names what it lacks of the
    newest known layout."""
    path = libpython(python)
    copy = shutil.copy(path, str(tmp_path))
    with open(copy, "r+b") as file:
        for symbol, skipped in (("Py_Version", 0), ("_PyRuntime", 8)):
            file.seek(symbol_offset(path, symbol) + skipped)
            file.write((0x031000A0).to_bytes(4, "little"))
    with Waiting(
        python.path, "-c", PYTHON_WAITING, env=environment(LD_LIBRARY_PATH=str(tmp_path))
    ) as target:
        line = error_line(attempt(target.pid), 1)
        assert "it runs Python 3.16; known versions: 3.8" in line
        assert re.search(r"read as 3\.1[0-9]: .*(could not be proven|impossible)", line), line


def traced(trace, target):
    run = trace("-p", target.pid)
    target.step()
    live = target.expect()
    report = run.finish()
    assert report.lost_events == 0
    assert report.marked("golden.py", live) == live


@pytest.mark.versions("3.11", "3.13")
def test_deleted_library(start, trace, python, tmp_path, libpython):
    """As after an upgrade of the package."""
    copy = shutil.copy(libpython(python), str(tmp_path))
    target = start(python, "golden.py", env=environment(LD_LIBRARY_PATH=str(tmp_path)))
    os.unlink(copy)
    shutil.copy("/bin/true", copy)
    traced(trace, target)
    assert target.finish() == 0


@pytest.mark.versions("3.11", "3.13")
def test_foreign_debug_symbols(start, trace, python, tmp_path, libpython):
    """A debug file with the right name that belongs to another build: its symbols are not used."""
    name = os.path.basename(libpython(python))
    copy, other, debug = (
        str(tmp_path / name),
        str(tmp_path / "other"),
        str(tmp_path / (name + ".debug")),
    )
    subprocess.run(
        ["strip", "-R", ".note.gnu.build-id", "-o", copy, libpython(python)], check=True, timeout=60
    )
    subprocess.run(
        ["objcopy", "--only-keep-debug", libpython(python), debug], check=True, timeout=60
    )
    subprocess.run(["objcopy", "--add-gnu-debuglink=" + debug, copy], check=True, timeout=60)
    # The same symbols at other addresses: the checksum differs.
    subprocess.run(
        ["objcopy", "--change-addresses=64", "--only-keep-debug", libpython(python), other],
        check=True,
        stderr=subprocess.DEVNULL,
        timeout=60,
    )
    os.rename(other, debug)
    target = start(python, "golden.py", env=environment(LD_LIBRARY_PATH=str(tmp_path)))
    traced(trace, target)
    assert target.finish() == 0


@pytest.mark.parametrize("version", ("2.7", "3.6", "3.7"))
def test_old_version(attempt, version):
    """Versions before 3.8. 2.7 and 3.6 have no _PyRuntime by which they could be recognized."""
    path = pythons.pyenv(version)
    if not path:
        pytest.skip("no pyenv %s on this machine" % version)
    with Waiting(path, "-c", PYTHON_WAITING) as target:
        line = error_line(attempt(target.pid), 1)
        assert "it runs Python %s; known versions: 3.8" % version in line


def test_unknown_version_of_a_command(run_tracer, tmp_path):
    path = compiled(tmp_path, RUNTIME_ONLY % "0x036300f0", "python3.99", "-rdynamic")
    assert "3.99" in error_line(run_tracer("--", path), 1)


def test_no_usable_symbol(attempt, tmp_path):
    path = compiled(tmp_path, RUNTIME_ONLY % "0x030b07f0", "python3.11", "-rdynamic", "-s")
    with Waiting(path) as target:
        line = error_line(attempt(target.pid), 1)
        assert path in line and "symbol" in line


def test_stripped_of_every_symbol(attempt, tmp_path):
    """Without even _PyRuntime the program cannot be distinguished from any other program."""
    path = compiled(tmp_path, RUNTIME_ONLY % "0x030b07f0", "python3.11", "-s")
    with Waiting(path) as target:
        assert "no Python" in error_line(attempt(target.pid), 1)


def patch(data, at, new):
    return data[:at] + new + data[at + len(new) :]


def corruptions(elf):
    """{name: bytes}: possible contents of a file that is named libpython."""
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
    yield "noise for section headers", elf[:section_headers] + os.urandom(
        len(elf) - section_headers
    )
    yield "ones for section headers", elf[:section_headers] + b"\xff" * (len(elf) - section_headers)


CORRUPTIONS = [name for name, _ in corruptions(b"\x7fELF" + bytes(10000))]


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_corrupt_elf(run_tracer, any_python, tmp_path, name, libpython):
    """A mapped file with the name of a libpython is refused in a bounded time, with one line."""
    mapper = compiled(tmp_path, MAPPER, "mapper")
    with open(libpython(any_python), "rb") as file:
        data = dict(corruptions(file.read()))[name]
    path = tmp_path / ("libpython%s.so.1.0" % any_python.version)
    path.write_bytes(data)
    with Waiting(mapper, str(path)) as target:
        for options in (("--dry-run",), ("-d", "1")):
            done = run_tracer(*options, "--layer", "python", "-p", target.pid)
            error_line(done, 1)


@pytest.mark.parametrize(
    "damage", ("no section headers", "noise for section headers", "tail cut off")
)
def test_damaged_file_of_a_running_python(run_tracer, any_python, tmp_path, damage, libpython):
    """The loader needs no section headers, so Python runs from such a file. It is traced, or
    refused with one line."""
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
    with Waiting(
        any_python.path, "-c", PYTHON_WAITING, env=environment(LD_LIBRARY_PATH=str(tmp_path))
    ) as target:
        if damage == "tail cut off":
            os.truncate(copy, section_headers - 100000)  # debug information, which is not mapped
        done = run_tracer("-d", "0.3", "-p", target.pid)
        assert done.returncode in (0, 1)
        if done.returncode:
            error_line(done, 1)
