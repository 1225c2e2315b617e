# SPDX-License-Identifier: Apache-2.0
"""Parsers for the text that tracer prints."""


def listed(run_tracer, pid, *options):
    """The lines of a process in the list with its coverage."""
    done = run_tracer("list", "-v", *options)
    assert done.returncode == 0
    head, *lines = done.stdout.splitlines()
    titles = ["PID", "PARENT", "USER", "RSS", "AGE", "PYTHON", "CONTAINER", "COVERAGE", "COMMAND"]
    assert [title for title in titles if title in head.split()] == head.split()
    return [line for line in lines if line.split()[0] == str(pid)]
