# SPDX-License-Identifier: Apache-2.0
"""The image of `make image`, in real container runtimes, and what docs/containers.md says of it."""
import json
import os

import pytest

import containers
import harness
from conftest import IMAGE, PROGRAM, ROOT, check_traced, make_image, trace

SIZE_MAX = 40 << 20
# As in docs/containers.md. Docker 20.10 knows no CAP_BPF and no CAP_PERFMON.
SYS_ADMIN, SYS_PTRACE = "--cap-add=SYS_ADMIN", "--cap-add=SYS_PTRACE"
READ_SEARCH = "--cap-add=DAC_READ_SEARCH"
LEAST = ("--read-only", "--cap-drop=ALL", SYS_ADMIN, SYS_PTRACE, READ_SEARCH)
BY_NAME = (*LEAST, "--cap-add=BPF", "--cap-add=PERFMON")


@pytest.fixture(scope="module")
def docker(static, tmp_path_factory):
    try:
        daemon = containers.Docker(tmp_path_factory.mktemp("docker"))
    except containers.Unavailable as why:
        pytest.skip(str(why))
    with daemon:
        make_image(daemon)
        daemon.load([harness.pythons.DISTRIBUTION])
        yield daemon


@pytest.fixture(scope="module")
def podman(docker, tmp_path_factory):
    """It has the same image."""
    folder = tmp_path_factory.mktemp("podman")
    try:
        runtime = containers.Podman(folder)
    except containers.Unavailable as why:
        pytest.skip(str(why))
    archive = str(folder / "image")
    docker.run("save", "-o", archive, IMAGE)
    runtime.run("load", "-i", archive)
    return runtime


@pytest.fixture(scope="module")
def target(docker):
    """A container, web-1, whose Python keeps blocks on a marked line, as a user of its own."""
    options = ("--user=1000",)
    with docker.start(
        harness.pythons.DISTRIBUTION, PROGRAM, name="web-1", options=options
    ) as target:
        target.step()
        yield target
        docker.kill(target)


def test_image(docker):
    (image,) = json.loads(docker.run("image", "inspect", IMAGE))
    labels = image["Config"]["Labels"]
    version = trace(docker, (), "--version").stdout.split()[:2]
    assert image["Size"] <= SIZE_MAX
    assert version == ["tracer", labels["org.opencontainers.image.version"]]
    assert labels["org.opencontainers.image.title"] == "tracer"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_least(docker, target):
    check_traced(trace(docker, ("--pid=host", *LEAST), "-m", "census", "-p", target.pid, "-d", "1"))


def test_container_by_name(docker, target):
    """Docker's state is found at its daemon, so that nothing is mounted."""
    check_traced(trace(docker, ("--pid=host", *LEAST), "-m", "census", "-c", "web-1", "-d", "1"))


def test_heap(docker, target):
    """No probe is placed."""
    options = ("--pid=host", "--cap-drop=ALL", SYS_PTRACE, READ_SEARCH)
    done = trace(docker, options, "heap", "-p", target.pid)
    assert done.returncode == 0 and "bytes: own size=" in done.stdout, done.stderr


@pytest.mark.parametrize("options", (BY_NAME, ("--privileged",)), ids=("by name", "privileged"))
def test_podman(podman, target, options):
    done = trace(podman, ("--pid=host", *options), "-m", "census", "-p", target.pid, "-d", "1")
    check_traced(done)


def lacks_capabilities():
    with open("/proc/sys/kernel/cap_last_cap") as file:
        every = (2 << int(file.read())) - 1
    with open("/proc/self/status") as file:
        bounds = [line.split()[1] for line in file if line.startswith("CapBnd:")]
    return int(bounds[0], 16) & every != every


@pytest.mark.skipif(
    lacks_capabilities(), reason="root lacks capabilities here, so Docker's --privileged fails"
)
def test_privileged(docker, target):
    options = ("--pid=host", "--privileged")
    check_traced(trace(docker, options, "-m", "census", "-p", target.pid, "-d", "1"))


@pytest.mark.parametrize(
    "options, why, remedy",
    (
        (LEAST, "PID namespace", "--pid=host"),
        (("--pid=host", "--cap-drop=ALL", SYS_PTRACE), "CAP_BPF", "--cap-add SYS_ADMIN"),
        (("--pid=host", "--cap-drop=ALL", SYS_ADMIN), "CAP_SYS_PTRACE", "--cap-add SYS_PTRACE"),
        (
            ("--pid=host", "--cap-drop=ALL", SYS_ADMIN, SYS_PTRACE),
            "CAP_DAC_READ_SEARCH",
            "--cap-add DAC_READ_SEARCH",
        ),
        (("--pid=host",), "CAP_BPF", "--privileged --pid=host"),
    ),
    ids=("PID namespace", "SYS_ADMIN", "SYS_PTRACE", "DAC_READ_SEARCH", "nothing"),
)
def test_what_is_missing(docker, target, options, why, remedy):
    """One line says it, with its remedy."""
    line = harness.error_line(trace(docker, options, "-p", target.pid, "-d", "1"), 1)
    assert why in line and remedy in line


def test_documented():
    """The capabilities in docs/containers.md are those of these tests."""
    with open(os.path.join(ROOT, "docs", "containers.md")) as file:
        text = file.read()
    for options in (LEAST, ("--privileged",)):
        words = " ".join(options).replace("=", " ")
        assert "--pid=host " + words in text
