# SPDX-License-Identifier: Apache-2.0
"""Private container runtimes, separate from the machine's, and an image of a few files of this
machine.

    with Docker(folder) as docker:              or Podman, Containerd; raises Unavailable(reason)
        docker.load([python.path, …])           interpreters, their libraries and modules,
                                                the test programs
        target = docker.start(python, "golden.py", name="web-1")
"""
import glob
import os
import pathlib
import re
import resource
import shutil
import subprocess
import time

import harness

PACKAGES = ("collections", "encodings", "importlib", "json", "lib-dynload", "re")


class Unavailable(Exception):
    pass


def needed_files(path):
    """An interpreter, its libraries and the modules that the test programs import."""
    yield path
    ldd = subprocess.run(
        ["ldd", path], stdout=subprocess.PIPE, timeout=harness.TIMEOUT, check=True
    ).stdout.decode()
    yield from re.findall(r"(/\S+) \(0x", ldd)
    code = "import os, sys; print(os.path.dirname(os.__file__))"
    library = (
        subprocess.run(
            [path, "-I", "-S", "-c", code],
            stdout=subprocess.PIPE,
            timeout=harness.TIMEOUT,
            check=True,
        )
        .stdout.decode()
        .strip()
    )
    yield from glob.glob(os.path.join(glob.escape(library), "*.py"))
    for package in PACKAGES:
        yield from glob.glob(
            os.path.join(glob.escape(library), package, "**", "*.*"), recursive=True
        )


def image_tar(interpreters):
    """A tar process that writes the files that the interpreters need to its stdout."""
    files = set(glob.glob(harness.PROGRAMS + "/**/*.py", recursive=True))
    for path in interpreters:
        files.update(needed_files(path))
    # Docker makes folders that are not in it for root alone.
    folders = {str(parent) for path in files for parent in pathlib.PurePath(path).parents}
    # Follow links, so that a file is found under every path that leads to it.
    return subprocess.Popen(
        [
            "tar",
            "-c",
            "-h",
            "--no-recursion",
            "-P",
            "--mode=a+rX",
            "--exclude=__pycache__",
            *sorted(folders),
            *sorted(files),
        ],
        stdout=subprocess.PIPE,
    )


class Runtime:
    """What the clients have in common. programs: the executables that must be present."""

    programs = ()
    options = ()  # options of "run"

    def __init__(self, folder, client):
        self.folder = str(folder)
        self.client = client
        for program in self.programs:
            if not shutil.which(program):
                raise Unavailable("no %s on this machine" % program)

    def run(self, *arguments):
        done = subprocess.run(
            [*self.client, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=harness.TIMEOUT,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def pipe(self, interpreters, command):
        tar = image_tar(interpreters)
        done = subprocess.run(
            command,
            stdin=tar.stdout,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=harness.TIMEOUT,
        )
        tar.stdout.close()
        assert tar.wait(harness.TIMEOUT) == 0 and done.returncode == 0, done.stderr.decode()

    def load(self, interpreters):
        self.pipe(interpreters, [*self.client, "import", "-", "target"])

    def start(self, python, program, *arguments, name=None, options=()):
        """A harness.Target in a container. pid is its process id on the host."""
        cid_file = "%s/cid%d" % (self.folder, time.monotonic_ns())
        named = ["--name", name] if name else []
        prefix = [
            *self.client,
            "run",
            "-i",
            "--rm",
            "--network",
            "none",
            *named,
            "--cidfile",
            cid_file,
            *self.options,
            *options,
            "target",
        ]
        target = harness.Target(python, program, *arguments, prefix=prefix)
        with open(cid_file) as file:
            target.container = file.read()
        target.pid = int(self.run("inspect", "-f", "{{.State.Pid}}", target.container))
        return target

    def kill(self, target):
        self.run("kill", target.container)

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Daemon(Runtime):
    """A runtime with a daemon. The daemon is private to the test."""

    def serve(self, command, ping):
        self.log = self.folder + "/log"
        with open(self.log, "wb") as log:
            self.daemon = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            self._wait(ping)
        except Unavailable:
            self.close()
            raise

    def _wait(self, ping):
        end = time.monotonic() + harness.TIMEOUT
        while subprocess.run(
            [*self.client, *ping],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=harness.TIMEOUT,
        ).returncode:
            if self.daemon.poll() is not None or time.monotonic() > end:
                with open(self.log, errors="replace") as log:
                    raise Unavailable(
                        "%s does not start: %s"
                        % (
                            self.daemon.args[0],
                            (log.read().strip().splitlines() or ["it says nothing"])[-1],
                        )
                    )
            time.sleep(0.2)

    def close(self):
        self.daemon.terminate()
        try:
            self.daemon.wait(harness.TIMEOUT)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait(harness.TIMEOUT)


class Docker(Daemon):
    programs = ("dockerd", "docker", "containerd")

    def __init__(self, folder, storage="vfs"):
        super().__init__(folder, ["docker", "-H", "unix://%s/socket" % folder])
        command = [
            "dockerd",
            "--iptables=false",
            "--ip6tables=false",
            "--bridge=none",
            "--storage-driver=" + storage,
        ]
        command += [
            "--data-root",
            self.folder + "/data",
            "--exec-root",
            self.folder + "/exec",
            "--pidfile",
            self.folder + "/pid",
        ]
        self.serve([*command, *self.client[1:]], ["version"])


class Podman(Runtime):
    """settings: lines of containers.conf's section [containers]."""

    programs = ("podman", "conmon", "runc")

    def __init__(self, folder, storage="vfs", settings=""):
        # Podman's default limits may exceed those that this process may pass on.
        limits = (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC))
        ulimits = []
        for limit, number in limits:
            most = resource.getrlimit(number)[1]
            most = 1024 if most == resource.RLIM_INFINITY else min(most, 1024)
            ulimits.append('"%s=%d:%d"' % (limit, most, most))
        config = "%s/containers.conf" % folder
        with open(config, "w") as file:
            file.write("[containers]\ndefault_ulimits = [%s]\n" % ", ".join(ulimits))
            file.write(settings)
        client = ["env", "CONTAINERS_CONF=" + config, "podman"]
        client += ["--root", "%s/root" % folder, "--runroot", "%s/run" % folder]
        client += ["--storage-driver", storage, "--runtime", "runc"]
        super().__init__(folder, [*client, "--cgroup-manager", "cgroupfs"])


class Containerd(Daemon):
    """Uses ctr, containerd's own client. IDs can be chosen freely, and a folder replaces the
    image."""

    programs = ("containerd", "ctr")

    def __init__(self, folder):
        super().__init__(folder, ["ctr", "-a", "%s/sock" % folder])
        with open(self.folder + "/config.toml", "w") as file:
            file.write('version = 2\nroot = "%s/data"\nstate = "%s/state"\n' % (folder, folder))
            file.write('disabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
            file.write(
                '[grpc]\n  address = "%s/sock"\n[ttrpc]\n  address = "%s/sock.ttrpc"\n'
                % (folder, folder)
            )
        self.serve(["containerd", "--config", self.folder + "/config.toml"], ["version"])

    def load(self, interpreters):
        self.root = self.folder + "/root"
        os.mkdir(self.root)
        self.pipe(interpreters, ["tar", "-x", "-C", self.root])

    def start(
        self, python, program, *arguments, name, space="default", annotations=(), cgroup=None
    ):
        notes = [word for note in annotations for word in ("--annotation", note)]
        placed = ["--cgroup", cgroup] if cgroup else []
        prefix = [
            *self.client,
            "-n",
            space,
            "run",
            "--rm",
            *notes,
            *placed,
            "--env",
            "PYTHONHASHSEED=0",
            "--rootfs",
            self.root,
            name,
        ]
        target = harness.Target(python, program, *arguments, prefix=prefix)
        target.container = name
        for line in self.run("-n", space, "task", "ls").splitlines()[1:]:
            if line.split()[0] == name:
                target.pid = int(line.split()[1])
        return target
