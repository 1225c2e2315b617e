# SPDX-License-Identifier: Apache-2.0
"""deploy/ and docs/kubernetes.md. No cluster runs here: the objects are checked against Kubernetes'
own models, and Podman runs the pods, those of the documents as well."""
import itertools
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from kubernetes.client import models

import agents
import containers
import harness
from conftest import IMAGE, PROGRAM, ROOT, check_traced, make_image, trace

DEPLOY = os.path.join(ROOT, "deploy")
DOCUMENT = os.path.join(ROOT, "docs", "kubernetes.md")
STYLE = "{extends: default, rules: {line-length: {max: 100}, document-start: disable}}"
WEB = "web-1"
CENSUS = ("-m", "census", "-d", "1")
# Podman 4.3, which is Debian 12's, ignores hostPID. Containers that are no pods name another one.
HOST_PID = 'pidns = "host"\n'
# {model: keys that Debian 12's models, which are Kubernetes 1.22's, do not have}
NEWER = {"V1SecurityContext": {"appArmorProfile"}}
with open(os.path.join(ROOT, "Makefile")) as makefile:
    VERSION = re.search(r"^VERSION *:= (\S+)", makefile.read(), re.M)[1]
SYS_PTRACE_BIT, SYS_ADMIN_BIT = 19, 21  # linux/capability.h
# What the profiles of kubectl debug set for an ephemeral container.
GENERAL = ("--cap-add=SYS_PTRACE",)
RESTRICTED = ("--user=1000", "--cap-drop=ALL", "--security-opt=no-new-privileges")
SYSADMIN = ("--privileged",)


def objects(path):
    with open(path) as file:
        return [each for each in yaml.safe_load_all(file) if each]


def daemon_set():
    (found,) = [each for each in objects(DEPLOY + "/tracer.yaml") if each["kind"] == "DaemonSet"]
    return found


# --- the files ---------------------------------------------------------------------------------


def document_blocks():
    with open(DOCUMENT) as file:
        return re.findall(r"^```yaml\n(.*?)^```$", file.read(), re.M | re.S)


def test_style():
    """yamllint has nothing to say."""
    blocks = document_blocks()
    assert blocks
    for text in (None, *blocks):
        command = ["yamllint", "--strict", "-d", STYLE, "-" if text else DEPLOY]
        subprocess.run(command, input=text, text=True, check=True, timeout=harness.TIMEOUT)


def built(kind, value, where):
    """The model of a value. A key that it does not have, or needs, is an error."""
    if kind.startswith("list["):
        assert isinstance(value, list), where
        return [built(kind[5:-1], each, where) for each in value]
    if kind.startswith("dict("):
        assert isinstance(value, dict), where
        return {key: built("str", each, where + "." + key) for key, each in value.items()}
    if not hasattr(models, kind):
        python = {"str": str, "int": int, "bool": bool, "object": (str, int)}[kind]
        assert isinstance(value, python), "%s: not %s" % (where, kind)
        return value
    model = getattr(models, kind)
    names = {key: name for name, key in model.attribute_map.items()}
    known = {key: each for key, each in value.items() if key not in NEWER.get(kind, ())}
    unknown = set(known) - set(names)
    assert not unknown, "%s: no %s in %s" % (where, unknown, kind)
    return model(
        **{
            names[key]: built(model.openapi_types[names[key]], each, where + "." + key)
            for key, each in known.items()
        }
    )


def test_models():
    for each in objects(DEPLOY + "/tracer.yaml"):
        built("V1" + each["kind"], each, each["kind"])


def kustomized(folder, minor=0):
    """{kind: object}, by a kubectl 1.MINOR or later"""
    if not shutil.which("kubectl"):
        pytest.skip("no kubectl on this machine")
    command = ["kubectl", "version", "--client", "-o", "json"]
    version = json.loads(subprocess.check_output(command, timeout=harness.TIMEOUT))["clientVersion"]
    if int(version["minor"].rstrip("+")) < minor:
        pytest.skip("kubectl %s has another kustomize" % version["gitVersion"])
    text = subprocess.check_output(["kubectl", "kustomize", folder], timeout=harness.TIMEOUT)
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


def test_kustomize():
    """What kubectl makes of the folder is what the files say, with this version's image."""
    made = kustomized(DEPLOY)
    plain = {each["kind"]: each for each in objects(DEPLOY + "/tracer.yaml")}
    config = made.pop("ConfigMap")
    with open(DEPLOY + "/agent.conf") as file:
        assert config["data"] == {"agent.conf": file.read()}
    pod = plain["DaemonSet"]["spec"]["template"]["spec"]
    pod["containers"][0]["image"] += ":" + VERSION
    pod["volumes"][0]["configMap"]["name"] = config["metadata"]["name"]
    assert made == plain


def test_document_kustomize(tmp_path):
    """The document's settings, all at once. Debian 12's kubectl 1.20 does not know their patches."""
    settings = {}
    for each in map(yaml.safe_load, document_blocks()):
        if each.get("kind", "Kustomization") == "Kustomization":
            settings.update(each)
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "kustomization.yaml").write_text(yaml.safe_dump(settings))
    (tmp_path / "mine" / "agent.conf").write_text("of mine")
    made = kustomized(tmp_path / "mine", 21)
    pod = made["DaemonSet"]["spec"]["template"]["spec"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert made["ConfigMap"]["data"] == {"agent.conf": "of mine"}
    assert volumes["config"]["configMap"]["name"] == made["ConfigMap"]["metadata"]["name"]
    assert set(volumes["evidence"]) == {"name", "hostPath"}
    assert pod["containers"][0]["image"] == "registry.example/tracer:" + VERSION
    for kind, each in made.items():
        built("V1" + kind, each, kind)


# --- the pods ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def podman(static, tmp_path_factory):
    folder = tmp_path_factory.mktemp("k")
    try:
        runtime = containers.Podman(folder, settings=HOST_PID)
    except containers.Unavailable as why:
        pytest.skip(str(why))
    make_image(runtime)
    runtime.load([harness.pythons.DISTRIBUTION])
    runtime.numbers = itertools.count()
    yield runtime
    runtime.run("pod", "rm", "-f", "-t", "0", "-a")


@pytest.fixture(scope="module")
def target(podman):
    """A container whose Python keeps blocks on a marked line, with a user and a PID namespace of its
    own."""
    options = ("--pid=private", "--user=1000")
    with podman.start(harness.pythons.DISTRIBUTION, PROGRAM, name=WEB, options=options) as target:
        target.step()
        yield target
        podman.kill(target)


def start(podman, spec, *others):
    """Podman runs a pod, with these other objects; the name of its container."""
    name = "pod%d" % next(podman.numbers)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    done = subprocess.run(
        [*podman.client, "play", "kube", "--network=none", "-"],
        input=yaml.safe_dump_all([*others, pod]),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=harness.TIMEOUT,
    )
    assert done.returncode == 0, done.stdout
    return "%s-%s" % (name, spec["containers"][0]["name"])


def logs(podman, name):
    """(stdout, stderr) of a container."""
    done = subprocess.run(
        [*podman.client, "logs", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
        timeout=harness.TIMEOUT,
    )
    return done.stdout, done.stderr


def run(podman, *objects):
    """The same until the container has ended: its subprocess.CompletedProcess."""
    name = start(podman, *objects)
    status = int(podman.run("wait", name))
    return subprocess.CompletedProcess(name, status, *logs(podman, name))


def agent_pod(words, without=None):
    """The pod of deploy/ with another command. Its ports and probes need a network."""
    spec = daemon_set()["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    container.update(image="localhost/" + IMAGE, args=[str(word) for word in words])
    del container["ports"], container["livenessProbe"]
    if without:
        container["securityContext"]["capabilities"]["add"].remove(without)
    return {**spec, "restartPolicy": "Never"}


def agent_config():
    with open(DEPLOY + "/agent.conf") as file:
        data = {"agent.conf": agents.at_once(file.read())}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tracer"}, "data": data}


def test_pod(podman, target):
    """It finds a container by its name."""
    spec = agent_pod((*CENSUS, "-c", WEB))
    assert spec["hostPID"]
    check_traced(run(podman, spec, agent_config()))


FETCH = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=9).read())"


def test_pod_agent(podman, target):
    """The pod as deploy/ has it: the agent is alive and ready, and shows the target."""
    (container,) = daemon_set()["spec"]["template"]["spec"]["containers"]
    name = start(podman, agent_pod(container["args"]), agent_config())
    pid = podman.run("inspect", "-f", "{{.State.Pid}}", name).strip()
    path = container["livenessProbe"]["httpGet"]["path"]
    (port,) = [each["containerPort"] for each in container["ports"]]

    def answer(path):
        """In the pod's network. None: none, or an error."""
        url = "http://127.0.0.1:%d%s" % (port, path)
        command = ["nsenter", "-t", pid, "-n", sys.executable, "-c", FETCH, url]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return done.stdout

    harness.wait_until(lambda: answer(path), "the agent serves")
    harness.wait_until(lambda: answer("/readyz"), "its session answers")
    harness.wait_until(
        lambda: 'tracer_process_live_bytes{pid="%d"' % target.pid in answer("/metrics"),
        "the target is traced",
    )
    podman.run("stop", "-t", "20", name)
    assert podman.run("wait", name).strip() == "0", logs(podman, name)


def test_pod_session(podman, target):
    """A session holds no CAP_SYS_ADMIN, thanks to BPF and PERFMON. Beside it snapshots are written
    below /var/lib/tracer, read and taken out."""
    snapshot = "/var/lib/tracer/web.pb.gz"
    words = ("-m", "census", "-p", target.pid)
    name = start(podman, agent_pod(words), agent_config())

    def tracer(*words):
        return podman.run("exec", name, "tracer", *words)

    harness.wait_until(lambda: "attached to PID" in logs(podman, name)[1], "it is attached")
    tracer("ctl", str(target.pid), "snapshot", snapshot)
    with open("/proc/%s/status" % podman.run("inspect", "-f", "{{.State.Pid}}", name)) as file:
        held = int(re.search(r"^CapEff:\s*(\w+)", file.read(), re.M)[1], 16)
    report = tracer("report", snapshot)
    page = tracer("export", snapshot, "--format", "html", "-o", "-")
    tracer("ctl", str(target.pid), "stop")
    assert held >> SYS_PTRACE_BIT & 1 and not held >> SYS_ADMIN_BIT & 1
    assert "%s:%d:" % (PROGRAM, harness.marked_line(PROGRAM, "A")) in report
    assert page.lower().startswith("<!doctype html>")


def test_pod_writes_nowhere_else(podman, target):
    words = (*CENSUS, "-c", WEB, "-o", "/usr/web.pb.gz")
    done = run(podman, agent_pod(words), agent_config())
    assert "Read-only file system" in harness.error_line(done, 1)


@pytest.mark.parametrize("capability", ("SYS_PTRACE", "SYS_ADMIN", "DAC_READ_SEARCH"))
def test_pod_has_the_least(podman, target, capability):
    spec = agent_pod((*CENSUS, "-p", target.pid), without=capability)
    assert "CAP_%s is missing" % capability in harness.error_line(
        run(podman, spec, agent_config()), 1
    )


def test_node_debugger(podman, target):
    """kubectl debug node/NODE --profile=sysadmin"""
    container = {
        "name": "debugger",
        "image": "localhost/" + IMAGE,
        "command": ["tracer", *CENSUS, "-c", WEB],
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "host-root", "mountPath": "/host"}],
    }
    spec = {
        "hostPID": True,
        "hostNetwork": True,
        "hostIPC": True,
        "restartPolicy": "Never",
        "volumes": [{"name": "host-root", "hostPath": {"path": "/"}}],
        "containers": [container],
    }
    check_traced(run(podman, spec))


@pytest.mark.parametrize("profile", (GENERAL, RESTRICTED), ids=("general", "restricted"))
@pytest.mark.parametrize(
    "words, text",
    (
        (("list",), PROGRAM),
        (("heap", "-p", "1"), "bytes: own size="),
        (("memory", "-p", "1"), "rss: "),
        (("leaks", "-p", "1", "-d", "1"), "sys.modules['__main__'].kept_a"),
    ),
    ids=("list", "heap", "memory", "leaks"),
)
def test_ephemeral(podman, target, profile, words, text):
    """kubectl debug POD --target=CONTAINER: what places no probe works, with the process ids of the
    container."""
    done = trace(podman, ("--pid=container:" + WEB, *profile), *words)
    assert done.returncode == 0 and text in done.stdout, done.stdout + done.stderr


def test_ephemeral_probes(podman, target):
    done = trace(podman, ("--pid=container:" + WEB, *SYSADMIN), *CENSUS, "-p", "1")
    line = harness.error_line(done, 1)
    assert "PID namespace" in line and "hostPID" in line and "leaks, heap and memory" in line
