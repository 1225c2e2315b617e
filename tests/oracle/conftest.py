# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the comparison with Python's own tracemalloc: no root, no kernel, only files."""
import concurrent.futures
import json
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "tools"), os.path.join(ROOT, "tests")]

import pythons  # noqa: E402
import schemas  # noqa: E402

TIMEOUT = 120
TAKEN_BY = ("3.8", "3.11", "3.13")
FRAMES = (1, 25)
# Groupings of statistics: (group_by, cumulative).
GROUPS = [
    ("filename", False),
    ("lineno", False),
    ("traceback", False),
    ("filename", True),
    ("lineno", True),
]


def environment():
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    env.update(PYTHONHASHSEED="0", PYTHONDONTWRITEBYTECODE="1", LC_ALL="C.UTF-8", NO_COLOR="1")
    return env


@pytest.fixture(scope="session")
def interpreters():
    """{version: path} of every CPython from 3.8 on."""
    found = dict(pythons.unstripped())
    distribution = pythons.distribution()
    if distribution:
        found.setdefault(pythons.version_of(distribution), distribution)
    if not found:
        pytest.skip("no CPython on this machine")
    return found


@pytest.fixture(scope="session")
def ask(interpreters):
    """ask(jobs, version=None): tracemalloc's results, by default those of the newest version."""

    def run(jobs, version=None):
        path = interpreters[
            version or max(interpreters, key=lambda v: tuple(map(int, v.split("."))))
        ]
        done = subprocess.run(
            [path, "-I", os.path.join(HERE, "oracle.py")],
            input=json.dumps(jobs).encode(),
            stdout=subprocess.PIPE,
            env=environment(),
            timeout=TIMEOUT,
        )
        assert done.returncode == 0
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="session")
def snapshots(interpreters, tmp_path_factory):
    """{name: path} of snapshots that tracemalloc itself took; a name begins with the version."""
    files = {}
    for version in TAKEN_BY:
        if version not in interpreters:
            continue
        for frames in FRAMES:
            folder = str(tmp_path_factory.mktemp("taken-%s-%d-" % (version, frames)))
            subprocess.run(
                [interpreters[version], "-I", os.path.join(HERE, "take.py"), folder, str(frames)],
                check=True,
                env=environment(),
                timeout=TIMEOUT,
            )
            for name in sorted(os.listdir(folder)):
                files["%s-%d-%s" % (version, frames, name.split(".")[0])] = os.path.join(
                    folder, name
                )
    if not files:
        pytest.skip("no CPython %s on this machine" % " or ".join(TAKEN_BY))
    return files


@pytest.fixture(scope="session")
def tracer():
    """tracer(*args, ok=True): its CompletedProcess, with the output as bytes."""
    path = os.path.abspath(os.environ.get("TRACER", os.path.join(ROOT, "build", "tracer")))
    assert os.access(path, os.X_OK), "%s is not there: run make" % path

    def run(*args, ok=True):
        done = subprocess.run(
            [path, *map(str, args)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=TIMEOUT,
        )
        if ok:
            assert done.returncode == 0, done.stderr.decode()
        if len(done.stdout) < 20000:  # the long ones are like them
            schemas.check(args, done.stdout.decode(errors="replace"))
        return done

    return run


@pytest.fixture(scope="session")
def each():
    """each(function, items): the results, computed on all processors."""

    def run(function, items):
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(function, items))

    return run
