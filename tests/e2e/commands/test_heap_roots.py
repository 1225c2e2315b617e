# SPDX-License-Identifier: Apache-2.0
"""tracer heap and tracer memory of processes in other roots and mount namespaces, with an
interpreter that is not what the tracer finds at its path."""
import json
import os
import shutil
import subprocess

import pytest

import harness
from harness import environment
from test_heap_graph import ask, check_proof

COUNT = 500
OWN_MOUNTS = ("unshare", "--mount", "--propagation", "private")


def check(run_tracer, pid, version):
    """The three commands of one process."""
    answer = ask(run_tracer, "--retained", "--top", 0, "-p", pid)
    check_proof(answer)
    assert answer["python_version"].startswith(version + "."), answer["python_version"]
    types = {s["type"]: s for s in answer["statistics"]}
    assert types["S"]["count"] >= COUNT // 100 and types["dict"]["retained_size"] > 1 << 20
    path = ask(run_tracer, "why", "S", "-p", pid)["paths"][0]
    assert path["count"] > 0 and path["steps"][0]["kind"] in ("module", "modules", "frame")
    done = run_tracer("memory", "--format", "json", "-p", pid)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    tree = json.loads(done.stdout)
    assert tree["python_version"].startswith(version + ".")
    assert tree["name"] == "rss"
    assert sum(child["size"] for child in tree["children"]) == tree["size"]
    (python,) = [child for child in tree["children"] if child["name"] == "python"]
    assert python["size"] > 4 << 20


def test_root(start, run_tracer, root_python):
    """A container's root: another distribution, in mounts of its own."""
    prefix = (*OWN_MOUNTS, "chroot", root_python.root)
    target = start(root_python.path, "graph_builtins.py", COUNT, prefix=prefix)
    target.wait_reading()
    check(run_tracer, target.pid, root_python.version)


def test_other_libpython(start, run_tracer, any_python, tmp_path):
    """At the path of its libpython the tracer's root has another version's."""
    folder = os.path.join(os.path.dirname(os.path.dirname(any_python.path)), "lib")
    name = "libpython%s.so.1.0" % any_python.version
    if not os.path.exists(os.path.join(folder, name)):
        pytest.skip("%s has no libpython" % any_python.path)
    others = [
        os.path.join(os.path.dirname(os.path.dirname(path)), "lib", "libpython%s.so.1.0" % version)
        for version, path in harness.pythons.unstripped().items()
        if version != any_python.version
    ]
    other = next((path for path in others if os.path.exists(path)), None)
    if not other:
        pytest.skip("no other libpython")
    shutil.copyfile(other, tmp_path / name)
    script = 'mount --bind "$0" "$1" && shift && exec "$@"'
    target = start(
        any_python,
        "graph_builtins.py",
        COUNT,
        prefix=(*OWN_MOUNTS, "sh", "-c", script, folder, str(tmp_path)),
        env=environment(LD_LIBRARY_PATH=str(tmp_path)),
    )
    target.wait_reading()
    with open("/proc/%d/maps" % target.pid) as file:
        assert str(tmp_path / name) in file.read()
    check(run_tracer, target.pid, any_python.version)
