# SPDX-License-Identifier: Apache-2.0
"""A capture that is replayed in the guest gives the report of the run. The host replays it, too."""
import base64
import gzip
import json
import os

from guest import check


def replays(machine):
    path = os.path.join(machine.folder, "events.cap")
    target = machine.start(machine.pythons["unstripped"], "golden.py")
    run = machine.trace("-m", "exact", "--capture", path, "-p", target.pid)
    target.step()
    live = target.expect()
    target.wait_reading()
    report = run.finish()
    check(machine, run, report, live, "golden.py")
    done = machine.run("replay", path, "--format", "json", "--top", 0)
    assert done.returncode == 0, "replay: status %d: %s" % (done.returncode, done.stderr)
    replayed = json.loads(done.stdout)
    differ = [key for key in report.data if replayed.get(key) != report.data[key]]
    assert not differ, "replayed it differs in %s" % ", ".join(differ)
    with open(path, "rb") as file:
        packed = base64.b64encode(gzip.compress(file.read())).decode()
    machine.send("capture", capture=packed, report=report.data)


def features(settings):
    yield "capture and replay", replays
