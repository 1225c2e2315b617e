# SPDX-License-Identifier: Apache-2.0
"""Nothing that a target maps or does makes the tracer hang, or leaves probes behind: files whose
file system never answers."""
import os
import signal
import subprocess

import pytest

from harness import Target, Traced, compiled, environment, wait_until
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
def hung(tmp_path, debian_python):
    """A folder with the files "good" and "hung" (hung_files.c)."""
    if not os.path.exists("/dev/fuse"):
        pytest.skip("the kernel has no /dev/fuse")
    server = compiled(tmp_path / "hung_files", "hung_files.c")
    folder = tmp_path / "mount"
    folder.mkdir()
    try:
        with Target(server, None, folder, os.path.realpath(debian_python.path)):
            yield folder
    finally:
        subprocess.run(["umount", "-l", folder], stderr=subprocess.DEVNULL)


def losses(run):
    return [line for line in run.stdout.split("\n") if "lost" in line]


@pytest.mark.versions("3.11")
def test_mapped_file(tracer, hung, python, tmp_path, undisturbed):
    """A target with a hung file as code, beside one without."""
    with Target(python, "hung_maps.py", hung / "hung") as target, Target(
        python, "steady.py"
    ) as other:
        for arguments in (["list"], ["memory", "-p", target.pid], ["heap", "-p", target.pid]):
            subprocess.run(
                [tracer, *map(str, arguments)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=BOUND,
                env=environment(),
            )
        with Traced(tracer, tmp_path, "-p", target.pid, "-p", other.pid, "--layer", "all") as run:
            assert text_differs(other.pid)
            other.step()
            run.interrupt()
            assert run.wait(BOUND) == 0, run.stderr
            assert "its file system does not answer" in run.stderr
            assert not [line for line in losses(run) if "no event lost" not in line]
        assert not text_differs(other.pid)


def test_answering_file(tracer, hung, tmp_path, undisturbed):
    """An interpreter on a file system that others serve is traced as any other."""
    with Target(str(hung / "good"), "steady.py") as target:
        with Traced(tracer, tmp_path, "-p", target.pid, "-m", "exact") as run:
            assert text_differs(target.pid, str(hung / "good"))
            target.step()
            target.step()
            truth = target.expect()
            assert run.finish().line("steady.py", "A") == truth["A"]
        assert not text_differs(target.pid)


@pytest.mark.versions("3.11")
def test_tracer_hangs(tracer, hung, python, tmp_path, undisturbed):
    """A tracer that hangs for good, in a write of its own output, is killed: it cannot end, but its
    probes are removed."""
    with Target(python, "steady.py") as target:
        with open(hung / "hung", "r+b", buffering=0) as output:
            process = subprocess.Popen(
                [tracer, "-p", str(target.pid), "-i", "0.3"],
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
