# SPDX-License-Identifier: Apache-2.0
"""Pickles made by hand, and files that tracer must refuse."""
import pickle
import tracemalloc


def made(traces, limit=1, protocol=4):
    return pickle.dumps(tracemalloc.Snapshot(traces, limit), protocol)


def refused(tracer, tmp_path, data, *words, status=1):
    file = tmp_path / "refused"
    file.write_bytes(data)
    done = tracer("report", file, ok=False)
    lines = done.stderr.decode().splitlines()
    assert done.returncode == status and done.stdout == b"" and len(lines) == 1, (done, data[:40])
    assert lines[0].startswith("tracer: %s: " % file) and all(
        word in lines[0] for word in words
    ), lines
    return lines[0]
