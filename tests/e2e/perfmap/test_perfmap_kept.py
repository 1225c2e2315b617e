# SPDX-License-Identifier: Apache-2.0
"""tracer perfmap and the map file that a process writes itself: nothing that perf named before is
lost, while the tracer runs, after it has ended, and of what the process writes later."""
import os
import re
import shutil
import subprocess

import pytest

from harness import program, wait_until
from perfmaps import Api, clean, compile_c, end, entries, map_of, names, perfmap  # noqa: F401


def samples(pid, path, *options, seconds=0.3):
    """perf's samples of a process, each as "ADDRESS NAME (FILE)"."""
    if not shutil.which("perf"):
        pytest.skip("no perf on this machine")
    subprocess.run(
        ["perf", "record", "-q", "-N", "-B", "-e", "cpu-clock", *options, "-o", path, "-p", str(pid)]
        + ["--", "sleep", str(seconds)],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )
    text = subprocess.run(
        ["perf", "script", "-i", path, "--no-inline", "-F", "ip,sym,dso"],
        capture_output=True,
        text=True,
        timeout=120,
        errors="replace",
    ).stdout
    return [line for line in text.split("\n") if line.strip()]


class Rounds:
    """A client of programs/perfmap/map_rounds.py."""

    def __init__(self, start, python, *options):
        self.target = start("/usr/bin/env", python.path, *options, program("map_rounds.py"))
        self.pid = self.target.pid

    def say(self, *words):
        self.target.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.target.process.stdin.flush()

    def call(self, *words):
        self.say(*words)
        return self.target.read_line()

    def named(self, folder):
        """The rounds whose functions perf finds; none of the samples in generated code may be
        without a name."""
        stop = folder / "stop"
        stop.unlink(missing_ok=True)
        self.say("spin", stop)
        found = samples(self.pid, str(folder / "perf.data"), "-F", "10000")
        stop.touch()
        assert self.target.read_line() == "None"
        generated = [line for line in found if "(%s)" % map_of(self.pid) in line]
        assert len(generated) > 10, found
        assert all("py::" in line for line in generated), generated
        return {int(number) for number in re.findall(r"py::round(\d+)_", "\n".join(generated))}


@pytest.mark.versions("3.12", "3.13")
@pytest.mark.parametrize("merge", ((), ("--merge",)), ids=("", "merged"))
def test_names_stay(start, perfmap, python, tmp_path, merge):
    rounds = Rounds(start, python, "-X", "perf")
    file = os.stat(map_of(rounds.pid))
    with open(map_of(rounds.pid), "a") as lines:
        lines.write("1000 10 not in order\n")
    run = perfmap("-p", rounds.pid, "--install", *merge)
    rounds.call("new", 1)
    assert rounds.named(tmp_path) == {0, 1}
    end(run)
    assert run.stderr.count("\n") == 1, run.stderr
    rounds.call("new", 2)  # CPython appends to the file that it has open
    assert rounds.named(tmp_path) == {0, 1, 2}
    assert os.stat(map_of(rounds.pid)).st_ino == file.st_ino
    assert {"py::round%d_7:/app.py" % number for number in range(3)} <= names(map_of(rounds.pid))


@pytest.mark.versions("3.13")
def test_what_the_file_lacks_is_appended(start, perfmap, python):
    """Its own lines are missing from the file: in no line that is not complete, and once."""
    api = Api(start, python)
    assert api.call("write", "1000", "10", b"early".hex()) == 0
    run = perfmap("-p", api.pid, "--merge", "--install")
    assert api.call("write", "2000", "10", b"gone".hex()) == 0
    assert api.call("write", "3000", "10", b"taken".hex()) == 0
    wait_until(lambda: "taken" in names(map_of(api.pid)), "CPython has written them")
    with open(map_of(api.pid), "r+") as file:
        file.truncate(len("1000 10 early\n"))
    with open(map_of(api.pid), "a") as file:
        file.write("3008 10 other\n4000 10 half a li")
    end(run, status=1)
    assert "2 entries are not added: the process is in the middle of a line" in run.stderr
    run = perfmap("-p", api.pid, "--merge", "--install", "--follow")
    with open(map_of(api.pid), "a") as file:
        file.write("ne\n")
    assert api.call("write", "2000", "10", b"gone".hex()) == 0
    with open(map_of(api.pid), "r+") as file:
        file.truncate(len("1000 10 early\n3008 10 other\n4000 10 half a line\n"))
    assert api.call("write", "6000", "10", b"late".hex()) == 0
    wait_until(lambda: {"late", "gone"} <= names(map_of(api.pid)), "it is appended")
    assert api.call("write", "7000", "10", b"last".hex()) == 0
    end(run)
    with open(map_of(api.pid)) as file:
        lines = file.read().split("\n")
    assert lines[:3] == ["1000 10 early", "3008 10 other", "4000 10 half a line"]
    assert sorted(lines[3:]) == ["", "2000 10 gone", "6000 10 late", "7000 10 last"]


@pytest.mark.versions("3.13")
def test_newest_wins_with_install(start, perfmap, python, tmp_path):
    """The tracer does not take its own lines for the process's: a slot that has a new owner keeps
    it, and an image that was unregistered stays away."""
    api = Api(start, python)
    run = perfmap("-p", api.pid, "--install", "--follow")
    for number in range(300):
        assert api.call("write", "%x" % (0x600000000000 + number * 64), "40", b"old".hex()) == 0
        if number >= 50:
            slot = "%x" % (0x600000000000 + (number - 50) * 64)
            assert api.call("write", slot, "20", b"new".hex()) == 0
        if number % 50 == 0:
            os.unlink(map_of(api.pid))  # the tracer makes one, from what it knows
            wait_until(lambda: os.path.exists(map_of(api.pid)), "it is installed again")
    os.unlink(map_of(api.pid))
    end(run)
    found = entries(map_of(api.pid))
    assert [found[0x600000000000 + i * 64] for i in range(250)] == [(0x20, "new")] * 250
    assert all(address >= 0x600000000000 for address in found)


def test_unregistered_and_forked_with_install(start, perfmap, tmp_path):
    (tmp_path / "image.c").write_text("int first(int a) { return a + 1; }\n")
    image = compile_c(str(tmp_path / "image.c"), str(tmp_path / "image.o"), "-c")
    jit = start(compile_c(program("jit.c"), str(tmp_path / "jit")), image)
    assert jit.read_line() == "ok"
    run = perfmap("-p", jit.pid, "--follow", "--install")
    jit.step()
    assert jit.read_line() == "ok"
    wait_until(lambda: names(map_of(jit.pid)) == {"first"}, "it is registered")
    jit.step()
    assert jit.read_line() == "ok"
    wait_until(lambda: not names(map_of(jit.pid)), "it is gone")
    end(run)
    assert not names(map_of(jit.pid))


def test_node_keeps_its_map(perfmap, tmp_path):
    """node writes at an offset of its own: what is appended to its file would be overwritten."""
    node = shutil.which("node")
    if not node:
        pytest.skip("no node on this machine")
    script = (
        "process.stdin.on('data', (d) => { eval('(function ' + String(d).trim() + '(n) { let s = 0;"
        " for (let i = 0; i < n; i++) s += i % 7; return s })')(1e8); console.log('ok') }); console.log('ready')"
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
        before = os.stat(map_of(process.pid))
        with open(map_of(process.pid)) as file:
            lines = file.read()
        run = perfmap("-p", process.pid, "--merge", "--install")
        end(run)
        process.stdin.write("lateFunction\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ok\n"
        assert os.stat(map_of(process.pid)).st_ino == before.st_ino
        assert any("lateFunction" in name for name in names(map_of(process.pid)))
        with open(map_of(process.pid)) as file:
            assert file.read().startswith(lines)
    finally:
        process.kill()
        process.wait()


@pytest.mark.versions("3.13")
def test_two_writers_are_left_alone(start, perfmap, python):
    """The process has its file open at an offset of its own, too: nothing is appended, and it is
    said."""
    api = Api(start, python)
    run = perfmap("-p", api.pid, "--install")
    assert api.call("write", "1000", "10", b"early".hex()) == 0
    assert api.call("reopen", map_of(api.pid)) == 0  # truncates
    end(run, status=1)
    assert "1 entries are not added: the process writes at an offset of its own" in run.stderr
    assert os.stat(map_of(api.pid)).st_size == 0


@pytest.mark.versions("3.12", "3.13")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the program's code is for x86-64")
def test_inherited_functions(start, perfmap, python, tmp_path):
    """A forked child runs a function of which CPython writes nothing into the child's map: once
    followed, once attached after the fork."""
    target = start(python, "map_inherited.py")
    for followed in (True, False):
        stop = tmp_path / ("stop-%s" % followed)
        run = perfmap("-p", target.pid, "--merge", "--install") if followed else None
        target.process.stdin.write(b"%s\n" % bytes(stop))
        target.process.stdin.flush()
        child = int(target.read_line())
        wait_until(lambda: names(map_of(child)), "the child has written its own entry")
        end(run or perfmap("-p", child, "--merge", "--install"))
        assert names(map_of(child)) == {"inherited", "own"}
        found = samples(child, str(tmp_path / "perf.data"), "-F", "999")
        stop.touch()
        generated = [line for line in found if "(%s)" % map_of(child) in line]
        assert len(generated) > 10, found
        assert all(" inherited (" in line for line in generated), generated


@pytest.mark.versions("3.13")
def test_jitdumps_of_short_programs_and_children(perfmap, run_tracer, python, tmp_path):
    """A program that ends at once, and children that do: what CPython writes at their ends. Each
    fork leaves a part of a record in the parent's dump, where the child wrote the buffer as well;
    what the parent writes after that is read."""
    script = (
        "import os\ndef inherited(): pass\ninherited()\nfor i in range(3):\n pid = os.fork()\n if not pid:\n"
        "  def childs(): pass\n  childs()\n  import sys; sys.exit(0)\n print(pid, flush=True); os.waitpid(pid, 0)\n"
        " exec('def parents%d(): pass\\nparents%d()' % (i, i))\n"
    )
    done = run_tracer("perfmap", "--install", "--", python.path, "-X", "perf_jit", "-c", script)
    assert done.returncode == 0, done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 3
    for pid in pids:
        found = {name.split(":")[2] for name in names(map_of(pid)) if name.startswith("py::")}
        assert {"inherited", "childs", "<module>"} <= found
    (pid,) = map(int, re.findall(r"attached to PID (\d+)", done.stderr))
    found = {name.split(":")[2] for name in names(map_of(pid)) if name.startswith("py::")}
    assert {"inherited", "parents0", "parents1", "parents2"} <= found
    assert "to the end" not in done.stderr and "not valid" not in done.stderr


@pytest.mark.versions("3.13")
def test_exec_brings_nothing_back(start, perfmap, python, tmp_path):
    """The file of the program before stays, and is not read for the next one."""
    api = Api(start, python, "-X", "perf")
    path = tmp_path / "map"
    run = perfmap("-p", api.pid, "--merge", "--follow", "-o", path, "--status")
    wait_until(lambda: "function_of_parent" in str(names(path)), "the map is written")
    api.say("exec")
    wait_until(lambda: not names(path), "the map is empty")
    with open(map_of(api.pid), "a") as file:
        file.write("1000 10 of the next program\n")
    wait_until(lambda: names(path), "what is written later is read")
    said = end(run)
    assert names(path) == {"of the next program"}
    assert "entries: 1\n" in said


@pytest.mark.versions("3.13")
@pytest.mark.parametrize("later", (False, True), ids=("unused", "appended to"))
def test_file_of_an_earlier_process(perfmap, python, tmp_path, later):
    """In a PID namespace ids come again at once: yesterday's map is of another process."""
    if not shutil.which("unshare"):
        pytest.skip("no unshare on this machine")
    path = tmp_path / "prepare"
    path.write_text(
        "mount --make-rprivate /\nmount -t tmpfs none /tmp\necho '7f0000000000 40 py::yesterday' > /tmp/perf-1.map\n"
        "touch -d '-1 day' /tmp/perf-1.map\nexec %s -c '%s'\n"
        % (
            python.path,
            "print(1, flush=True); input(); open(\"/tmp/perf-1.map\", \"a\").write(\"600000000000 10 today\\n\");"
            " print(2, flush=True); input()",
        )
    )
    process = subprocess.Popen(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "1\n"
        with open("/proc/%d/task/%d/children" % (process.pid, process.pid)) as file:
            pid = int(file.read())
        run = perfmap("-p", pid, "--merge", "-o", tmp_path / "map", "--follow")
        if later:
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "2\n"
            wait_until(lambda: names(tmp_path / "map"), "its own line is read")
        end(run)
        assert names(tmp_path / "map") == ({"today"} if later else set())
        assert "an earlier process with its id" in run.stderr
    finally:
        process.kill()
        process.wait()


@pytest.mark.versions("3.13")
def test_user_changes_after_the_attach(start, perfmap, python):
    """A daemon that drops its privileges: its file, of the user that it is now, is not refused, and
    becomes root's."""
    api = Api(start, python)
    run = perfmap("-p", api.pid, "--install", "--follow")
    assert api.call("setuid", 65534) == 0
    assert api.call("write", "1000", "10", b"entry".hex()) == 0
    end(run)
    assert "belongs to" not in run.stderr
    file = os.stat(map_of(api.pid))
    assert (file.st_uid, names(map_of(api.pid))) == (0, {"entry"})


@pytest.mark.versions("3.13")
def test_same_id_in_two_namespaces(perfmap, python, tmp_path):
    """Both processes are number 1 in their namespace and write to the one /tmp/perf-1.map: tracer
    does not, and says why. Under the ids here each has its own map."""
    if not shutil.which("unshare"):
        pytest.skip("no unshare on this machine")
    command = ["unshare", "--mount-proc", "--pid", "--fork", "--kill-child", python.path, "-X", "perf"]
    started = []
    try:
        for tag in ("one", "two"):
            script = "print(1, flush=True); input()\ndef %s(): pass\n%s()\nprint(2, flush=True); input()" % (tag, tag)
            started.append(
                subprocess.Popen(
                    command + ["-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            assert started[-1].stdout.readline() == "1\n"
        pids = []
        for process in started:
            with open("/proc/%d/task/%d/children" % (process.pid, process.pid)) as file:
                pids.append(int(file.read()))
        run = perfmap("-p", "%d,%d" % tuple(pids), "--merge", "--install")
        for process in started:
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "2\n"
        end(run, status=1)
        for pid, other, tag in ((pids[0], pids[1], "one"), (pids[1], pids[0], "two")):
            assert "process %d has the same id in its namespace" % other in run.stderr
            mine = {name for name in names(map_of(pid)) if re.match("py::(one|two):", name)}
            assert mine == {"py::%s:<string>" % tag}
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.versions("3.11", "3.13")
def test_how_to_start_it(start, run_tracer, python):
    """A program that names nothing: says how it is started, and writes nothing."""
    target = start(python, "golden.py")
    done = run_tracer("perfmap", "-p", target.pid, "-d", "0.1", "--install")
    assert done.returncode == 0 and not os.path.exists(map_of(target.pid))
    assert "PID %d has no entries: CPython" % target.pid in done.stderr and "-X perf" in done.stderr
    done = run_tracer("perfmap", "-p", target.pid, "-d", "0.1")
    assert (done.returncode, done.stdout) == (0, "")
    node = shutil.which("node")
    if not node:
        pytest.skip("no node on this machine")
    other = start("/usr/bin/env", node, "-e", "console.log('ready'); setInterval(() => 0, 1000)")
    done = run_tracer("perfmap", "-p", other.pid, "-d", "0.1", "--merge")
    assert "--perf-basic-prof" in done.stderr and done.stdout == ""


@pytest.mark.versions("3.12", "3.13")
def test_status_counts_the_file(start, run_tracer, python):
    api = Api(start, python, "-X", "perf")
    done = run_tracer("perfmap", "-p", api.pid, "--status")
    assert "  entries: %d\n" % len(entries(map_of(api.pid))) in done.stdout
    assert "files followed: 1, 0 of them jitdumps" in done.stdout
