# SPDX-License-Identifier: Apache-2.0
"""Counts of blocks in targets whose allocators do more, or less, than pymalloc alone."""
import subprocess

import pytest

from harness import environment, program

WITHOUT_POOLS = ("malloc", "malloc_debug")


def check_exact(report, live):
    assert report.data["mode"] == "exact"
    assert report.marked("golden.py", live) == live
    assert report.data.get("warnings", []) == []
    assert report.total["size"] <= report.data["peak_size"]
    assert "temporary_count" in report.total


@pytest.mark.versions()
@pytest.mark.parametrize("allocator", WITHOUT_POOLS)
def test_without_pools(start, trace, python, allocator):
    """Without pymalloc each free is seen: census mode is exact, and no heap has to be read."""
    target = start(python, "golden.py", env=environment(PYTHONMALLOC=allocator))
    run = trace("-p", target.pid, "-m", "census")
    target.step()
    live = target.expect()
    check_exact(run.finish(), live)


@pytest.mark.parametrize("allocator", WITHOUT_POOLS)
def test_without_pools_from_start(trace, debian_python, allocator):
    env = environment(PYTHONMALLOC=allocator)
    run = trace(
        "-m", "census", "--", debian_python.path, program("golden.py"), stdin=subprocess.PIPE, env=env
    )
    run.step()
    live = run.expect()
    run.step()
    assert run.wait() == 0, run.stderr
    check_exact(run.report(), live)
