# SPDX-License-Identifier: Apache-2.0
"""SIGKILL to the tracer at any moment: no breakpoint byte stays in the target, and the target
continues with correct results.

--kills N: the total number of kills; `make kills` has 500.
"""
import os
import random
import shutil
import signal
import subprocess
import time

import pytest

from cgroups import hierarchy, removed, unique
from harness import Target, Traced, wait_until, write_text
from procfs import code_of, links_holder, text_differs

pytestmark = pytest.mark.usefixtures("undisturbed")

SLOW = 300  # seconds, for a busy kernel and machine
SETTLED = 1.5  # seconds after the attach in which --overhead changes the mode
WORK = 0.05  # seconds after the first code byte changes, while the kernel is still at work
# What the tracer is doing when it is killed, and with which options.
ATTACH = [
    ("-m", "exact"),
    ("--layer", "all"),
    ("--backend", "multi"),
    ("--backend", "perf", "-m", "growth"),
]
MODE = [
    ("-m", "exact", "--overhead", 1),
    ("-m", "exact", "--overhead", 5, "--backend", "multi"),
    ("--window", "20/30"),
]
DETACH = [("-m", "exact"), (), ("--layer", "all"), ("--backend", "multi", "-m", "exact")]
MOMENTS = {"attach": ATTACH, "mode change": MODE, "detach": DETACH, "end": DETACH}


@pytest.fixture
def own_python(tmp_path):
    """A private copy of the interpreter's file: probes of other tracers in the machine's
    interpreter do not affect it."""
    path = os.path.realpath("/usr/bin/python3")
    if not os.path.exists(path):
        pytest.skip("there is no /usr/bin/python3")
    return shutil.copy2(path, tmp_path / os.path.basename(path))


class Killer:
    """Kills tracers of one target. It first measures how long a whole attach and detach take, to
    choose the moments of the kills."""

    def __init__(self, tracer, folder, target):
        self.tracer, self.folder, self.target = tracer, folder, target
        self.random = random.Random(target.pid)
        self.kills = 0
        start = time.monotonic()
        run = self.start("-m", "exact")
        self.attach_takes = time.monotonic() - start
        probed = [path for path, _, got, wanted in code_of(target.pid) if got != wanted]
        assert probed, "no probe is in the code: what is compared here?"
        self.path = probed[0]
        start = time.monotonic()
        run.interrupt()
        assert run.wait() == 0, run.stderr
        self.detach_takes = time.monotonic() - start
        self.wait_clean("a detach")

    def start(self, *options, attached=True):
        return Traced(
            self.tracer,
            self.folder,
            "-p",
            self.target.pid,
            *options,
            attached=attached,
            output=False
        )

    def code(self):
        return [got for _, _, got, _ in code_of(self.target.pid, self.path)]

    def wait_clean(self, after):
        def clean():
            assert self.target.process.poll() is None, (
                "the target died: status %s" % self.target.process.returncode
            )
            return all(got == wanted for _, _, got, wanted in code_of(self.target.pid))

        try:
            wait_until(clean, "no probe is in the code after " + after, SLOW)
        except AssertionError as err:
            # The differences may include another tracer's probes.
            differ = {
                path: text_differs(self.target.pid, path)
                for path, _, got, wanted in code_of(self.target.pid)
                if got != wanted
            }
            raise AssertionError("%s, %d kills: %s" % (err, self.kills, differ)) from err

    def wait_moment(self, run, code, longest):
        """Waits for a random moment of that time, or for one at which the code is being changed."""
        if self.kills % 3 == 0:
            time.sleep(self.random.uniform(0, longest))
            return
        end = time.monotonic() + longest
        while time.monotonic() < end and run.process.poll() is None and self.code() == code:
            pass
        time.sleep(self.random.choice([0, self.random.uniform(0, WORK)]))

    def at(self, moment, options):
        if moment == "end":
            options = ("-d", "0.1", *options)
        code = self.code()
        run = self.start(*options, attached=moment != "attach")
        if moment != "attach":
            code = self.code()
        if moment == "detach":
            run.interrupt()
        longest = {"attach": self.attach_takes, "mode change": SETTLED, "detach": self.detach_takes}
        self.wait_moment(run, code, longest.get(moment, 0.1 + self.detach_takes))
        run.kill()
        self.kills += 1
        self.wait_clean("a kill (%s, %s)" % (moment, " ".join(map(str, options))))


def test_nothing_stays(tracer, tmp_path, own_python, request):
    with Target(own_python, "busy.py") as target:
        killer = Killer(tracer, tmp_path, target)
        while killer.kills < request.config.getoption("--kills"):
            turn, moment = divmod(killer.kills, len(MOMENTS))
            ways = list(MOMENTS.values())[moment]
            killer.at(list(MOMENTS)[moment], ways[turn % len(ways)])
        target.step()
        assert target.expect() == {}
        assert target.finish() == 0, "the target was harmed"


@pytest.fixture
def tracer_in_a_cgroup(tracer, tmp_path):
    """A tracer that runs in a cgroup of its own, and the cgroup's folder."""
    with hierarchy(tmp_path, "v2") as mount:
        folder = os.path.join(mount, unique("tracer-test"))
        os.mkdir(folder)
        path = tmp_path / "inside"
        path.write_text('#!/bin/sh\necho $$ > %s/cgroup.procs\nexec %s "$@"\n' % (folder, tracer))
        path.chmod(0o755)
        yield str(path), folder
        wait_until(lambda: removed(folder), "the cgroup is empty")


def test_all_killed_at_once(tracer_in_a_cgroup, tmp_path, own_python):
    """Nor does any stay if the tracer's control group is killed. The process that holds the links has
    left it, and ends by itself."""
    tracer, folder = tracer_in_a_cgroup
    kill = os.path.join(folder, "cgroup.kill")
    if not os.path.exists(kill):
        pytest.skip("no cgroup.kill before 5.14")
    with Target(own_python, "busy.py") as target:
        killer = Killer(tracer, tmp_path, target)
        for _ in range(2):
            run = killer.start("-m", "exact")
            holder = links_holder(run.pid)
            with open("/proc/%d/cgroup" % holder) as file:
                assert os.path.basename(folder) not in file.read()
            write_text(kill, 1)
            assert run.wait() == -signal.SIGKILL
            killer.wait_clean("its control group was killed")
            run = killer.start("-m", "exact", attached=False)
            killer.wait_moment(run, killer.code(), killer.attach_takes)
            write_text(kill, 1)
            run.wait()
            killer.kills += 1
            killer.wait_clean("its control group was killed while it attached")
        target.step()
        assert target.expect() == {}
        assert target.finish() == 0, "the target was harmed"


# Options of runs whose figures would otherwise continue as if the probes were in place.
HELD = {
    "exact": ("-m", "exact"),
    "census": (),
    "every 50 ms": ("--interval", "0.05"),
    "perfmap": ("perfmap",),
}


@pytest.mark.parametrize("options", HELD.values(), ids=list(HELD))
def test_killed_holder_is_told(tracer, tmp_path, own_python, options):
    """After SIGKILL to the process that holds the probes, the tracer reports what it has seen until
    then, says so in one line, and ends."""
    with Target(own_python, "golden.py") as target:
        with Traced(tracer, tmp_path, *options, "-p", target.pid, output=False) as run:
            os.kill(links_holder(run.pid), signal.SIGKILL)
            assert run.wait() == 1, run.stderr
            told = [line for line in run.stderr.splitlines() if "tracer-links" in line]
            assert (
                len(told) == 1 and "was killed: no probe is in place any more" in told[0]
            ), run.stderr
            assert (
                options == ("perfmap",) or "PID %d" % target.pid in run.stdout
            ), "what was known by then is reported"
        wait_until(lambda: text_differs(target.pid) == 0, "no probe is in the code")
        target.step()
        assert target.expect()
        assert target.finish() == 0, "the target was harmed"


def test_leftovers_are_told_and_go(tracer, tmp_path, own_python):
    """The next session reports breakpoints that were left in the code, and removes them by its
    end."""
    with Target(own_python, "golden.py") as target:
        with Traced(tracer, tmp_path, "-m", "exact", "-p", target.pid) as run:
            places = [
                low + at
                for _, low, got, wanted in code_of(target.pid)
                for at in range(len(got))
                if got[at] != wanted[at]
            ]
            run.finish()
            assert "breakpoints were in its code before" not in run.stderr
        wait_until(lambda: text_differs(target.pid) == 0, "no probe is in the code")
        with open("/proc/%d/mem" % target.pid, "r+b", buffering=0) as memory:
            for place in places[:3]:
                memory.seek(place)
                memory.write(b"\xcc")
        assert text_differs(target.pid) == 3
        assert (
            "PID %d: 3 " % target.pid
            in subprocess.run([tracer, "doctor"], capture_output=True, text=True).stdout
        )
        with Traced(tracer, tmp_path, "-m", "exact", "-p", target.pid) as run:
            assert "PID %d: 3 breakpoints were in its code before" % target.pid in run.stderr
            run.finish()
        wait_until(lambda: text_differs(target.pid) == 0, "no breakpoint is in the code")
        target.step()
        assert target.expect()
        assert target.finish() == 0, "the target was harmed"
