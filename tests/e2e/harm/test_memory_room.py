# SPDX-License-Identifier: Apache-2.0
"""A probe copies a page of the target's text. A target near its memory limit is not killed by
that."""
import os
import re

import pytest

from harness import Target, error_line, memory_cgroup, write_text

# Enough for growth mode's probes only, and enough for any probes. The kernel charges pages to the
# limit ahead of need, 64 for each processor.
ROOM, MORE = 900 << 10, 16 << 20


def peak(_, folder):
    """The most bytes that were charged to its cgroup so far."""
    for name in ("memory.peak", "memory.max_usage_in_bytes"):
        if os.path.exists(os.path.join(folder, name)):
            with open(os.path.join(folder, name)) as file:
                return int(file.read())
    pytest.skip("cgroups have no peak on this kernel")


def resident(pid, _):
    """Bytes that are charged to its cgroup, without the kernel's own memory: anonymous memory."""
    with open("/proc/%d/smaps_rollup" % pid) as file:
        return int(re.search(r"^Anonymous: +(\d+) kB$", file.read(), re.M)[1]) << 10


@pytest.fixture
def cornered(debian_python):
    """cornered(bytes): a Target in a memory cgroup with that much memory left, and the cgroup's
    folder. used(pid, folder): the bytes in use."""
    targets, groups = [], []

    def make(room, program="golden.py", used=resident):
        group = memory_cgroup(1 << 30)
        folder = group.__enter__()
        groups.append(group)
        limit = "memory.max" if os.path.exists(folder + "/memory.max") else "memory.limit_in_bytes"
        inside = ("sh", "-c", 'echo $$ > "$0"/cgroup.procs; exec "$@"', folder)
        target = Target(debian_python, program, prefix=inside)
        targets.append(target)
        target.wait_reading()
        write_text(os.path.join(folder, limit), used(target.pid, folder) + room)
        return target, folder

    yield make
    for target in targets:
        target.kill()
    for group in groups:
        group.__exit__(None, None, None)


def copied(pid):
    """Bytes of its text that are private copies."""
    with open("/proc/%d/smaps" % pid) as file:
        maps = re.split(r"^(?=[0-9a-f]+-)", file.read(), flags=re.M)
    return sum(
        int(re.search(r"^Anonymous: +(\d+) kB$", m, re.M)[1]) << 10
        for m in maps
        if re.match(r"\S+ r-xp .* /", m)
    )


def killed(folder):
    """How many processes the kernel has killed in the cgroup."""
    name = "memory.events" if os.path.exists(folder + "/memory.events") else "memory.oom_control"
    with open(os.path.join(folder, name)) as file:
        return int(re.search(r"^oom_kill (\d+)$", file.read(), re.M)[1])


def probes(stderr):
    return int(re.search(r"; (\d+) probes", stderr)[1])


def test_what_probes_copy(cornered, trace):
    """The probes copy one page of text for each page with a probe. The tracer requires that much
    free memory."""
    target, folder = cornered(MORE)
    run = trace("-p", target.pid)
    assert probes(run.stderr) > 100 and copied(target.pid) > ROOM / 2
    target.step()
    target.expect()
    run.finish()
    assert killed(folder) == 0 and target.finish() == 0


def test_fewer_probes(cornered, trace):
    target, folder = cornered(ROOM)
    run = trace("-p", target.pid)
    assert re.search(
        r"not in census mode: the pages of text that its probes copy want \d+ KiB free, and the cgroup "
        r"\S*tracer-test-\d+ has \d+ KiB left",
        run.stderr,
    ), run.stderr
    assert probes(run.stderr) < 50 and "growth mode" in run.stderr
    run.finish()
    assert killed(folder) == 0 and target.process.poll() is None


def test_trough(cornered, trace):
    """The peak of the cgroup's use counts, too: it may come again."""
    target, folder = cornered(ROOM, "trough.py", peak)
    run = trace("-p", target.pid)
    assert re.search(
        r"not in census mode: .* want \d+ KiB free, and the cgroup \S+ had \d+ KiB left when it "
        "used most",
        run.stderr,
    ), run.stderr
    assert probes(run.stderr) < 50
    run.finish()
    assert killed(folder) == 0 and target.process.poll() is None


def test_refused(cornered, run_tracer):
    """If the mode was requested explicitly, no smaller mode is selected. The target continues."""
    target, folder = cornered(ROOM)
    line = error_line(run_tracer("-p", target.pid, "-m", "census", "-d", "1"), 1)
    assert re.search(
        r"want \d+ KiB free, and the cgroup \S+ has \d+ KiB left; --mode growth has a tenth of them",
        line,
    ), line
    assert killed(folder) == 0 and target.process.poll() is None
