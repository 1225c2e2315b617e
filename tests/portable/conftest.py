# SPDX-License-Identifier: Apache-2.0
"""Paths of the modules that make systems, containers and targets, the static tracer, and what tests
of the image share."""
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, *(os.path.join(os.path.dirname(HERE), name) for name in ("e2e", "machines"))]

import harness  # noqa: E402

IMAGE = "tracer"
PROGRAM = "steady.py"  # of the containers that are traced


@pytest.fixture(scope="session")
def static():
    """The path of the static tracer ($TRACER), as `make static` builds it."""
    return harness.tracer_path()


@pytest.fixture(scope="module")
def leaking():
    """tools/demo_leak.py, which runs; its .pid."""
    command = ("/usr/bin/python3", os.path.join(ROOT, "tools", "demo_leak.py"))
    with subprocess.Popen(command) as process:
        yield process
        process.kill()


def make_image(runtime):
    command = ["make", "image", "DOCKER=" + " ".join(runtime.client)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def trace(runtime, options, *words):
    """The image's tracer, in a container with these options."""
    started = ["run", "--rm", "--network=none", *options, IMAGE]
    return subprocess.run(
        [*runtime.client, *started, *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=harness.TIMEOUT,
    )


def check_traced(done):
    assert done.returncode == 0, done.stderr
    assert "%s:%d:" % (PROGRAM, harness.marked_line(PROGRAM, "A")) in done.stdout, done.stdout
