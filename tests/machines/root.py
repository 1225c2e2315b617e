# SPDX-License-Identifier: Apache-2.0
"""The guest's root file system: a small Debian of the machine's own release, so that programs built
on this machine run in the guest.

debootstrap makes it once, and it is packed as a cpio archive. image.py adds the files that change
from run to run.
"""
import fcntl
import glob
import hashlib
import os
import re
import shutil
import subprocess

import mirror
from arch import AMD64, REPOSITORY, is_own

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
    "usr/lib/*-linux-gnu/gconv",
    "usr/lib/*-linux-gnu/perl-base",
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
    is kept, and a second process waits for it."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "tree.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return make_locked(folder, suite, url, packages)


def make_locked(folder, suite, url, packages):
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


def needed(path, compiler):
    """The names of the libraries that a program or library of another architecture asks for."""
    readelf = compiler.replace("gcc", "readelf")
    said = subprocess.check_output([readelf, "--dynamic", path], text=True)
    return re.findall(r"\(NEEDED\).*\[(.*)\]", said)


def copy_libraries(program, arch, tree):
    """Copies the libraries that a cross compiled program needs from where it was linked."""
    folder = os.path.join("usr/lib", arch.triplet)
    sysroot = os.path.join(REPOSITORY, "build", "sysroot", arch.name, folder)
    names, done = needed(program, arch.compiler), set()
    while names:
        name = names.pop()
        path = os.path.join(sysroot, name)
        if name in done or not os.path.exists(path):
            continue
        done.add(name)
        if not os.path.exists(os.path.join(tree, folder, name)):
            shutil.copy(path, os.path.join(tree, folder, name))
        names += needed(path, arch.compiler)


def make_foreign(folder, suite, arch, packages):
    """A tree of another architecture, whose packages are unpacked and not configured."""
    tree = os.path.join(folder, "root-" + suite)
    command = [os.path.join(REPOSITORY, "tools", "make-sysroot"), arch.name, tree, suite]
    subprocess.run([*command, ",".join(packages)], cwd=REPOSITORY, check=True)
    for name, text in (("passwd", "root:x:0:0:root:/root:/bin/sh\n"), ("group", "root:x:0:\n")):
        path = os.path.join(tree, "etc", name)
        if not os.path.exists(path):
            with open(path, "w") as file:
                file.write(text)
    return tree


def own_tree(folder, *programs):
    """The tree of this machine's release, with Python and the libraries of programs: a whole system
    with its database of packages."""
    suite, (url, _) = mirror.codename(), mirror.mirrors()
    return make_tree(folder, suite, url, linked_packages(*programs))


def make(folder, *programs, arch=AMD64):
    """(tree, archive): the root file system for programs of this machine, or of another
    architecture, with the libraries of its programs as of when it was made."""
    if not is_own(arch):
        tree = make_foreign(folder, mirror.codename(), arch, INCLUDE)
        for program in programs:
            copy_libraries(program, arch, tree)
        archive = tree + ".cpio"
        return tree, archive if os.path.exists(archive) else pack(tree, archive, LEFT_OUT)
    tree = own_tree(folder, *programs)
    archive = tree + ".cpio"
    return tree, archive if os.path.exists(archive) else pack(tree, archive, LEFT_OUT)
