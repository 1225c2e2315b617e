# SPDX-License-Identifier: Apache-2.0
"""Parsers for the text that tracer prints."""


def listed(run_tracer, pid):
    done = run_tracer("list")
    assert done.returncode == 0
    head, *lines = done.stdout.splitlines()
    assert head.split() == ["PID", "RUNTIME", "VERSION", "CONTAINER", "COVERAGE", "COMMAND"]
    return [line for line in lines if line.split()[0] == str(pid)]
