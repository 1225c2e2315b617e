# SPDX-License-Identifier: Apache-2.0
"""CPythons of other Debian releases for a guest of another architecture, each in a root file system
of its own that holds what they need. Nothing of it is configured.
"""
import glob
import os
import shutil
import subprocess

import packages
import root

FOLDER = "roots"  # in the guest
RELEASES = (("3.13", "trixie"), ("3.14", "testing"))
NEEDED = ("libc6", "libexpat1", "zlib1g", "libgcc-s1")


def unpack(apt, version, suite, tree):
    """Unpacks the interpreter and its libraries."""
    python = "python%s-minimal" % version
    library = "libpython%s-" % version
    names = (python, library + "minimal", library + "stdlib", *NEEDED)
    debs = tree + ".debs"
    shutil.rmtree(debs, ignore_errors=True)
    os.makedirs(debs)
    apt.run("apt-get", "download", *("%s/%s" % (name, suite) for name in names), cwd=debs)
    os.makedirs(tree)
    for name in ("lib", "bin"):
        os.makedirs(os.path.join(tree, "usr", name))
        os.symlink("usr/" + name, os.path.join(tree, name))
    for deb in glob.glob(debs + "/*.deb"):
        subprocess.run(["dpkg-deb", "--extract", deb, tree], check=True)
    shutil.rmtree(debs)
    for name in root.LEFT_OUT:
        for path in glob.glob(os.path.join(tree, name)):
            shutil.rmtree(path)
    for name in ("proc", "t"):
        os.makedirs(os.path.join(tree, name))


def archive(folder, arch):
    """({version: its root in the guest}, the archive); made only once. packages.fetch() has fetched
    the lists of packages."""
    tree, packed = os.path.join(folder, "releases"), os.path.join(folder, "releases.cpio")
    if not os.path.exists(packed):
        shutil.rmtree(tree, ignore_errors=True)
        os.makedirs(os.path.join(tree, FOLDER))
        apt = packages.Apt(os.path.join(folder, "apt"), arch)
        for version, suite in RELEASES:
            unpack(apt, version, suite, os.path.join(tree, FOLDER, suite))
        root.pack(tree, packed)
    return {version: "/%s/%s" % (FOLDER, suite) for version, suite in RELEASES}, packed
