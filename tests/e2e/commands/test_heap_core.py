# SPDX-License-Identifier: Apache-2.0
"""tracer heap --core: a core file that the kernel wrote answers as the process did."""
import os
import resource
import shutil
import signal
import subprocess

import pytest

from harness import Target, environment, error_line
from test_heap_graph import ask, check_proof

COUNT = 2000


def core_of(target, folder):
    """Aborts a target that was started in the folder, and returns the path of its core."""
    os.kill(target.pid, signal.SIGABRT)
    target.process.wait(60)
    found = [entry.path for entry in os.scandir(folder) if entry.name.startswith("core")]
    if not found:
        with open("/proc/sys/kernel/core_pattern") as file:
            pytest.skip("the kernel puts core files elsewhere: " + file.read().strip())
    return found[0]


@pytest.fixture
def dumping(tmp_path, monkeypatch):
    """Targets that leave a core in tmp_path."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    monkeypatch.chdir(tmp_path)
    targets = []

    def make(python, *arguments):
        targets.append(Target(python, *arguments, env=environment(PYTHONFAULTHANDLER="")))
        targets[-1].wait_reading()
        return targets[-1]

    yield make
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    for target in targets:
        target.kill()


@pytest.mark.versions()
def test_core(dumping, run_tracer, python, tmp_path):
    target = dumping(python, "graph_builtins.py", COUNT)
    live = ask(run_tracer, "--retained", "--top", 0, "-p", target.pid)
    path = ask(run_tracer, "why", "S", "-p", target.pid)["paths"][0]
    core = core_of(target, tmp_path)
    dead = ask(run_tracer, "--retained", "--top", 0, "--core", core)
    check_proof(dead)
    assert (dead["pid"], dead["python_version"]) == (target.pid, live["python_version"])
    assert dead["bytes_lost"] == 0
    counts = {s["type"]: (s["count"], s["size"]) for s in live["statistics"]}
    for entry in dead["statistics"]:
        if entry["type"] in ("A", "S", "D", "generator", "module", "set"):
            assert counts[entry["type"]] == (entry["count"], entry["size"])
    assert abs(dead["total"]["size"] - live["total"]["size"]) < 0.001 * live["total"]["size"]
    assert ask(run_tracer, "why", "S", "--core", core)["paths"][0]["steps"] == path["steps"]
    dump = str(tmp_path / "heap.dump")
    kept = ask(run_tracer, "--by", "root", "--core", core, "-o", dump)
    os.unlink(core)
    assert ask(run_tracer, "--by", "root", dump) == kept


def gcore_of(start, python, folder):
    """(target, path of its core, by gdb): a process that runs on."""
    if not shutil.which("gcore"):
        pytest.skip("no gcore (Debian: gdb)")
    target = start(python, "graph_builtins.py", COUNT)
    target.wait_reading()
    command = ["gcore", "-o", str(folder / "core"), str(target.pid)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return target, "%s/core.%d" % (folder, target.pid)


def test_gcore(start, run_tracer, any_python, tmp_path):
    """A core of a process that runs on, by gdb: it has no segments of what is in files alone."""
    target, path = gcore_of(start, any_python, tmp_path)
    live = ask(run_tracer, "--retained", "--top", 0, "-p", target.pid)
    core = ask(run_tracer, "--retained", "--top", 0, "--core", path)
    check_proof(core)
    assert core["total"] == live["total"] and core["references"] == live["references"]


def test_core_files(dumping, run_tracer, any_python, tmp_path):
    """The files that the process had mapped are found below another root, and are compared."""
    target, copies = dumping(any_python, "graph_builtins.py", COUNT), tmp_path / "files"
    with open("/proc/%d/maps" % target.pid) as file:
        mapped = {line.split(None, 5)[5].strip() for line in file if " /" in line}
    core = core_of(target, tmp_path)
    for path in mapped:
        copy = copies / path[1:]
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    answer = ask(run_tracer, "--by", "root", "--core", core, "--sysroot", str(copies))
    check_proof(answer)
    assert "file_absent" not in answer
    for path in mapped:
        if b"PyType_Type" in (copies / path[1:]).read_bytes():
            shutil.copyfile("/bin/true", copies / path[1:])
    other = ask(run_tracer, "--by", "root", "--core", core, "--sysroot", str(copies))
    assert other["file_absent"] in mapped and other["total"] == answer["total"]


# What the files alone tell: their own types, and those that nothing in memory names.
NAMED = ("A", "S", "D", "dict", "list", "tuple", "set", "str", "int", "function", "code", "cell")
NAMED += ("generator", "module", "type", "frame", "method", "builtin_function_or_method")


def check_alone(run_tracer, core, folder):
    """A core without any of the files that were mapped answers as with them."""
    empty = folder / "empty"
    empty.mkdir(exist_ok=True)
    options = ("--retained", "--top", 0, "--core", core)
    known = ask(run_tracer, *options)
    alone = ask(run_tracer, *options, "--sysroot", str(empty))
    assert alone["total"] == known["total"]
    assert known["python_version"].startswith(alone["python_version"])
    check_proof(alone)
    assert alone["references"]["all_found"] == known["references"]["all_found"]
    assert alone["bytes_lost"] and "python" in alone["file_absent"]
    types = {s["type"]: s for s in alone["statistics"]}
    for entry in known["statistics"]:
        if entry["type"] in NAMED:
            assert (entry["count"], entry["size"]) == (
                types[entry["type"]]["count"],
                types[entry["type"]]["size"],
            ), entry
    unnamed = sum(s["count"] for s in alone["statistics"] if not s["type"])
    assert unnamed < 0.02 * alone["total"]["count"]
    why = ("why", "S", "--core", core)
    steps = ask(run_tracer, *why)["paths"][0]["steps"]
    assert ask(run_tracer, *why, "--sysroot", str(empty))["paths"][0]["steps"] == steps
    text = run_tracer("heap", *options, "--sysroot", str(empty)).stdout
    assert "Not seen: constants of " + alone["file_absent"] in text


@pytest.mark.versions()
def test_core_alone(dumping, run_tracer, python, tmp_path):
    """The executable and all libraries are gone: layout and names come from the core."""
    core = core_of(dumping(python, "graph_builtins.py", COUNT), tmp_path)
    check_alone(run_tracer, core, tmp_path)
    dump, empty = str(tmp_path / "heap.dump"), str(tmp_path / "empty")
    options = ("--by", "root", "--core", core, "--sysroot", empty)
    kept = ask(run_tracer, *options, "-o", dump)
    os.unlink(core)
    assert ask(run_tracer, "--by", "root", dump) == kept


def test_gcore_alone(start, run_tracer, any_python, tmp_path):
    _, path = gcore_of(start, any_python, tmp_path)
    check_alone(run_tracer, path, tmp_path)


def test_core_of_others_alone(run_tracer, tmp_path, dumping):
    """Of a program without Python nothing is recovered, and the line says what is missing."""
    sleep = subprocess.Popen([shutil.which("sleep"), "60"], cwd=tmp_path)
    sleep_command = os.path.realpath(shutil.which("sleep"))
    while os.readlink("/proc/%d/exe" % sleep.pid) != sleep_command:
        pass
    os.kill(sleep.pid, signal.SIGABRT)
    sleep.wait(60)
    found = [entry.path for entry in os.scandir(tmp_path) if entry.name.startswith("core")]
    if not found:
        pytest.skip("the kernel puts core files elsewhere")
    (tmp_path / "empty").mkdir()
    line = error_line(run_tracer("heap", "--core", found[0], "--sysroot", tmp_path / "empty"), 1)
    assert found[0] in line and "cannot be opened" in line and "--sysroot" in line


def test_core_cut(dumping, run_tracer, any_python, tmp_path):
    """A core that was cut short gives what is left of it, or one line that says so."""
    core = core_of(dumping(any_python, "graph_builtins.py", COUNT), tmp_path)
    size = os.path.getsize(core)
    os.truncate(core, size - (64 << 10))
    cut = ask(run_tracer, "--by", "root", "--core", core)
    assert 0 < cut["bytes_lost"] <= 64 << 10
    for left in (size // 2, size // 10, 200000):
        os.truncate(core, left)
        assert "was cut short" in error_line(run_tracer("heap", "--core", core), 1)
    for left in (3000, 64, 10, 0):
        os.truncate(core, left)
        assert "core file" in error_line(run_tracer("heap", "--core", core), 1)


def test_core_refused(run_tracer, any_python, tmp_path):
    wrong = tmp_path / "wrong"
    wrong.write_bytes(b"\x7fELF" + bytes(1000))
    assert "no core file" in error_line(run_tracer("heap", "--core", str(wrong)), 1)
    os.mkfifo(tmp_path / "fifo")
    for path in (str(tmp_path / "fifo"), str(tmp_path), str(tmp_path / "absent"), "/dev/zero"):
        assert path in error_line(run_tracer("heap", "--core", path), 1)
    for more in (("-p", os.getpid()), ("--freeze",), ("--by", "class"), ("a.dump",)):
        error_line(run_tracer("heap", "--core", str(wrong), *more), 2)
    error_line(run_tracer("heap", "--sysroot", "/", "-p", os.getpid()), 2)
