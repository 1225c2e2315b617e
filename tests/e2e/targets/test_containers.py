# SPDX-License-Identifier: Apache-2.0
"""Targets in real containers, under Docker's default seccomp profile."""
import pytest

import containers
from harness import wait_until

pytestmark = pytest.mark.usefixtures("undisturbed")


@pytest.fixture(scope="module")
def docker(tmp_path_factory):
    pythons = containers.harness.pythons
    paths = [path for path in (pythons.newest(), pythons.distribution()) if path]
    if not paths:
        pytest.skip("no CPython on this machine")
    try:
        daemon = containers.Docker(tmp_path_factory.mktemp("docker"))
    except containers.Unavailable as why:
        pytest.skip(str(why))
    with daemon:
        daemon.load(paths)
        yield daemon


def check(docker, trace, run_tracer, python, backend):
    """The seccomp filter does not know the system calls of probes. The target is traced, or refused
    if the kernel would kill it."""
    with docker.start(python, "golden.py") as target:
        with open("/proc/%d/status" % target.pid) as status:
            assert "Seccomp:\t2\n" in status.read(), "the container has no seccomp filter"
        name = docker.run("inspect", "-f", "{{.Name}}", target.container).lstrip("/")
        assert name + " (docker)" in run_tracer("list").stdout
        run = trace("-p", target.pid, "--backend", backend, attached=False)
        wait_until(
            lambda: "attached to" in run.stderr or run.process.poll() is not None,
            "it has attached, or refused to",
        )
        target.step()
        live = target.expect()
        if run.process.poll() is None:
            report = run.finish()
            assert report.marked("golden.py", live) == live
            assert report.lost_events == 0
        else:
            assert run.process.returncode == 1 and "seccomp" in run.stderr
        assert target.finish() == 0, "the target was harmed"


@pytest.mark.parametrize("backend", ("session", "multi"))
def test_symbols(docker, trace, run_tracer, any_python, backend):
    check(docker, trace, run_tracer, any_python, backend)


def test_stripped(docker, trace, run_tracer, debian_python):
    check(docker, trace, run_tracer, debian_python, "session")
