# SPDX-License-Identifier: Apache-2.0
"""An agent that watches pods by what the runtime's state has of them. Podman runs the pods. Its state
has a pod's annotations and not its labels; the pods here have those by which CRI-O names a pod."""
import os
import subprocess

import pytest
import yaml

import containers
import harness
from harness import wait_until

NAME = "pod-%d" % os.getpid()  # of the processes; other runs of the tests have others
# The program lives as long as its stdin, which a pod does not have.
RUN = (
    "import os, runpy, sys; os.dup2(os.pipe()[0], 0); "
    "sys.argv = ['', %r]; runpy.run_path(%r, run_name='__main__')"
)
TARGETS = "[targets]\nnamespace = sh?p other\nannotation = tracer.dev/enabled=true\n"


@pytest.fixture(scope="module")
def podman(tmp_path_factory, any_python):
    try:
        # A short name: podman refuses long ones.
        runtime = containers.Podman(tmp_path_factory.mktemp("k"))
    except containers.Unavailable as why:
        pytest.skip(str(why))
    runtime.load([any_python.path])
    yield runtime
    runtime.run("pod", "rm", "-f", "-t", "0", "-a")


@pytest.fixture
def pod(podman, any_python):
    """Starts one with an own annotation, and returns its process id and its container's id."""
    names = []

    def start(name, enabled, namespace="shop"):
        names.append(name)
        notes = {"tracer.dev/enabled": enabled}
        notes["io.kubernetes.pod.name"], notes["io.kubernetes.pod.namespace"] = name, namespace
        code = RUN % (NAME, harness.program("keeps_lines.py"))
        container = {"name": "app", "image": "localhost/target"}
        container["command"] = [any_python.path, "-c", code]
        described = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": notes},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
        subprocess.run(
            [*podman.client, "play", "kube", "--network=none", "-"],
            input=yaml.safe_dump(described).encode(),
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=harness.TIMEOUT,
        )
        told = podman.run("inspect", "-f", "{{.State.Pid}} {{.Id}}", name + "-app").split()
        return int(told[0]), told[1]

    yield start
    for name in names:
        podman.run("pod", "rm", "-f", "-t", "0", name)


def test_pods(server, pod, collector, tmp_path):
    """Those that are chosen are traced, also one that starts later; figures and profiles name their
    pods. One with another annotation, or in another namespace, is not looked at."""
    first, container = pod("web-1", "true")
    pod("web-2", "false"), pod("web-3", "true", "shops")
    push = "[push]\notlp = http://localhost:%d\ninterval = 1\nspool = %s\n"
    more = TARGETS + push % (collector.server_port, tmp_path / "spool")
    running = server(NAME, more=more)
    running.wait_traced(first)
    later, _ = pod("web-4", "true", "other")
    running.wait_traced(later)
    expected = {first: ("shop", "web-1"), later: ("other", "web-4")}

    def named():
        """Those that are there, a container that has just started maybe without its pod."""
        found = {
            each["pid"]: (each.get("namespace"), each.get("pod")) for each in running.targets()
        }
        assert set(found) <= set(expected)
        return found == expected

    wait_until(named, "the pods are named")
    labels = {name[1] for name in running.metrics() if name[0] == "tracer_process_live_bytes"}
    label = 'pid="%d",name="%s",container="shop/web-1/web-1-app",namespace="shop",pod="web-1",'
    assert label % (first, NAME) + 'layer="python"' in labels
    profiles = lambda: [each for request in collector.accepted for each in request]
    found = wait_until(
        lambda: [each for each in profiles() if each.resource["process.pid"] == first], "profiles"
    )
    resource = found[0].resource
    assert resource["container.id"] == container
    assert resource["container.name"] == resource["k8s.container.name"] == "web-1-app"
    assert (resource["k8s.namespace.name"], resource["k8s.pod.name"]) == ("shop", "web-1")
    assert not collector.wrong
