# SPDX-License-Identifier: Apache-2.0
"""--by greenlet: the greenlet that has allocated what is alive, against a program that counts."""
import subprocess

import pytest

from harness import error_line, marked_line, read_report, wait_until

LINE = "*/greenlet_owners.py:%d" % marked_line("greenlet_owners.py", "K")
KINDS = "greenlet", "gevent", "eventlet"


def finished(target, run, late=False):
    target.step()
    if late:
        target.read_until("switched")
        wait_until(lambda: "found what --by asks for" in run.stderr, "the greenlets are found")
        target.step()
    live = {name: tuple(pair) for name, pair in target.expect().items()}
    whole = run.finish()
    assert whole.lost_events == 0 and whole.data["not_seen"]["records_malformed"] == 0
    chosen = "--by", "greenlet", "--include", LINE, "--top", 0
    report = read_report(run.tracer, run.snapshot, *chosen)
    assert report.data["by"] == "value" and report.data["label"] == "greenlet"
    assert {row["value"]: (row["size"], row["count"]) for row in report.statistics} == live


@pytest.mark.whole
@pytest.mark.parametrize("mode", ("exact", "census"))
@pytest.mark.parametrize("kind", KINDS)
def test_greenlets(start, trace, debian_python, kind, mode):
    target = start(debian_python, "greenlet_owners.py", kind)
    run = trace("-v", "-p", target.pid, "-m", mode, "--by", "greenlet")
    finished(target, run)


@pytest.mark.whole
@pytest.mark.root_versions(since="3.13", before="3.15")
@pytest.mark.parametrize("kind", KINDS)
def test_newer(start, trace, root_python, kind):
    """Newer greenlets, of Debian 13 and testing; testing's are built for two versions of CPython."""
    prefix = "chroot", root_python.root
    found = subprocess.run([*prefix, root_python.path, "-c", "import " + kind], stderr=-3)
    if found.returncode:
        pytest.skip("%s of this root file system has no %s" % (root_python.path, kind))
    target = start(root_python.path, "greenlet_owners.py", kind, prefix=prefix)
    run = trace("-v", "-p", target.pid, "-m", "census", "--by", "greenlet")
    finished(target, run)


@pytest.mark.parametrize("kind", KINDS)
def test_late(start, trace, debian_python, kind):
    target = start(debian_python, "greenlet_owners.py", kind, "late")
    run = trace("-v", "-p", target.pid, "--by", "greenlet")
    assert "it has not imported greenlet yet" in run.stderr
    finished(target, run, late=True)


def test_refused(run_tracer, start, debian_python):
    target = start(debian_python, "greenlets_forged.py")
    error = error_line(run_tracer("-p", target.pid, "--by", "greenlet"), 1)
    assert "its greenlet does not have its current greenlet in thread-local storage" in error
    target.step()
    assert target.finish() == 0
