# SPDX-License-Identifier: Apache-2.0
"""Native stacks beside perf's of the same requests: the quick ones of tools/stacks, which `make
stacks` runs for all its programs."""
import os
import shutil
import subprocess
import sys

import pytest

from harness import ROOT, TIMEOUT

TABLE = os.path.join(ROOT, "tools", "stacks", "stacks_table.py")


@pytest.mark.parametrize(
    "name", ("sqlite3", "C\\+\\+, exceptions", "musl, static", "python3 \\(stripped\\)")
)
def test_as_perf(tracer, name):
    """Exit status 1: less than 99 of 100 stacks are whole, or equal perf's. Of Python the native
    frames of an extension module that allocates as soon as it is mapped are among them."""
    for needed in ("perf", "sqlite3", "musl-gcc", "g++", "objdump", "readelf", "/usr/bin/python3"):
        if not shutil.which(needed):
            pytest.skip("this machine has no " + needed)
    done = subprocess.run(
        [sys.executable, TABLE, "--only", name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ, TRACER=tracer),
        timeout=4 * TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    cells = [cell.strip() for cell in done.stdout.splitlines()[-1].split("|")]
    assert int(cells[2].replace(",", "")) >= 1000, done.stdout  # requests
    assert int(cells[6].split()[0].replace(",", "")) >= 1000, done.stdout  # perf's
