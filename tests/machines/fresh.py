# SPDX-License-Identifier: Apache-2.0
"""Fresh Debian systems in folders, from the archive in this machine's apt configuration.

    system = System("trixie", "/path/of/its/files")
    system.make_base(log)                            minbase, kept as a tar file
    system.unpack(system.root)                       minbase in a folder, made anew
    output = system.run(system.root, "make", log)    a shell command in it
    remove(system.root)

    System("trixie", place, base="/path/of/its/files")    another one with the same base.tar

No host is named here: to use another mirror, change the machine's sources. No mount remains, even
after an error. Failures are RuntimeError, or subprocess.CalledProcessError.
"""
import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import time

import mirror

BASE_DAYS = 30  # after which minbase is made again
TIMEOUT = 1800  # seconds for one command in a system
SCRIPTS = "/usr/share/debootstrap/scripts"
PRIVATE = ("unshare", "--mount", "--propagation", "private")
# Settings that a new system needs to reach the same hosts as this machine.
SETTINGS = re.compile(
    r'Acquire::((http|https|ftp)(::.*)?|Retries|Check-Valid-Until|Check-Date) ".+";'
)

# Binds the parts of the machine that a system needs and runs a command in it. The mounts are in a
# namespace of their own and end with its last process. The PID namespace is the machine's, since
# the tracer needs the initial one.
ENTER = """set -e
mount --bind /proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --rbind /dev "$1/dev"
mkdir -p "$1/var/cache/apt/archives"
mount --bind "$2" "$1/var/cache/apt/archives"
exec chroot "$1" /usr/bin/env -i HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \\
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin sh -c "$3"
"""


class Failed(RuntimeError):
    """What went wrong, in a line."""


def said_by(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode()


def settings():
    """The settings of the machine's apt for proxies, retries and old Release files."""
    lines = said_by("apt-config", "dump", "Acquire").splitlines()
    return "".join(line + "\n" for line in lines if SETTINGS.fullmatch(line))


def debootstrap(suite, folder, archives, log):
    """A minimal SUITE in folder; its packages are kept in archives. All paths are absolute."""
    uri, _ = mirror.mirrors()
    command = ["debootstrap", "--variant=minbase", "--cache-dir=" + archives]
    if uri.startswith("https:"):
        command.append("--include=ca-certificates")
    command += [suite, folder, uri]
    # A suite newer than this debootstrap has no script; sid's script works for all suites.
    if not os.path.exists(os.path.join(SCRIPTS, suite)):
        command.append(os.path.join(SCRIPTS, "sid"))
    with open(log, "a+") as file:
        start = file.tell()
        done = subprocess.run(
            [*PRIVATE, *command], stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
        file.seek(start)
        if done.returncode != 0:
            raise Failed("debootstrap: " + last_words(file.read()))


def write(folder, path, text, mode=0o644):
    path = os.path.join(folder, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)


def write_settings(folder):
    """Those of a chroot: it starts no services, and its files need not survive a crash."""
    write(folder, "etc/apt/apt.conf.d/90machine", settings())
    write(folder, "usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", 0o755)
    write(folder, "etc/dpkg/dpkg.cfg.d/unsafe-io", "force-unsafe-io\n")


TELLING = re.compile(r"^[^[]*\berror: |^\[  FAILED  \] |^E: |install-deps: apt-get|\*\*\* ")


def last_words(output):
    """The line that most likely says what went wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    told = [line for line in lines if TELLING.search(line)]
    return (told[:1] or lines[-1:] or ["it said nothing"])[0]


def end_within(root):
    """Ends all processes in a root: a daemon that a package started, a build that hung."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.readlink("/proc/%s/root" % pid) == root:
                os.kill(int(pid), signal.SIGKILL)


def remove(root):
    """Removes a root, unless something is mounted in it."""
    end_within(root)
    with open("/proc/self/mountinfo") as file:
        mounts = [line.split()[4] for line in file]
    inside = [mount for mount in mounts if mount == root or mount.startswith(root + "/")]
    if inside:
        raise Failed("%s is mounted, not removed" % inside[0])
    subprocess.run(("rm", "-rf", "--one-file-system", root), check=True)


def is_fresh(path):
    return os.path.exists(path) and time.time() - os.path.getmtime(path) < BASE_DAYS * 86400


class System:
    """One suite's files in a folder; its minbase may be in another folder."""

    def __init__(self, suite, place, base=None):
        self.suite = suite
        self.place = os.path.realpath(place)  # as /proc shows a root
        self.base = os.path.realpath(base or place)
        self.root = self.path("root")
        self.tree = self.path("run")
        self.archives = self.path("archives")
        os.makedirs(self.archives, exist_ok=True)

    def path(self, name):
        return os.path.join(self.place, name)

    @property
    def base_tar(self):
        return os.path.join(self.base, "base.tar")

    def make_base(self, log):
        """Makes SUITE's minbase as base.tar: debootstrap's output and the settings of a chroot."""
        archives = os.path.join(self.base, "archives")
        os.makedirs(archives, exist_ok=True)
        with open(os.path.join(self.base, "base.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # a second process finds it made
            if not is_fresh(self.base_tar):
                self._make_base(archives, log)

    def _make_base(self, archives, log):
        tar, folder = self.base_tar, os.path.join(self.base, "base")
        remove(folder)
        debootstrap(self.suite, folder, archives, log)
        write_settings(folder)
        subprocess.run(("tar", "-C", folder, "-cf", tar + ".new", "."), check=True)
        os.rename(tar + ".new", tar)
        remove(folder)

    def unpack(self, folder):
        """Unpacks minbase into a folder; the folder's earlier contents are removed."""
        remove(folder)
        os.makedirs(folder)
        subprocess.run(("tar", "-C", folder, "-xpf", self.base_tar), check=True)
        shutil.copy("/etc/resolv.conf", os.path.join(folder, "etc/resolv.conf"))

    def copy(self, tree, folder):
        """Copies a tree that debootstrap made into a folder, which is made anew."""
        remove(folder)
        subprocess.run(("cp", "-a", "--reflink=auto", tree, folder), check=True)
        write_settings(folder)

    def run(self, root, command, log):
        """Runs a shell command in a root; returns its output, which the log has, too."""
        enter = (*PRIVATE, "sh", "-c", ENTER, "sh", root, self.archives, command)
        with open(log, "ab+") as file:
            start = file.seek(0, os.SEEK_END)
            process = subprocess.Popen(enter, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
            try:
                status = "exit status %d" % process.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                status = "hung for %d s" % TIMEOUT
            finally:
                process.kill()
                end_within(root)
                process.wait()
            file.seek(start)
            output = file.read().decode(errors="replace")
        if status != "exit status 0":
            raise Failed("%s: %s" % (status, last_words(output)))
        return output
