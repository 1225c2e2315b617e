# SPDX-License-Identifier: Apache-2.0
"""Compares what the tracer reports about a program with what the interpreter or the program reports
about itself. The results are shares by which the figures differ.

python is an interpreters.Python: any build, in any root file system.
"""
import json
import os
import shutil
import subprocess

import harness

# sizeof(trace_t), of which tracemalloc allocates one for each block that it knows.
TRACE_BYTES = 16
PROGRAM, WORK = "by_line.py", "by_line_work.py"
OBJECTS = 20000
POOL_SLACK = 2  # one pool that another line began, and one pool that began for another line


def target_of(python, name, *args, **options):
    """A Target that runs a copy of a program that the interpreter can access."""
    for copied in (name, WORK):
        shutil.copy(harness.program(copied), python.host_folder)
    return harness.Target(
        python.path, os.path.join(python.folder, name), *args, prefix=python.prefix, **options
    )


def refusal(tracer, python):
    """Why the tracer refuses this interpreter, or None."""
    with target_of(python, "idle.py") as target:
        done = subprocess.run(
            [tracer, "--dry-run", "-p", str(target.pid)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=harness.TIMEOUT,
        )
    return done.stderr.decode().strip().split("\n")[-1] if done.returncode else None


def told_by_tracemalloc(target):
    """{(file, line): (bytes, blocks)} of what the workload keeps. It has done its work."""
    target.step()
    said = target.read_line()
    assert said, target.process.stderr.read().decode().strip()
    return {(file, line): (size, count) for file, line, size, count in json.loads(said)}


def by_tracemalloc(python, work):
    """The same, of a run without the tracer."""
    with target_of(python, PROGRAM, work, "tracemalloc") as target:
        target.step()
        assert target.read_line(), target.process.stderr.read().decode().strip()
        return told_by_tracemalloc(target)


class Run:
    """Runs a program under the tracer until it waits for input again. said: its answer to the one
    line on its stdin; afterwards: what the caller's function makes of the target when it is not
    traced any more."""

    def __init__(self, tracer, folder, python, name, *args, options=(), afterwards=None):
        with target_of(python, name, *args) as target:
            with harness.Traced(tracer, folder, "-p", target.pid, *options) as traced:
                target.step()
                self.said = target.read_line()
                target.wait_reading()
                self.report = traced.finish()
                self.stderr, self.stdout = traced.stderr, traced.stdout
            self.afterwards = afterwards and afterwards(target)
        self.snapshot = traced.snapshot
        self.attach = harness.attach_facts(self.stderr)

    def coverage(self):
        """The share of the new blocks that the trace has seen, or None if it was not measured."""
        coverage = self.report.data["coverage"]
        return coverage["seen_blocks"] / max(coverage["new_blocks"], 1) if coverage else None


class Parity:
    """blocks_off, bytes_off: the share of all kept blocks and bytes that is charged to another line
    than by tracemalloc. together: tracemalloc is on in the run that is traced, for a program that
    does not do the same in each run, such as one that a JIT compiles. What tracemalloc allocates
    for itself then, besides TRACE_BYTES a block, is a traceback for each line: only what the tracer
    lacks at a line counts."""

    def __init__(self, tracer, folder, python, work, options=(), together=False):
        arguments, options = (tracer, folder, python, PROGRAM, work), ("-n", 1, *options)
        if together:
            own = ("tracemalloc", TRACE_BYTES)
            self.run = Run(*arguments, *own, options=options, afterwards=told_by_tracemalloc)
            theirs = self.run.afterwards
            ours = self._lacking(tracer, theirs)
        else:
            theirs = by_tracemalloc(python, work)
            self.run = Run(*arguments, options=options)
            ours = {
                key: pair
                for key, pair in self.run.report.lines().items()
                if os.path.basename(key[0]) != PROGRAM
            }
        self.bytes_off, self.blocks_off = (1 - share for share in harness.agreement(ours, theirs))
        keys = sorted(
            set(ours) | set(theirs),
            key=lambda k: -abs(ours.get(k, (0, 0))[1] - theirs.get(k, (0, 0))[1]),
        )
        self.worst = [(k, ours.get(k), theirs.get(k)) for k in keys[:5]]
        self.blocks = sum(pair[1] for pair in theirs.values())

    def _lacking(self, tracer, theirs):
        """The tracer's lines without what they have more than tracemalloc says."""
        lines = self.run.report.lines()
        own = harness.traces_by_size(tracer, self.run.snapshot)[TRACE_BYTES]
        return {
            key: (
                min(lines.get(key, (0, 0))[0] - own[key] * TRACE_BYTES, size),
                min(lines.get(key, (0, 0))[1] - own[key], count),
            )
            for key, (size, count) in theirs.items()
        }


def off(ours, theirs):
    """The relative error of a figure."""
    return abs(ours - theirs) / max(theirs, 1)


def heap_off(tracer, python):
    """The relative errors of `tracer heap` on objects.py: number of all blocks, and bytes of the
    objects of one type."""
    with target_of(python, "objects.py", OBJECTS, ready=False) as target:
        said = target.read_line()
        assert said, target.process.stderr.read().decode().strip()
        target.wait_reading()
        done = subprocess.run(
            [tracer, "heap", "-p", str(target.pid), "--format", "json", "--top", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=harness.TIMEOUT,
        )
        assert done.returncode == 0, done.stderr.decode()
    heap = json.loads(done.stdout)
    node = sum(s["size"] for s in heap["statistics"] if s["type"] == "Node")
    # Without the GIL, large blocks are on this heap, too, and the number is that of before the wait.
    return off(heap["total"]["count"] + (heap["raw_blocks"] or 0), int(said)), off(
        node, block_bytes(48, hooks_bytes(python)) * OBJECTS
    )


def hooks_bytes(python):
    """Bytes that a debug build adds around each block."""
    return 24 if python.debug else 0


def block_bytes(size, extra):
    return (size + extra + 15) // 16 * 16


def pools_expected(live, pool_size, extra=0):
    """The number of pools for `live`, a pair (bytes, blocks). extra: bytes around each block."""
    size, count = live
    per_pool = (pool_size - 48) // block_bytes(size // count, extra)
    return -(-count // per_pool)


def growth_off(tracer, folder, python):
    """The relative errors of growth mode on growth.py: the pools of its lines, beyond POOL_SLACK,
    and the bytes of its large blocks unless the report states that those are not traced."""
    run = Run(tracer, folder, python, "growth.py", options=("-m", "growth", "--large-blocks"))
    live, pool_size = json.loads(run.said), run.report.data["pool_size"]
    lines = {
        line: size
        for (file, line), (size, _) in run.report.lines().items()
        if file.endswith("growth.py")
    }
    size = {mark: lines.get(harness.marked_line("growth.py", mark), 0) for mark in "ABL"}
    expected = {mark: pools_expected(live[mark], pool_size, hooks_bytes(python)) for mark in "AB"}
    differ = sum(
        max(0, abs(size[mark] // pool_size - expected[mark]) - POOL_SLACK) for mark in "AB"
    )
    large = off(size["L"], live["L"][0]) if run.report.data["large_blocks_traced"] else 0
    return differ / sum(expected.values()), large
