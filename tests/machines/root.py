# SPDX-License-Identifier: Apache-2.0
"""The guest's root file system: a small Debian of the machine's own release, so that programs built
on this machine run in the guest.

debootstrap makes it once, and it is packed as a cpio archive. image.py adds the files that change
from run to run.
"""
import glob
import hashlib
import os
import re
import shutil
import subprocess

import mirror

INCLUDE = ("python3", "iproute2", "kmod", "procps")
CPIO = ("cpio", "--create", "--format=newc", "--null", "--quiet", "--owner=+0:+0")
# Not needed by any test: left out of the archive, which the guest holds in memory.
LEFT_OUT = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "usr/share/perl5",
    "usr/share/zoneinfo",
    "usr/share/i18n",
    "usr/share/bash-completion",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/lib/x86_64-linux-gnu/perl-base",
    "usr/lib/locale",
    "usr/lib/udev",
    "var/cache",
    "var/lib/apt",
    "var/lib/dpkg",
    "var/log",
    "dev",
    "proc",
    "sys",
)


def linked_packages(*programs):
    """The packages that hold the libraries to which programs are linked."""
    paths = set()
    for path in programs:
        said = subprocess.run(["ldd", path], check=True, stdout=subprocess.PIPE, text=True).stdout
        paths.update(re.findall(r"=> (/\S+)", said))
    packages = set()
    for path in sorted(paths):
        # With a merged /usr, dpkg may know the file by its old path.
        names = {path, os.path.realpath(path)}
        names |= {re.sub(r"^/usr", "", name) for name in names}
        owners = subprocess.run(["dpkg", "-S", *sorted(names)], capture_output=True, text=True)
        found = re.findall(r"^([^:,\s]+)(?::\w+)?: ", owners.stdout, re.M)
        if not found:
            raise RuntimeError("%s belongs to no package: the guest cannot have it" % path)
        packages.add(found[0])
    return sorted(packages)


def make_tree(folder, suite, url, packages):
    """Runs debootstrap into a folder that is renamed when complete. A tree with the same packages
    is kept."""
    include = ",".join(sorted({*INCLUDE, *packages}))
    key = hashlib.sha256(include.encode()).hexdigest()[:12]
    tree = os.path.join(folder, "root-%s-%s" % (suite, key))
    if os.path.isdir(tree):
        return tree
    for old in glob.glob(os.path.join(folder, "root-*")):
        shutil.rmtree(old) if os.path.isdir(old) else os.unlink(old)
    log = os.path.join(folder, "debootstrap.log")
    options = ["--variant=minbase", "--include=" + include]
    command = ["debootstrap", *options, suite, tree + ".new", url]
    with open(log, "w") as out:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    if done.returncode:
        raise RuntimeError("debootstrap failed with status %d: see %s" % (done.returncode, log))
    os.rename(tree + ".new", tree)
    return tree


def pack(tree, archive, left_out=()):
    """Packs a tree as an archive that the kernel unpacks as its root."""
    prune = []
    for name in left_out:
        prune += ["-path", "./" + name, "-prune", "-o"]
    find = subprocess.Popen(["find", ".", *prune, "-print0"], cwd=tree, stdout=subprocess.PIPE)
    with open(archive + ".new", "wb") as out:
        done = subprocess.run(CPIO, cwd=tree, stdin=find.stdout, stdout=out)
    find.stdout.close()
    if find.wait() or done.returncode:
        raise RuntimeError("cannot pack " + tree)
    os.rename(archive + ".new", archive)
    return archive


def make(folder, *programs):
    """(tree, archive): the root file system for programs of this machine."""
    suite, (url, _) = mirror.codename(), mirror.mirrors()
    tree = make_tree(folder, suite, url, linked_packages(*programs))
    archive = tree + ".cpio"
    return tree, archive if os.path.exists(archive) else pack(tree, archive, LEFT_OUT)
