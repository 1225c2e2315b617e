# SPDX-License-Identifier: Apache-2.0
"""tracer perfmap --jitdump: what perf makes of the file, what is in it, and obstacles at its path."""
import os
import re
import shutil
import signal
import struct
import subprocess
import time

import pytest

from harness import environment, error_line, program, wait_until
from perfmaps import Api, clean, compile_c, end, entries, map_of, names, perfmap  # noqa: F401

HEADER = struct.Struct("<6I2Q")
LOAD = struct.Struct("<2IQ2I4Q")


def loads(path):
    """[(pid, address, name, code)] of a jitdump, which must have nothing else."""
    with open(path, "rb") as file:
        data = file.read()
    magic, version, at, _, _, pid, _, flags = HEADER.unpack_from(data)
    assert (magic, version, at, flags) == (0x4A695444, 1, HEADER.size, 0)
    assert os.path.basename(path) == "jit-%d.dump" % pid
    found = []
    while at < len(data):
        kind, size, when, pid, tid, vma, address, code_size, index = LOAD.unpack_from(data, at)
        assert (kind, tid, vma, index) == (0, pid, address, len(found))
        assert 0 < when <= time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        name, code = data[at + LOAD.size : at + size].split(b"\0", 1)
        assert len(code) == code_size
        found.append((pid, address, name.decode(), code))
        at += size
    assert at == len(data)
    return found


def announced(run):
    """The jitdump and how perf is to run, as the tracer says it once it has attached."""
    wait_until(lambda: "now: perf record" in run.stderr, "the tracer has attached")
    return re.search(r"^tracer: (\S+): \d+ functions so far; now: (.+)$", run.stderr, re.M).groups()


class Recording:
    """perf record, from when it samples."""

    def __init__(self, command, folder):
        if not shutil.which("perf"):
            pytest.skip("no perf on this machine")
        control, answer = str(folder / "control"), str(folder / "answer")
        os.mkfifo(control)
        os.mkfifo(answer)
        self.data, self.injected = str(folder / "perf.data"), str(folder / "perf.jit.data")
        self.process = subprocess.Popen(
            [*command.split(), "-q", "-e", "cpu-clock", "-F", "15000", "-o", self.data]
            + ["-D", "-1", "--control", "fifo:%s,%s" % (control, answer)],
            stderr=subprocess.PIPE,
            text=True,
        )
        with open(control, "w") as commands, open(answer) as answers:
            commands.write("enable\n")
            commands.flush()
            assert answers.readline().startswith("ack"), self.process.stderr.read()

    def end(self):
        """{name: its number of samples}"""
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=60)
        self.perf("inject", "--jit", "-i", self.data, "-o", self.injected)
        found = re.findall(r"py::[^+\n]*[^+ \n]", self.perf("script", "-F", "ip,sym", injected=1))
        return {name: found.count(name) for name in set(found)}

    def perf(self, *words, injected=0):
        done = subprocess.run(
            ["perf", *words, *(["-i", self.injected] if injected else [])],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.mark.versions("3.12", "3.13")
def test_perf_names_and_annotates(start, perfmap, python, tmp_path):
    """What was there before the tracer, and before perf, has its names and instructions after the
    process and its map file are gone."""
    target = start("/usr/bin/env", python.path, "-X", "perf", program("calls.py"), "600")
    wait_until(lambda: any("::leaf:" in n for n in names(map_of(target.pid))), "it calls leaf()")
    run = perfmap("-p", target.pid, "--jitdump", tmp_path)
    path, command = announced(run)
    assert command == "perf record -k 1 -p %d,%d" % (target.pid, run.process.pid)
    recording = Recording(command, tmp_path)
    time.sleep(2)  # samples of leaf()
    found = loads(path)
    ((_, address, leaf, code),) = [load for load in found if "::leaf:" in load[2]]
    with open("/proc/%d/mem" % target.pid, "rb") as memory:
        memory.seek(address)
        assert memory.read(len(code)) == code
    assert {a: (len(code), name) for _, a, name, code in found} == entries(map_of(target.pid))
    target.kill()
    assert run.wait() == 0, run.stderr
    os.unlink(map_of(target.pid))
    assert leaf in recording.end()
    assert leaf in recording.perf("report", "--stdio", "--sort", "symbol", injected=1)
    shown = recording.perf("annotate", "--stdio", "-s", leaf, injected=1)
    assert re.search(r": +[0-9a-f]+: +(call|blr)\b", shown)


@pytest.mark.versions("3.13")
def test_a_command_while_all_is_recorded(perfmap, python, tmp_path):
    """perf runs already when the tracer maps the file and starts its command."""
    recording = Recording("perf record -k 1 -a", tmp_path)
    command = (python.path, "-X", "perf", program("calls.py"), "3")
    run = perfmap("--jitdump", tmp_path, "--", *command)
    assert run.wait() == 0, run.stderr
    assert any("::leaf:" in name for name in recording.end())


def regions(start, perfmap, tmp_path):
    path = compile_c(program("regions.c"), str(tmp_path / "regions"))
    target = start(path, None)
    symbol = "regions:name_region:addr=1,size=2,name=3"
    run = perfmap("-p", target.pid, "--jitdump", tmp_path, "--perf-map-symbol", symbol)
    return target, run, *announced(run)


def test_a_mapping_that_grows(start, perfmap, tmp_path):
    """perf gets an event of the whole mapping then, and forgets the functions in it."""
    target, run, path, command = regions(start, perfmap, tmp_path)
    recording = Recording(command, tmp_path)
    for _ in range(2):
        target.step()
        assert target.read_line() == "ok"
    target.kill()
    assert run.wait() == 0, run.stderr
    assert recording.end().keys() == {"py::first", "py::second"}
    assert [name for _, _, name, _ in loads(path)].count("py::first") == 2


def test_code_that_vanished(start, perfmap, tmp_path):
    """It has a name, without bytes."""
    target, run, path, _ = regions(start, perfmap, tmp_path)
    for _ in range(3):
        target.step()
        assert target.read_line() == "ok"
    end(run)
    code = {name: code for _, _, name, code in loads(path)}
    assert code["py::vanished"] == bytes(64) != code["py::first"] == code["py::second"]


@pytest.mark.versions("3.13")
def test_children(start, perfmap, python, tmp_path):
    """A forked child's new functions are its own; perf gives it those of its parent."""
    api = Api(start, python, "-X", "perf")
    run = perfmap("-p", api.pid, "--jitdump", tmp_path)
    path, _ = announced(run)
    child = api.call("fork")
    wait_until(
        lambda: any(pid == child and "function_of_child" in n for pid, _, n, _ in loads(path)),
        "the child has named a function",
    )
    os.kill(child, signal.SIGKILL)
    end(run)
    found = {
        pid: "".join(n for of, _, n, _ in loads(path) if of == pid) for pid in (api.pid, child)
    }
    assert "function_of_parent" in found[api.pid] and "function_of_child" not in found[api.pid]
    assert "function_of_child" in found[child] and "function_of_parent" not in found[child]


@pytest.mark.versions("3.13")
def test_our_own_reader_takes_it(start, perfmap, any_python, tmp_path):
    """As the jitdump of another process."""
    api = Api(start, any_python)
    run = perfmap("-p", api.pid, "--jitdump", tmp_path, "-o", tmp_path / "map")
    path, _ = announced(run)
    for address, name in ((0x1000, b"plain"), (0x2000, b"\x1b[31mred"), (0x3000, b"x" * 4096)):
        assert api.call("write", "%x" % address, "10", name.hex()) == 0
    assert api.call("write", "100000000", "100001", b"more than a MiB".hex()) == 0
    end(run)
    assert "the code of 3 of 3 functions could not be read, and is zeros" in run.stderr
    assert "1 functions are left out" in run.stderr
    ours = {a: entry for a, entry in entries(tmp_path / "map").items() if a != 0x100000000}
    assert {a: (len(code), name) for _, a, name, code in loads(path)} == ours
    reader = start(any_python, "golden.py")
    copy = "/tmp/jit-%d.dump" % reader.pid
    shutil.copy(path, copy)
    try:
        end(perfmap("-p", reader.pid, "-o", tmp_path / "again", "--merge"))
    finally:
        os.unlink(copy)
    assert entries(tmp_path / "again") == ours


def test_node(perfmap, tmp_path):
    node = shutil.which("node")
    if not node:
        pytest.skip("no node on this machine")
    script = (
        "function hot(n) { let s = 0; for (let i = 0; i < n; i++) s += i % 7; return s }"
        " console.log('ready'); setInterval(() => hot(1e6), 1)"
    )
    process = subprocess.Popen(
        [node, "--perf-basic-prof", "-e", script], cwd=tmp_path, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout.readline() == b"ready\n"
        run = perfmap("-p", process.pid, "--jitdump", tmp_path)
        path, _ = announced(run)
        wait_until(
            lambda: any("*hot " in name and any(code) for _, _, name, code in loads(path)),
            "optimised code of it has its bytes",
        )
        end(run)
    finally:
        process.kill()
        process.wait()


@pytest.mark.versions("3.13")
def test_the_target_is_killed(start, perfmap, python, tmp_path):
    api = Api(start, python, "-X", "perf")
    run = perfmap("-p", api.pid, "--jitdump", tmp_path)
    path, _ = announced(run)
    api.say("many", 4, 100000)
    wait_until(lambda: os.path.getsize(path) > 1 << 20, "it is at it")
    os.kill(api.pid, signal.SIGKILL)
    assert run.wait() == 0, run.stderr
    assert len(loads(path)) > 5000


@pytest.mark.parametrize(
    "obstacle, said",
    (
        ("ln -s ../precious dump/jit-$$.dump", "is a symbolic link, which is not followed"),
        ("mkdir dump/jit-$$.dump", "is a directory"),
        ("cp precious dump/jit-$$.dump", "is no file that tracer has written"),
        ("rmdir dump", "No such file or directory"),
        ("rmdir dump; touch dump", "Not a directory"),
    ),
)
def test_obstacles(start, tracer, any_python, tmp_path, obstacle, said):
    """The tracer has the process id of the shell that puts them there."""
    target = start(any_python, "golden.py")
    (tmp_path / "dump").mkdir()
    (tmp_path / "precious").write_text("precious\n")
    done = subprocess.run(
        ["sh", "-ec", obstacle + '\nexec "$@"', "sh", tracer]
        + ["perfmap", "-p", str(target.pid), "--jitdump", "dump/"],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert said in error_line(done, 1)
    assert (tmp_path / "precious").read_text() == "precious\n"


def test_a_file_of_another_name(start, perfmap, any_python, tmp_path):
    """perf finds it by the name beside it."""
    api = Api(start, any_python)
    run = perfmap("-p", api.pid, "--jitdump", tmp_path / "mine")
    path, _ = announced(run)
    assert api.call("write", "1000", "10", b"named".hex()) == 0
    end(run)
    assert os.path.samefile(path, tmp_path / "mine")
    assert [name for _, _, name, _ in loads(path)] == ["named"]


@pytest.fixture
def disk(tmp_path):
    """Mounts a file system with these options; returns its folder."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options):
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], stderr=subprocess.PIPE
        )
        if done.returncode:
            pytest.skip("no tmpfs can be mounted: " + done.stderr.decode().strip())
        return folder

    yield mount
    subprocess.run(["umount", str(folder)], check=True)


def test_noexec(start, run_tracer, any_python, disk):
    target = start(any_python, "golden.py")
    folder = disk("noexec")
    line = error_line(run_tracer("perfmap", "-p", target.pid, "--jitdump", folder), 1)
    assert str(folder) in line and "noexec" in line
    assert not os.listdir(folder)


@pytest.mark.versions("3.13")
def test_a_full_disk(start, run_tracer, python, disk):
    """The file ends with a whole record."""
    api = Api(start, python)
    for address in range(0x1000, 0x3000, 0x10):
        assert api.call("write", "%x" % address, "10", (b"x" * 50).hex()) == 0
    folder = disk("size=16k")
    done = run_tracer("perfmap", "-q", "-p", api.pid, "--jitdump", folder, "-d", "0.1")
    line = error_line(done, 1)
    (name,) = os.listdir(folder)
    assert name in line and "No space left" in line and "functions so far" in line
    assert 50 < len(loads(str(folder / name))) < 512


def test_nothing_is_left_of_an_attach_that_failed(run_tracer, tmp_path):
    error_line(run_tracer("perfmap", "-p", 4194304, "--jitdump", tmp_path), 1)
    assert not os.listdir(tmp_path)
