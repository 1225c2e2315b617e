# SPDX-License-Identifier: Apache-2.0
"""Every command in README.md, docs/ or docs/man/ is run on a real target and must end with status
0.

Commands are the lines of blocks that are marked ```sh, and lines that begin with "$ " in other
blocks. PID, ADDR and names specific to a reader's machine are replaced. Sessions are shortened.
Every member of a JSON object must be described in docs/json.md.
"""
import glob
import json
import os
import re
import shlex
import shutil
import subprocess

import pytest

import harness
import schemas

# {pattern: why such a command is not run here}. A pattern that matches no command is an error.
NOT_RUN = {
    r"^sudo make deb\b": "installs packages; tests/packages has it",
    r"^sudo make (static|image)\b": "installs packages; tests/portable has them",
    r" ctl PID watch\b": "needs a terminal; tests/e2e/watch/test_watch.py has one",
    r"\btracer agent\b": "tests/e2e/agent/ runs it",
    r"^sudo systemctl ": "needs systemd; tests/packages/ installs the service",
    r"/var/lib/tracer/": "of an agent; tests/e2e/agent/ has bundles",
    r" -c web-1\b": "needs a container runtime; tests/e2e/targets/test_containers.py and test_runtimes.py have real ones",
    r"^docker run ": "needs the image; tests/portable/test_image.py has it",
    r"^docker push ": "needs a registry",
    r" https://web-": "needs those servers; tests/e2e/agent/test_fleet_urls.py has an agent's",
    r"\btracer serve ": "serves until Ctrl-C; test_serve.py runs it",
    r"^kubectl ": "needs a cluster; tests/portable/test_kubernetes.py runs the same pods",
    r"^sudo tracer memory --(comm|unshared) ": "needs a service that forks; test_memory_service.py has one",
    r" --by (context|local)\b": "needs a program with such variables; tests/e2e/python/test_labels.py has one",
    r" --by (otel-|structlog:)": "needs these libraries; tests/e2e/python/test_label_values.py has them",
    r" --by task\b": "needs a program with tasks; tests/e2e/python/test_tasks.py has one",
    r" --by greenlet\b": "needs a program with greenlets; tests/e2e/python/test_greenlets.py has one",
    r" --core core\.": "needs a core file; test_heap_core.py has the kernel's",
}
KERNEL = ("events", "stat")
SECONDS = "1"  # a busy machine makes few snapshots of a recording


def documents():
    return sorted(
        path
        for pattern in ("README.md", "docs/*.md", "docs/man/*.md", "docs/design/*.md")
        for path in glob.glob(os.path.join(harness.ROOT, pattern))
    )


def block_commands(kind, text):
    if kind == "sh":
        return [line for line in text.splitlines() if line and not line.startswith("#")]
    return re.findall(r"^\$ (.*)$", text, re.M)


def commands():
    """Each command once, without its comment, in the order of the documents."""
    found = {}
    for path in documents():
        with open(path) as file:
            for kind, text in re.findall(r"^```(\w*)\n(.*?)^```$", file.read(), re.M | re.S):
                found.update(
                    (re.sub(r"\s+# .*", "", line).strip(), None)
                    for line in block_commands(kind, text)
                )
    return list(found)


def why_not_run(command):
    return next((why for pattern, why in NOT_RUN.items() if re.search(pattern, command)), None)


@pytest.mark.unprivileged
def test_what_is_not_run():
    unused = [
        pattern
        for pattern in NOT_RUN
        if not any(re.search(pattern, command) for command in commands())
    ]
    assert not unused, "no command matches %s" % unused


def minor_of(path):
    return int(harness.pythons.version_of(path).split(".")[1])


class Scene:
    """What a reader of the documents has: processes, a session on one of them, and files in a
    folder."""

    def __init__(self, tracer, folder):
        self.tracer, self.folder, self.session = tracer, str(folder), None
        pool = os.path.join(self.folder, "libpool.so")
        subprocess.run(
            [
                "cc",
                "-O1",
                "-fno-builtin",
                "-shared",
                "-fPIC",
                "-o",
                pool,
                harness.program("libpool.c"),
            ],
            check=True,
        )
        os.mkdir(os.path.join(self.folder, "bin"))
        distribution = harness.pythons.DISTRIBUTION
        self.python3 = max([distribution, *harness.pythons.unstripped().values()], key=minor_of)
        for name, path in (("python3", self.python3), ("documented", distribution)):
            os.symlink(path, os.path.join(self.folder, "bin", name))
        self.environment = harness.environment(
            PATH=os.path.join(self.folder, "bin") + ":" + os.environ["PATH"]
        )
        documented = os.path.join(self.folder, "bin", "documented")
        self.targets = [harness.Target(documented, "documented.py", pool) for _ in range(4)]
        self.talked_to = self.targets[3]
        with open(os.path.join(self.folder, "app.py"), "w") as file:
            file.write(
                "import os, time\nopen('app.pid', 'w').write(str(os.getpid()))\nkept = [bytearray(100) for _ in range(1000)]\ntime.sleep(0.2)\n"
            )
        self.make_files()

    def make_files(self):
        pid = str(self.targets[0].pid)
        self.run(
            "-q",
            "--layer",
            "all",
            "-p",
            pid,
            "-d",
            SECONDS,
            "-o",
            "layers.pb.gz",
            "--capture",
            "events.cap",
            "--record",
            "shop.rec",
            "--every",
            "0.02",
        )
        self.run("-q", "-p", pid, "-d", "5", "--on-memory", "1M", "shop.evidence")
        shutil.copy(self.path("layers.pb.gz"), self.path("snap.pb.gz"))
        shutil.copy(self.path("layers.pb.gz"), self.path("new.pb.gz"))
        self.run("filter", "snap.pb.gz", "--include", "*:1", "-o", "old.pb.gz")
        self.run("export", "snap.pb.gz", "--format", "tracemalloc", "-o", "snap.pickle")

    def path(self, name):
        return os.path.join(self.folder, name)

    def run(self, *args):
        """The command's stdout. Its status must be 0."""
        done = subprocess.run(
            [self.tracer, *args],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=harness.TIMEOUT,
        )
        assert done.returncode == 0, "%s: status %d: %s" % (
            args,
            done.returncode,
            done.stderr.decode(),
        )
        return done.stdout.decode()

    def session_pid(self):
        """A process with a session of its own, for `tracer ctl`."""
        if self.session is None or self.session.process.poll() is not None:
            self.session = harness.Traced(self.tracer, self.folder, "-p", self.talked_to.pid)
        return self.talked_to.pid

    def new_object(self):
        self.session_pid()
        self.talked_to.step()
        return self.talked_to.read_line()

    def replace(self, args):
        """The command's words with real process IDs for PID, and so on."""
        if args[0] == "ctl":
            real = {"PID": self.session_pid, "ADDR": self.new_object}
            said = [str(real[word]()) if word in real else word for word in args]
            return [
                said[0],
                "--session=%d" % self.session.pid,
                *said[1:],
            ]  # another session may trace the whole machine
        by_line = re.search("--by line|^heap .*--older-than", " ".join(args))
        if by_line and "PID" in args:
            pid = self.session_pid()
            more = [] if "--trace" in args else ["--session=%d" % self.session.pid]
            return [*(str(pid) if word == "PID" else word for word in args), *more]
        pids = iter(self.targets)
        args = [
            re.sub(r"\bPID\b", lambda _: str(next(pids).pid), word)
            if word[:4] == "PID," or word == "PID"
            else word
            for word in args
        ]
        return [word.replace("python3*", "documented*") for word in args]

    def shorten(self, args):
        """Shortens sessions that would last until Ctrl-C or for a long time."""
        if "--record" in args:  # a shortened recording has one snapshot
            at = args.index("--record") + 1
            args = [*args[:at], "other.rec", *args[at + 1 :]]
        if "-d" in args:
            return [
                SECONDS if before == "-d" else word for before, word in zip([None, *args], args)
            ]
        lasts = args[0] in ("trace", "perfmap") or args[0].startswith("-")
        lasts |= args[0] == "leaks" and "-p" in args
        return (
            args
            if not lasts or {"--", "--dry-run", "--status"} & set(args)
            else [*args, "-d", SECONDS]
        )

    def close(self):
        if self.session:
            self.session.kill()
        pids = [target.pid for target in self.targets]
        for target in self.targets:
            target.kill()
        if os.path.exists(self.path("app.pid")):
            with open(self.path("app.pid")) as file:
                pids.append(int(file.read()))
        for pid in pids:
            if os.path.exists("/tmp/perf-%d.map" % pid):
                os.unlink("/tmp/perf-%d.map" % pid)


@pytest.fixture(scope="module")
def scene(tracer, tmp_path_factory):
    made = Scene(tracer, tmp_path_factory.mktemp("documents"))
    yield made
    made.close()


def keys(value):
    if isinstance(value, dict):
        # The kernel's own figures have its names.
        return set(value).union(*(keys(value[key]) for key in value if key not in KERNEL))
    return set().union(*map(keys, value)) if isinstance(value, list) else set()


def documented_keys():
    with open(os.path.join(harness.ROOT, "docs", "json.md")) as file:
        return set(re.findall(r"`(\w+)`", file.read()))


@pytest.mark.whole
@pytest.mark.parametrize("command", [command for command in commands() if not why_not_run(command)])
def test_command(scene, command, request):
    if "--comm 'python" in command:
        request.getfixturevalue("whole_machine")  # it traces the targets of a test beside it, too
    if " -X perf " in command and minor_of(scene.python3) < 12:
        pytest.skip("no CPython with -X perf: 3.12 or later is needed")
    words = [word for word in shlex.split(command) if word != "sudo"]
    assert os.path.basename(words[0]) == "tracer", "not a command of tracer, and not in NOT_RUN"
    # A command before this one may have written a snapshot of windows.
    shutil.copy(scene.path("layers.pb.gz"), scene.path("snap.pb.gz"))
    said = scene.run(*scene.shorten(scene.replace(words[1:])))
    if "--format json" in command:
        schemas.check(words[1:], said)
        for line in said.splitlines():
            unknown = keys(json.loads(line)) - documented_keys()
            assert not unknown, "docs/json.md does not have %s" % sorted(unknown)
