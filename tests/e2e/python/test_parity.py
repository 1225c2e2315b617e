# SPDX-License-Identifier: Apache-2.0
"""Parity: one program, once with tracemalloc on inside, and once under `tracer -- …`, ended at the
same point.

Per line of the program's own files at least 99.9 % of bytes and of blocks must agree. (The measured
figure is 99.96 % or better: programs/python/parity.py describes the differences.) The remaining
differences are a thread's own start-up objects, whose reuse from the free lists depends on the
scheduling of the threads, and sizes that are known only rounded up to a class.
"""
import json
import subprocess

import pytest

import harness
import pythons


def by_tracemalloc(prefix, python, nframe, threads):
    """{(file, line): (bytes, blocks)} by the interpreter's own tracemalloc."""
    done = subprocess.run(
        [
            *prefix,
            python,
            "-X",
            "tracemalloc=%d" % nframe,
            harness.program("parity.py"),
            str(threads),
            "-",
        ],
        env=harness.environment(),
        stdout=subprocess.PIPE,
        check=True,
        timeout=harness.TIMEOUT,
    )
    return {
        (row["filename"], row["lineno"]): (row["size"], row["count"])
        for row in json.loads(done.stdout)
    }


def check(trace, python, nframe, threads, mode="census", prefix=()):
    theirs = by_tracemalloc(prefix, python, nframe, threads)
    files = {key[0] for key in theirs}
    assert {harness.program("parity.py"), harness.program("parity_work.py")} == files
    assert sum(pair[1] for pair in theirs.values()) > 300000

    run = trace(
        "-q",
        "-n",
        nframe,
        "-m",
        mode,
        "--",
        *prefix,
        python,
        harness.program("parity.py"),
        threads,
        "unused",
        attached=False
    )
    assert run.wait() == 0, run.stderr
    report = run.report()
    assert report.lost_events == 0
    ours = {key: pair for key, pair in report.lines().items() if key[0] in files}
    shares = harness.agreement(ours, theirs)
    worst = sorted(
        set(ours) | set(theirs),
        key=lambda k: -abs(ours.get(k, (0, 0))[0] - theirs.get(k, (0, 0))[0]),
    )[:5]
    assert min(shares) >= 0.999, "agreement %s; worst: %s" % (
        shares,
        [(k, ours.get(k), theirs.get(k)) for k in worst],
    )


@pytest.mark.parametrize(
    "nframe, threads",
    [
        (1, 8),
        (25, 1),
        pytest.param(1, 1, marks=pytest.mark.long),
        pytest.param(25, 8, marks=pytest.mark.long),
    ],
)
def test_parity(python, nframe, threads, trace):
    check(trace, python.path, nframe, threads)


@pytest.mark.parametrize("mode", ("census", pytest.param("exact", marks=pytest.mark.long)))
def test_distribution(trace, mode):
    """_Py_NewReference and the allocator are inlined in hundreds of places there."""
    path = pythons.distribution()
    if not path:
        pytest.skip("%s is no stripped distribution CPython" % pythons.DISTRIBUTION)
    check(trace, path, 1, 1, mode)


@pytest.mark.long
@pytest.mark.parametrize("mode", ("census", "exact"))
def test_roots(trace, root_python, mode):
    check(trace, root_python.path, 1, 1, mode, ("chroot", root_python.root))


@pytest.mark.parametrize(
    "mode, allocator, how",
    [
        (["census"], "pymalloc", []),
        (["census"], "pymalloc", ["apart"]),
        (["census"], "pymalloc_debug", []),
        (["census"], "malloc", []),
        (["growth", "--large-blocks"], "pymalloc", []),
        (["exact", "--sample", 1], "pymalloc", []),
    ],
    ids=lambda it: it if isinstance(it, str) else it[0] if it else "together",
)
def test_short_lived_code(python, mode, allocator, how, trace):
    """Successive code objects at the same address are distinguished, also if not every allocation
    is seen."""
    count = 200
    command = ["--", python.path, harness.program("short_lived.py"), count, *how]
    run = trace(
        "-q", "-m", *mode, *command, attached=False, env=harness.environment(PYTHONMALLOC=allocator)
    )
    assert run.wait() == 0, run.stderr
    lines = run.report().lines()
    for i in range(count):
        for line in (("file%d.py" % i, 1), ("same.py", i + 1), ("long%d.py" % i, 1)):
            more = lines.get(line, (0, 0))[0] - 20000 - i
            # Plus a terminating byte and the object itself; or, in growth mode, pools that were
            # first used there.
            assert 0 < (more % 4096 if mode[0] == "growth" else more) < 200, (line, lines.get(line))
