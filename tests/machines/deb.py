# SPDX-License-Identifier: Apache-2.0
"""The life of a Debian package in a fresh system: installed, upgraded, used, removed, purged.

    live(system, root, "/path/tracer_1.0-1_amd64.deb", log)
"""
import contextlib
import os
import re
import shutil
import subprocess
import tempfile

from fresh import Failed

HERE = os.path.dirname(os.path.abspath(__file__))
LEAKING_LINE = os.path.join(os.path.dirname(os.path.dirname(HERE)), "debian/tests/leaking-line")
COMPILERS = "for name in cc gcc g++ clang make bpftool; do ! command -v $name || exit 1; done"
EARLIER = "0.1.9-1"  # lower than every version since
EDITED = "# as its administrator wants it\n"
APT_KEEPS = ("var/lib/apt/", "var/log/apt/")  # its own records
APT = "apt-get -y -q --no-install-recommends "


def files(root):
    """Every path in a root but what is gone when a machine starts."""
    found = set()
    for folder, folders, names in os.walk(root):
        inside = os.path.relpath(folder, root)
        if inside == ".":
            folders[:] = [name for name in folders if name != "run"]
        found.update(os.path.normpath(os.path.join(inside, name)) for name in folders + names)
    return found


def conffiles(system, root, log):
    """The package's files below /etc that an upgrade keeps as they were edited."""
    lines = system.run(root, "dpkg-query -W -f '${Conffiles}' tracer", log).splitlines()
    return [line.split()[0].lstrip("/") for line in lines if line.strip()]


def earlier(folder, deb):
    """Packs a package again as an earlier version, whose conffiles were others. Returns its path."""
    tree = os.path.join(folder, "tree")
    path = os.path.join(folder, "tracer_%s.deb" % EARLIER)
    subprocess.run(("dpkg-deb", "-R", deb, tree), check=True)
    control = os.path.join(tree, "DEBIAN", "control")
    with open(control) as file:
        text = re.sub(r"^Version: .*$", "Version: " + EARLIER, file.read(), flags=re.M)
    with open(control, "w") as file:
        file.write(text)
    with contextlib.suppress(FileNotFoundError), open(tree + "/DEBIAN/conffiles") as file:
        for name in file.read().split():
            with open(tree + name, "a") as conffile:
                conffile.write("# of the version before\n")
    command = ("dpkg-deb", "--root-owner-group", "-Znone", "-b", tree, path)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return path


def check_kept(root, edited, when):
    for name in edited:
        path = os.path.join(root, name)
        if not os.path.exists(path):
            raise Failed("%s: no %s any more" % (when, name))
        with open(path) as file:
            if file.read() != EDITED:
                raise Failed("%s: %s is not as it was edited" % (when, name))


def live(system, root, deb, log):
    """root: a system with the lists of packages, or with what the package depends on. Failed if a
    step fails, an edited conffile is lost before it is purged, or a file is left."""
    with tempfile.TemporaryDirectory() as folder:
        for path in (deb, earlier(folder, deb), LEAKING_LINE):
            shutil.copy(path, os.path.join(root, "root"))
    deb = "/root/" + os.path.basename(deb)
    # Without the package at first: what is there then is not its own.
    system.run(root, APT + 'satisfy "$(dpkg-deb -f %s Depends), python3"' % deb, log)
    system.run(root, COMPILERS, log)
    before = files(root)
    system.run(root, APT + "install /root/tracer_%s.deb" % EARLIER, log)
    edited = conffiles(system, root, log)
    for name in edited:
        with open(os.path.join(root, name), "w") as file:
            file.write(EDITED)
    # As an administrator answers who is asked.
    system.run(root, APT + "-o Dpkg::Options::=--force-confold install " + deb, log)
    check_kept(root, edited, "upgraded")
    system.run(root, "tracer --version && tracer doctor", log)
    system.run(root, "/root/" + os.path.basename(LEAKING_LINE), log)
    system.run(root, "dpkg --remove tracer", log)
    check_kept(root, edited, "removed")
    system.run(root, "dpkg --purge tracer", log)
    left = sorted(path for path in files(root) - before if not path.startswith(APT_KEEPS))
    if left:
        raise Failed("purged, but left: " + ", ".join(left))
