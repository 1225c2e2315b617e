# SPDX-License-Identifier: Apache-2.0
"""tracer fleet by version: what processes say that they are, in a snapshot of one and of several."""
import json
import subprocess

from harness import Traced, environment

# Starts a process of each version. All of them end when their standard input does.
PROGRAM = """
import os, subprocess, sys
children = []
for version in sys.argv[1:]:
    env = dict(os.environ, OTEL_RESOURCE_ATTRIBUTES="service.version=" + version)
    if version == "none":
        del env["OTEL_RESOURCE_ATTRIBUTES"], env["OTEL_SERVICE_NAME"]
    children.append(subprocess.Popen([sys.executable, "-c", "input()"], env=env))
sys.stdin.read()
for child in children:
    child.wait()
"""


def snapshot(tracer, python, folder, *versions):
    """Of the service `shop`, version 1.0, and of processes of these versions that it starts."""
    env = environment(OTEL_SERVICE_NAME="shop", OTEL_RESOURCE_ATTRIBUTES="a=b,service.version=1.0")
    command = ["-m", "exact", "--", python.path, "-c", PROGRAM, *versions]
    processes = 1 + len(versions)
    with Traced(
        tracer, folder, *command, attached=processes, stdin=subprocess.PIPE, env=env
    ) as traced:
        traced.process.stdin.close()
        traced.wait()
    return traced.snapshot


def by(run_tracer, key, *files):
    """{(service, version): number of snapshots}"""
    done = run_tracer("fleet", "--format", "json", "--by", key, "--top", 0, *files)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["statistics"]
    return {(row["service"], row.get("version")): row["snapshots"] for row in rows}


def test_versions(tracer, run_tracer, debian_python, tmp_path):
    """The name of a version is text of a traced process."""
    one = snapshot(tracer, debian_python, tmp_path)
    several = snapshot(tracer, debian_python, tmp_path, "1.1%2C%1b%5B31m%e2%82%ac", "none")
    rows = by(run_tracer, "version", one, several)
    (unknown,) = [name for name in rows if name[0] != "shop"]
    assert unknown[0].startswith("python")
    odd = "1.1,\x1b[31m\u20ac"
    assert rows == {("shop", "1.0"): 2, ("shop", odd): 1, (unknown[0], None): 1}
    assert by(run_tracer, "service", one, several) == {("shop", None): 2, (unknown[0], None): 1}
    text = run_tracer("fleet", "--by", "version", one, several).stdout
    for row in ("shop 1.0", "shop 1.1,\\x1b[31m\u20ac", unknown[0] + " (unknown)"):
        assert "\t%s\n" % row in text
