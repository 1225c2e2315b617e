# SPDX-License-Identifier: Apache-2.0
"""A Docker daemon of our own, with its default seccomp profile, and an image of a few files of this machine.

    with Docker(folder) as docker:              raises Unavailable, with the reason
        docker.load([python.path, …])           interpreters, the libraries that they need, their modules, our programs
        target = docker.start(python, "golden.py")
"""
import glob
import os
import re
import shutil
import subprocess
import time

import harness

PACKAGES = ("collections", "encodings", "importlib", "json", "lib-dynload", "re")


class Unavailable(Exception):
    pass


def needed_files(path):
    """An interpreter, its libraries and as much of its modules as the programs import."""
    yield path
    ldd = subprocess.run(["ldd", path], stdout=subprocess.PIPE, timeout=harness.TIMEOUT, check=True).stdout.decode()
    yield from re.findall(r"(/\S+) \(0x", ldd)
    code = "import os, sys; print(os.path.dirname(os.__file__))"
    library = subprocess.run([path, "-I", "-S", "-c", code], stdout=subprocess.PIPE, timeout=harness.TIMEOUT, check=True).stdout.decode().strip()
    yield from glob.glob(os.path.join(glob.escape(library), "*.py"))
    for package in PACKAGES:
        yield from glob.glob(os.path.join(glob.escape(library), package, "**", "*.*"), recursive=True)


class Docker:
    def __init__(self, folder):
        self.folder = str(folder)
        self.client = ["docker", "-H", "unix://%s/socket" % self.folder]
        for program in ("dockerd", "docker", "containerd"):
            if not shutil.which(program):
                raise Unavailable("no %s on this machine" % program)
        command = ["dockerd", "--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=vfs"]
        command += ["--data-root", self.folder + "/data", "--exec-root", self.folder + "/exec", "--pidfile", self.folder + "/pid"]
        self.log = self.folder + "/log"
        with open(self.log, "wb") as log:
            self.daemon = subprocess.Popen([*command, *self.client[1:]], stdout=log, stderr=log, start_new_session=True)
        try:
            self._wait()
        except Unavailable:
            self.close()
            raise

    def _wait(self):
        end = time.monotonic() + harness.TIMEOUT
        while subprocess.run([*self.client, "version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=harness.TIMEOUT).returncode:
            if self.daemon.poll() is not None or time.monotonic() > end:
                with open(self.log, errors="replace") as log:
                    raise Unavailable("dockerd does not start: " + (log.read().strip().splitlines() or ["it says nothing"])[-1])
            time.sleep(0.2)

    def run(self, *arguments):
        done = subprocess.run([*self.client, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=harness.TIMEOUT)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def load(self, interpreters):
        files = {harness.PROGRAMS}
        for path in interpreters:
            files.update(needed_files(path))
        # What a name with a link in it leads to is found under that name: links are followed.
        tar = subprocess.Popen(
            ["tar", "-c", "-h", "--no-recursion", "-P", "--exclude=__pycache__", *sorted(files), *sorted(glob.glob(harness.PROGRAMS + "/*.py"))],
            stdout=subprocess.PIPE,
        )
        done = subprocess.run([*self.client, "import", "-", "target"], stdin=tar.stdout, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=harness.TIMEOUT)
        tar.stdout.close()
        assert tar.wait(harness.TIMEOUT) == 0 and done.returncode == 0, done.stderr.decode()

    def start(self, python, name):
        """A harness.Target in a container; pid is its number out here."""
        cid_file = "%s/cid%d" % (self.folder, time.monotonic_ns())
        prefix = [*self.client, "run", "-i", "--rm", "--network", "none", "--cidfile", cid_file, "target"]
        target = harness.Target(python, name, prefix=prefix)
        with open(cid_file) as file:
            target.container = file.read()
        target.pid = int(self.run("inspect", "-f", "{{.State.Pid}}", target.container))
        return target

    def close(self):
        self.daemon.terminate()
        try:
            self.daemon.wait(harness.TIMEOUT)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait(harness.TIMEOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
