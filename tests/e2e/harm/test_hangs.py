# SPDX-License-Identifier: Apache-2.0
"""Nothing that a target maps or does makes the tracer hang, or leaves probes behind: files whose
file system never answers, heaps that name the same memory again and again, a memory map that is
always locked."""
import os
import re
import shutil
import signal
import subprocess
import tempfile

import pytest

from harness import Target, Traced, compiled, environment, program, wait_until
from procfs import text_differs

BOUND = 30  # seconds: a tracer that hangs needs far more


def state(pid):
    with open("/proc/%d/stat" % pid) as file:
        return file.read().rsplit(") ", 1)[1][0]


def waits_for_answer(pid):
    """Whether the process waits in the kernel for a FUSE file system."""
    with open("/proc/%d/wchan" % pid) as file:
        return file.read() == "request_wait_answer"


@pytest.fixture
def server(tmp_path):
    """hung_files.c"""
    if not os.path.exists("/dev/fuse"):
        pytest.skip("the kernel has no /dev/fuse")
    return compiled(tmp_path / "hung_files", "hung_files.c")


@pytest.fixture
def hung(tmp_path, server, debian_python):
    """A folder with the files "good" and "hung"."""
    folder = tmp_path / "mount"
    folder.mkdir()
    try:
        with Target(server, None, folder, os.path.realpath(debian_python.path)):
            yield folder
    finally:
        subprocess.run(["umount", "-l", folder], stderr=subprocess.DEVNULL)


def mapped(python, name):
    """The path of the file that an interpreter has mapped under such a name."""
    code = "print({l.split()[-1] for l in open('/proc/self/maps') if '/%s' in l}.pop())" % name
    run = [python.path, "-S", "-c", code]
    return subprocess.run(run, stdout=subprocess.PIPE, check=True, text=True).stdout.strip()


def losses(run):
    """The lines that tell of lost events."""
    none = ("no event lost", "lost events: none")
    lines = [line for line in run.stdout.split("\n") if "lost" in line]
    assert lines, run.stdout
    return [line for line in lines if not any(text in line for text in none)]


def looked_at(tracer, tmp_path, target, other):
    """Every reader of a target with a hung file ends in time, and so does a trace of it beside
    another process, of which nothing is lost. Returns what that trace says on stderr."""
    for arguments in (["list"], ["memory", "-p", target.pid], ["heap", "-p", target.pid]):
        subprocess.run(
            [tracer, *map(str, arguments)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=BOUND,
            env=environment(),
            check=True,
        )
    both = "%d,%d" % (target.pid, other.pid)
    with Traced(tracer, tmp_path, "-p", both, "-m", "exact", "--layer", "all") as run:
        run.wait_attached(2)
        assert text_differs(other.pid)
        other.step()
        run.interrupt()
        assert run.wait(BOUND) == 0, run.stderr
        assert not losses(run)
    wait_until(lambda: not text_differs(other.pid), "the probes are gone")
    return run.stderr


@pytest.mark.versions("3.11")
@pytest.mark.parametrize("over", (None, "arena"), ids=("code", "arena"))
def test_mapped_file(tracer, hung, python, tmp_path, undisturbed, over):
    """A target with a hung file as code, and over an arena of its heap, beside one without."""
    arguments = [hung / "hung", *([over] if over else [])]
    with Target(python, "hung_maps.py", *arguments) as target, Target(python, "steady.py") as other:
        said = looked_at(tracer, tmp_path, target, other)
        assert "its file system does not answer" in said


@pytest.fixture
def open_folder():
    """A folder that every user can enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield folder
        subprocess.run(["umount", "-l", folder + "/mount"], stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("way", ("namespace", "user"))
def test_mapped_file_of_a_user(tracer, server, open_folder, debian_python, tmp_path, way):
    """As users mount file systems: root may not look at their files."""
    folder = os.path.join(open_folder, "mount")
    script = shutil.copy(program("hung_maps.py"), open_folder)
    shutil.copy(server, open_folder)
    os.mkdir(folder)
    prefix = [open_folder + "/hung_files", folder, debian_python.path, way]
    with Target(
        debian_python, None, script, folder + "/hung", "arena", prefix=prefix
    ) as target, Target(debian_python, "steady.py") as other:
        looked_at(tracer, tmp_path, target, other)


@pytest.mark.versions("3.11")
def test_hung_runtime(tracer, hung, python, tmp_path):
    """An interpreter whose variables cannot be read is told as one, or not at all."""
    program = compiled(tmp_path / "hung_runtime", "hung_runtime.c", "-ldl")
    library = mapped(python, "libpython")
    with Target(program, None, library, hung / "hung") as target:
        for command in ("list", "heap", "memory", "leaks", "trace"):
            chosen = [] if command == "list" else ["-p", str(target.pid)]
            chosen += ["-d", "1"] if command in ("leaks", "trace") else []
            done = subprocess.run(
                [tracer, command, *chosen],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=BOUND,
                env=environment(),
            )
            assert done.returncode in (0, 1) and (done.stderr or done.stdout), (command, done)
        assert state(target.pid) == "S"


def test_answering_file(tracer, hung, tmp_path, undisturbed):
    """An interpreter on a file system that others serve is traced as any other."""
    with Target(str(hung / "good"), "steady.py") as target:
        with Traced(tracer, tmp_path, "-p", target.pid, "-m", "exact") as run:
            assert text_differs(target.pid, str(hung / "good"))
            target.step()
            target.step()
            truth = target.expect()
            assert run.finish().line("steady.py", "A") == truth["A"]
        wait_until(lambda: not text_differs(target.pid), "the probes are gone")


@pytest.mark.versions("3.11")
def test_tracer_hangs(tracer, hung, python, tmp_path, undisturbed):
    """A tracer that hangs for good, in a write of its own output, is killed: it cannot end, but its
    probes are removed."""
    with Target(python, "steady.py") as target:
        with open(hung / "hung", "r+b", buffering=0) as output:
            process = subprocess.Popen(
                [tracer, "--overhead=0", "-p", str(target.pid), "-i", "0.3"],
                stdout=output,
                stderr=subprocess.DEVNULL,
                stdin=subprocess.DEVNULL,
                env=environment(),
            )
        wait_until(lambda: waits_for_answer(process.pid), "the tracer hangs")
        assert text_differs(target.pid)
        process.send_signal(signal.SIGKILL)
        wait_until(lambda: not text_differs(target.pid), "the probes are gone", BOUND)
        assert state(process.pid) == "D"
        target.finish()


@pytest.mark.versions("3.11")
def test_forged_arenas(tracer, python, tmp_path):
    """A heap that claims 200,000 arenas, all in the same place: each is read once."""
    with Target(python, "forged_heap.py", 200000, "full", "now") as target:
        target.step()
        target.read_until("forged")
        with Traced(tracer, tmp_path, "-p", target.pid) as run:
            run.interrupt()
            assert run.wait(BOUND) == 0, run.stderr
        lost = 199999 * 64  # pools
        found = re.search(r"pools that could not be read: ([\d,]+)", run.stdout)
        assert found and int(found[1].replace(",", "")) == lost, run.stdout


def test_forged_malloc(tracer, tmp_path):
    """Heaps of malloc that are all the same memory, full of the smallest chunks."""
    program = compiled(tmp_path / "forged_malloc", "forged_malloc.c", "-O1")
    with Target(program, None, 4) as target:
        done = subprocess.run(
            [tracer, "memory", "-p", str(target.pid)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=BOUND,
            env=environment(),
            check=True,
        )
        assert b"claim more memory than the process has" in done.stdout, done.stdout.decode()


def test_locked_memory(tracer, own_python, debian_python, tmp_path, undisturbed):
    """A target that keeps its mmap lock is not waited for: it is refused with the reason. So is one
    of the same interpreter, whose probes would wait for that lock. A target beside them, of another
    interpreter, is traced."""
    reason = "keeps its memory map locked"
    # Its files are its own: the tests beside this one need not wait, too.
    python, env = own_python("3.11")
    with Target(python, "lock_holder.py", 4, 3, env=env) as locked, Target(
        python, "steady.py", env=env
    ) as same, Target(debian_python, "steady.py") as other:
        every = "%d,%d,%d" % (locked.pid, same.pid, other.pid)
        with Traced(tracer, tmp_path, "-p", every, "-m", "exact", "-d", "2") as run:
            other.step()
            assert run.wait(BOUND) == 0, run.stderr
            assert re.search(r"PID %d\b.*%s" % (locked.pid, reason), run.stderr), run.stderr
            waits = r"PID %d: PID %d %s: .* ms for each of \d+ probes"
            assert re.search(waits % (same.pid, locked.pid, reason), run.stderr), run.stderr
            assert re.findall(r"attached to PID (\d+)", run.stderr) == [str(other.pid)]
            assert not losses(run)
        wait_until(lambda: not text_differs(other.pid), "the probes are gone")
        for command in ("memory", "heap"):
            done = subprocess.run(
                [tracer, command, "-p", str(locked.pid)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=BOUND,
                env=environment(),
                check=False,
            )
            assert reason in done.stderr.decode(), done.stderr.decode()


@pytest.mark.versions("3.11")
@pytest.mark.parametrize("end", ["its time", "SIGKILL"])
def test_locked_at_the_end(tracer, own_python, tmp_path, undisturbed, end):
    """A target that takes its mmap lock once it is traced: the tracer ends, and says what is still
    to be removed. The probes of a target beside it are gone once the lock is let go."""
    python, env = own_python("3.11")
    with Target(python, "lock_holder.py", 4, 3, env=env) as locked, Target(
        python, "steady.py", env=env
    ) as same:
        os.kill(locked.pid, signal.SIGSTOP)
        both = "%d,%d" % (same.pid, locked.pid)
        with Traced(tracer, tmp_path, "-p", both, "-m", "exact", "-d", "2") as run:
            run.wait_attached(2)
            assert text_differs(same.pid)
            os.kill(locked.pid, signal.SIGCONT)
            same.step()
            if end == "SIGKILL":
                run.process.kill()
                run.process.wait(BOUND)
            else:
                assert run.wait(BOUND) == 0, run.stderr
                told = r"still to be removed: PID %d keeps its memory map locked" % locked.pid
                assert re.search(told, run.stderr), run.stderr
                assert not losses(run)
        assert text_differs(same.pid)
        locked.kill()
        wait_until(lambda: not text_differs(same.pid), "the probes are gone")
        same.finish()
