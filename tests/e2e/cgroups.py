# SPDX-License-Identifier: Apache-2.0
"""Cgroup hierarchies for tests, and checks that several target tests share."""
import contextlib
import os
import re
import secrets
import subprocess

import pytest

from harness import wait_until


def unique(name):
    """A name that is not a prefix of any container name on this machine."""
    return "%s-%s" % (name, secrets.token_hex(4))


def check(run, target):
    """The reported figures equal those that the target prints."""
    target.step()
    live = target.expect()
    report = run.finish()
    assert report.marked("golden.py", live) == live
    assert target.finish() == 0


def waits(run):
    wait_until(
        lambda: "no process matches so far; waiting" in run.stderr
        or run.process.poll() is not None,
        "it waits",
    )


def traced_pid(run):
    return int(re.search(r"^tracer: attached to PID (\d+)", run.stderr, re.M).group(1))


# --- cgroups, names, everything -------------------------------------------------------------------


@contextlib.contextmanager
def hierarchy(folder, kind):
    """The mount point of a hierarchy in which cgroups can be created: v2, or a v1 hierarchy without
    controllers."""
    if kind == "v2":
        points = [line.split()[1] for line in open("/proc/mounts") if line.split()[2] == "cgroup2"]
        if not points or not os.access(points[0], os.W_OK):
            pytest.skip("no cgroup v2 that can be written to")
        yield points[0]
        return
    name = unique("tracer")
    folder = folder / "mount"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "cgroup", "-o", "none,name=" + name, "none", folder],
        stderr=subprocess.DEVNULL,
    ).returncode:
        pytest.skip("no cgroup v1 can be mounted")
    try:
        yield str(folder)
    finally:
        subprocess.run(["umount", folder], check=True)


V1_ONLY = """mount -t tmpfs none /sys/fs/cgroup &&
mkdir /sys/fs/cgroup/memory &&
mount -t cgroup -o memory none /sys/fs/cgroup/memory &&
exec "$@\""""


def v1_only():
    """A command prefix that runs a command where only cgroup v1 is mounted, with its memory
    controller."""
    prefix = ("unshare", "-m", "sh", "-c", V1_ONLY, "sh")
    if subprocess.run([*prefix, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("memory is a controller of cgroup v2 here")
    return prefix


def removed(path):
    """A process leaves its cgroup shortly after it has been reaped."""
    try:
        os.rmdir(path)
    except OSError:
        return False
    return True
