# SPDX-License-Identifier: Apache-2.0
"""Native stacks of a program that notes its own return addresses: code without frame pointers,
realigned stacks, frames of any size, libc's and libraries' frames between, signal handlers,
contexts, threads, libraries that come and go, forks. No frame is wrong."""
import collections
import os
import platform
import re
import shutil
import subprocess
import time

import pytest

from harness import compiled

PROGRAM = "stack_truth"
FLAGS = (
    "-O2",
    "-g0",
    "-s",
    "-fomit-frame-pointer",
    "-fno-stack-clash-protection",
    "-Wno-infinite-recursion",
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("truth")
    source = PROGRAM + ".c"
    library = compiled(folder / "libtruth.so", source, *FLAGS, "-shared", "-fPIC", "-DLIBRARY")
    return compiled(folder / PROGRAM, source, *FLAGS), library


def code_maps(pid, name="/" + PROGRAM):
    with open("/proc/%d/maps" % pid) as file:
        fields = [line.split() for line in file]
    for field in fields:
        if "x" in field[1] and field[-1].endswith(name):
            start, end = (int(text, 16) for text in field[0].split("-"))
            yield start, end, int(field[2], 16)


def names(addresses, maps):
    """The return addresses in the program, as reports name them."""
    for address in addresses:
        for start, end, offset in maps:
            if start < address <= end:
                yield "[%s+0x%x]" % (PROGRAM, address - 1 - start + offset)


def read_truth(target):
    """{stack: blocks}. A stack is what the program has noted: of each of its functions that one of
    its functions called, the return address."""
    maps, truth = list(code_maps(target.pid)), collections.Counter()
    while True:
        line = target.read_line()
        if line == "end":
            return truth
        addresses = [int(text, 16) for text in line.split()[1:]]
        truth[tuple(names(addresses, maps))] += 1


def noted(traceback):
    """The frames of a traceback that the program must have noted: not those that called into
    another file, whose functions note nothing."""
    own = [frame.get("function", "").startswith("[%s+" % PROGRAM) for frame in traceback]
    return tuple(
        frame["function"] for i, frame in enumerate(traceback) if i and own[i] and own[i - 1]
    )


def read_seen(report):
    """The same as the tracer saw it."""
    seen = collections.Counter()
    for entry in report.statistics:
        frames = entry["traceback"]
        if frames[0].get("function", "").startswith("[%s+" % PROGRAM):
            seen[noted(frames)] += entry["count"]
    return seen


def run_scenes(start, trace, files, *scenes, options=()):
    target = start(files[0], None, files[1], *scenes)
    run = trace("-p", target.pid, "--layer", "native", "-n", 128, *options)
    target.step()
    truth = read_truth(target)
    report = run.finish("--group-by", "traceback", "--no-skip")
    assert report.lost_events == 0
    return truth, read_seen(report), report.data["stacks"]


def innermost(stacks, limit=40):
    """Of 128 frames that the tracer keeps some are noted by nobody."""
    short = collections.Counter()
    for stack, count in stacks.items():
        short[stack[:limit]] += count
    return short


@pytest.mark.parametrize(
    "scene", ("calls", "deep", "threads", "signals", "contexts", "jumps", "libraries", "huge")
)
def test_every_frame_is_right(start, trace, files, scene):
    truth, seen, stacks = run_scenes(start, trace, files, scene)
    assert sum(truth.values()) >= 40
    assert not innermost(truth) - innermost(seen)
    # What the scenes request themselves they have not noted.
    assert sum(seen.values()) - sum(truth.values()) <= 2
    assert stacks["cut"] == 0, stacks


@pytest.fixture(scope="module")
def files_apart(tmp_path_factory):
    """The same without .eh_frame: what describes the code is in debug files, which name nothing."""
    folder = tmp_path_factory.mktemp("apart")
    flags = [flag for flag in FLAGS if flag not in ("-g0", "-s")]
    flags += ["-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]
    source = PROGRAM + ".c"
    library = compiled(folder / "libtruth.so", source, *flags, "-shared", "-fPIC", "-DLIBRARY")
    path = compiled(folder / PROGRAM, source, *flags)
    (folder / ".debug").mkdir()
    for name in (library, path):
        debug = str(folder / ".debug" / os.path.basename(name)) + ".debug"
        for command in (
            ("objcopy", "--only-keep-debug", "--remove-section=.debug_[!f]*", name, debug),
            ("strip", "--strip-unneeded", "--keep-section=.debug_frame", debug),
            ("objcopy", "--compress-debug-sections=zlib-gabi", debug),
            ("strip", "--strip-all", name),
            ("objcopy", "--add-gnu-debuglink=" + debug, name),
        ):
            subprocess.run(command, check=True)
    return path, library


def test_debug_files_describe_code(start, trace, files_apart):
    truth, seen, stacks = run_scenes(start, trace, files_apart, "calls", "deep")
    assert sum(truth.values()) >= 40
    assert not innermost(truth) - innermost(seen)
    assert stacks["cut"] == 0, stacks


def test_mappings_are_locked(start, trace, files):
    """Another thread changes the mappings all the time, and the tables of all addresses must be
    found again at each block."""
    if tuple(map(int, platform.release().split(".")[:2])) < (6, 1):
        pytest.skip("before 6.1 mappings cannot be read while they are locked")
    truth, seen, stacks = run_scenes(start, trace, files, "locked")
    assert sum(truth.values()) == 200
    assert not innermost(truth) - innermost(seen)
    assert stacks["cut"] == 0, stacks


def test_garbage(start, trace, files):
    """Return addresses that are none: the frames up to them are right, and the stack is cut."""
    truth, seen, stacks = run_scenes(start, trace, files, "garbage")
    assert sum(truth.values()) >= 100
    assert not innermost(truth) - innermost(seen)
    assert stacks["cut"] and set(stacks["reasons"]) == {"not code"}, stacks


def test_plan_names_tables(start, run_tracer, files):
    """--dry-run -v: each mapped file, with the rows of its unwind table."""
    target = start(files[0], None, files[1], "calls")
    plan = run_tracer("--dry-run", "-v", "--layer", "native", "-p", target.pid).stdout
    _, _, tables = plan.partition(": unwind tables\n")
    rows = dict(re.findall(r"^  (/.*): (\d+) rows$", tables, re.M))
    assert int(rows[files[0]]) > 20 and int(rows[files[1]]) > 1
    mapped = {
        line.split(maxsplit=5)[5].strip()
        for line in open("/proc/%d/maps" % target.pid)
        if " r-xp " in line and "/" in line
    }
    assert set(rows) == mapped
    assert re.search(r"^  %d of %d files have one, " % (len(rows), len(rows)), tables, re.M)
    plan = run_tracer("--dry-run", "--layer", "native", "-p", target.pid).stdout
    assert "unwind tables" not in plan


def test_forked_child(start, trace, files):
    """A child whose pages of code are not resident yet."""
    target = start(files[0], None, files[1], "fork", "calls")
    run = trace("-p", target.pid, "--layer", "native", "-n", 128)
    target.step()
    time.sleep(2)  # the session attaches to the child; nothing says so
    target.step()
    truth = read_truth(target)
    report = run.finish("--group-by", "traceback", "--no-skip")
    seen, stacks = read_seen(report), report.data["stacks"]
    assert sum(truth.values()) >= 1000
    assert not innermost(truth) - innermost(seen)
    assert stacks["cut"] == 0, stacks


def test_exec_of_equal_code(trace, tmp_path):
    """Another program with code at the same addresses: what is known of the first does not count."""
    flags = (*FLAGS[:2], *FLAGS[3:], "-static", "-no-pie", "-fno-stack-protector")
    paths = [
        compiled(tmp_path / str(bytes), "stack_twin.c", *flags, "-DFRAME=%d" % bytes)
        for bytes in (1000, 3000)
    ]
    run = trace("--layer", "native", "--", *paths, stdin=subprocess.PIPE)
    run.step()
    run.wait_attached(2)
    run.step()
    run.step()
    assert run.wait() == 0
    report = run.report("--group-by", "traceback", "--no-skip")
    stacks = [
        [frame.get("function", "") for frame in entry["traceback"]]
        for entry in report.statistics
        if entry["count"] == 200
    ]
    assert len(stacks) == 2 and stacks[0] == stacks[1], stacks
    assert stacks[0][:3] == ["inner", "middle", "main"] and len(stacks[0]) > 3
    assert report.data["stacks"]["cut"] == 0


def test_library_is_loaded_late(start, trace, files, tmp_path):
    """The first stacks through a new file are cut there and counted; its table comes meanwhile."""
    late = str(shutil.copy(files[1], str(tmp_path / "liblate.so")))
    target = start(files[0], None, files[1], late)
    run = trace("-p", target.pid, "--layer", "native", "-n", 128)
    target.step()
    first = read_truth(target)
    time.sleep(0.5)
    target.step()
    second = read_truth(target) - first
    report = run.finish("--group-by", "traceback", "--no-skip")
    seen, stacks = read_seen(report), report.data["stacks"]
    assert not second - seen
    assert set(stacks["reasons"]) <= {"no table"}
    for stack in seen - first - second:
        assert any(stack == true[: len(stack)] for true in first)


def test_interrupted_loop(start, trace, files):
    """A signal that interrupts a loop at no call: until the file's table of all rows is loaded the
    frames up to it are right, and the stack is counted as cut there."""
    truth, seen, stacks = run_scenes(start, trace, files, "interrupts")
    assert sum(truth.values()) == sum(seen.values()) >= 20
    (true,) = truth
    for stack in seen:
        assert stack == true[: len(stack)]
    if stacks["cut"]:
        assert set(stacks["reasons"]) == {"interrupted by a signal"}
        assert list(stacks["files"]) == [files[0]]


def read_interrupted(target, maps):
    """{stack: blocks}, by libgcc's unwinder. A stack is a name for each of the program's own
    frames, else "", without the handler's: it makes another call there."""
    told = collections.Counter()
    for line in iter(target.read_line, "end"):
        stack = []
        for text in line.split()[2:]:
            # An interrupted address is the frame's own, the others are return addresses.
            address = int(text.lstrip("@"), 16) - (not text.startswith("@"))
            own = [begin for begin in maps if begin[0] <= address < begin[1]]
            stack += ["[interrupted+0x%x]" % (address - b + offset) for b, _, offset in own] or [""]
        told[tuple(stack)] += 1
    return told


@pytest.mark.parametrize("flags", (("-fomit-frame-pointer",), ("-fno-omit-frame-pointer",)))
def test_interrupted_anywhere(start, trace, tmp_path, flags):
    """A signal's handler allocates, whatever instruction the signal has interrupted."""
    path = compiled(tmp_path / "interrupted", "interrupted.c", "-O2", "-g0", "-s", *flags)
    target = start(path, None)
    maps = list(code_maps(target.pid, "/interrupted"))
    run = trace("-p", target.pid, "--layer", "native", "-n", 128)
    target.step()
    first = read_interrupted(target, maps)
    time.sleep(1)  # the tables of all rows are being loaded
    target.step()
    second = read_interrupted(target, maps)
    report = run.finish("--group-by", "traceback", "--no-skip")
    seen = collections.Counter()
    for entry in report.statistics:
        frames = [frame for frame in entry["traceback"] if not frame.get("inlined")]
        names = [frame.get("function", "") for frame in frames]
        if names[0].startswith("[interrupted+"):
            own = (name if name.startswith("[interrupted+") else "" for name in names[1:])
            seen[tuple(own)] += entry["count"]
    assert report.lost_events == 0 and sum(second.values()) == 300
    stacks = report.data["stacks"]
    assert set(stacks.get("reasons", ())) <= {"interrupted by a signal"}, stacks
    prefixes = {stack[:i] for stack in first + second for i in range(len(stack) + 1)}
    wrong = [stack for stack in seen if stack not in prefixes]
    assert not wrong, wrong[:3]
    assert sum((second - seen).values()) <= 3, (second - seen, seen - second)
