# SPDX-License-Identifier: Apache-2.0
"""Figures that programs and allocators report about themselves, and the tolerance for the tracer's
figures."""
import glob
import os
import shutil

import pytest

import pythons

WITHIN = 0.001
# Allocators count the blocks in a thread's cache as live. A block that is mapped separately takes
# whole pages.
PLAIN = {
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0:glibc.malloc.mmap_max=0",
    "MALLOC_CONF": "tcache:false",
}


def tool(name, *places):
    """The path of a tool: from PATH, or from one of the glob patterns. A link to ccache, which runs
    another one of that name, is not it."""
    folders = [*os.environ["PATH"].split(os.pathsep), "/usr/sbin", "/sbin"]
    found = [
        p
        for p in [
            *(shutil.which(name, path=folder) for folder in folders),
            *(p for pattern in places for p in sorted(glob.glob(pattern))),
        ]
        if p and os.path.basename(os.path.realpath(p)) != "ccache"
    ]
    return found[0] if found else pytest.skip("this machine has no " + name)


def library(name):
    found = sorted(glob.glob("/usr/lib/*/" + name))
    return found[0] if found else pytest.skip("this machine has no " + name)


# The machine's own libraries, and those of root file systems (tests/machines/roots.py).
MIMALLOC = ["libmimalloc.so.2", "libmimalloc.so.3", "trixie", "testing"]


def mimalloc_library(name):
    places = ["/usr/lib/x86_64-linux-gnu/" + name]
    for root in pythons.roots():
        if os.path.basename(root) == name:
            places = glob.glob(root + "/usr/lib/x86_64-linux-gnu/libmimalloc.so.3")
    found = [path for path in places if os.path.exists(path)]
    return found[0] if found else pytest.skip("there is no %s of mimalloc here" % name)


def expect_close(ours, truth, what):
    assert truth > 0, what
    share = abs(ours - truth) / truth
    print(
        "%s: ours %d, truth %d, %.4f %% apart" % (what, ours, truth, 100 * share)
    )  # shown by pytest -rP
    assert share <= WITHIN, "%s: ours %d, truth %d" % (what, ours, truth)


def expect_nothing_lost(report):
    not_seen = report.data["not_seen"]
    assert (
        report.lost_events == 0 and not_seen["replaced"] == 0 and not_seen["missing_returns"] == 0
    ), not_seen
