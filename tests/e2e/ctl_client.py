# SPDX-License-Identifier: Apache-2.0
"""A client of a session's control socket."""
import contextlib
import json
import os
import socket

import pytest

from harness import TIMEOUT

PLACE = "/run/tracer"


@pytest.fixture
def ctl(run_tracer):
    """ctl(pid, word, …): the parsed answers of `tracer ctl`. It must print one answer a line."""

    def run(pid, *words):
        done = run_tracer("ctl", "--format", "json", pid, *words)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def socket_of(run):
    return os.path.join(PLACE, "%d.sock" % run.pid)


@contextlib.contextmanager
def connection(run):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(TIMEOUT)
        client.connect(socket_of(run))
        yield client
