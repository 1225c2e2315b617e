# SPDX-License-Identifier: Apache-2.0
"""Replays on this machine a capture that was made in a guest: the tables must be equal."""
import base64
import gzip
import json
import os
import subprocess

TIMEOUT = 120


def differs(tracer, sent, folder):
    """How the replay differs from the guest's report, or ""."""
    path = os.path.join(folder, "events.cap")
    try:
        events = gzip.decompress(base64.b64decode(sent["capture"]))
    except (ValueError, OSError, EOFError) as error:
        return "the capture did not come out whole: %s" % error
    with open(path, "wb") as file:
        file.write(events)
    command = [tracer, "replay", path, "--format", "json", "--top", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    if done.returncode:
        return "replay: status %d: %s" % (done.returncode, done.stderr.strip())
    return compare(json.loads(done.stdout), sent["report"])


def compare(replayed, reported):
    """Which parts differ, or ""."""
    keys = sorted({*replayed, *reported})
    differ = [key for key in keys if replayed.get(key) != reported.get(key)]
    if not reported.get("statistics"):
        return "the guest's table is empty"
    return "replayed here it differs in %s" % ", ".join(differ) if differ else ""
