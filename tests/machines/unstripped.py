# SPDX-License-Identifier: Apache-2.0
"""A CPython with its symbol table for the guest: pyenv's, or Debian's with symbols restored."""
import glob
import os
import shutil
import subprocess

import mirror
import packages
import pythons
from arch import AMD64, is_own

PREFERRED = ("3.13", "3.14", "3.12", "3.15", "3.11", "3.10", "3.9", "3.8")
JOINED = "/opt/unstripped"
DEBUG = "usr/lib/debug/.build-id"
NOT_NEEDED = shutil.ignore_patterns(
    "test",
    "tests",
    "idlelib",
    "ensurepip",
    "site-packages",
    "config-*",
    "lib2to3",
    "tkinter",
    "turtledemo",
    "pydoc_data",
    "*.opt-*.pyc",
    "*.a",
)


def from_pyenv(tree):
    """Copies pyenv's interpreter into tree at its built-in path. Returns the path, or None."""
    found = pythons.unstripped()
    version = next((v for v in PREFERRED if v in found), None)
    if not version or not os.path.dirname(found[version]).endswith("/bin"):
        return None
    path = found[version]
    prefix = os.path.dirname(os.path.dirname(path))
    there = tree + prefix
    os.makedirs(there + "/bin")
    os.makedirs(there + "/lib")
    shutil.copy(path, there + "/bin")
    for library in glob.glob(prefix + "/lib/libpython%s.so*" % version):
        shutil.copy(library, there + "/lib", follow_symlinks=False)
    modules = "/lib/python" + version
    shutil.copytree(prefix + modules, there + modules, ignore=NOT_NEEDED, symlinks=True)
    return path


def from_debian(tree, guest, cache, arch):
    """Restores the symbols of the guest's own stripped program. Returns its path."""
    name = os.path.basename(os.readlink(guest + pythons.DISTRIBUTION))
    python = guest + "/usr/bin/" + name
    folder = os.path.join(cache, name + "-dbg")
    if not os.path.isdir(folder):
        shutil.rmtree(folder + ".new", ignore_errors=True)
        os.makedirs(folder + ".new")
        # The symbols must be of exactly this version.
        status = "--admindir=%s/var/lib/dpkg" % guest
        query = ["dpkg-query", status, "--show", "--showformat=${Version}", name + "-minimal"]
        package = name + "-dbg"
        if is_own(arch):
            package += "=" + subprocess.check_output(query, text=True)
        else:
            package += "/" + mirror.codename()
        apt = packages.Apt(os.path.join(cache, "apt"), arch)
        apt.run("apt-get", "download", package, cwd=folder + ".new")
        (deb,) = glob.glob(folder + ".new/*.deb")
        subprocess.run(["dpkg-deb", "--extract", deb, folder + ".new"], check=True)
        os.rename(folder + ".new", folder)
    path = os.path.join(JOINED, "bin", name)
    join(python, os.path.join(folder, DEBUG), tree + path)
    return path


def join(python, debug, path):
    """Writes a stripped program with its symbols, which are in a folder of debug files."""
    build_id = read_build_id(python)
    symbols = os.path.join(debug, build_id[:2], build_id[2:] + ".debug")
    if not os.path.exists(symbols):
        raise RuntimeError("no symbols of %s in %s: are they of another version?" % (python, debug))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    subprocess.run(["eu-unstrip", "-o", path, python, symbols], check=True)
    os.chmod(path, 0o755)


def read_build_id(path):
    said = subprocess.check_output(["readelf", "-n", path], text=True)
    return said.split("Build ID:")[1].split()[0]


def put(tree, guest, cache, arch=AMD64):
    """Puts an interpreter into tree; returns its path there. guest: the guest's root; cache: where
    apt/ is."""
    return is_own(arch) and from_pyenv(tree) or from_debian(tree, guest, cache, arch)
