# SPDX-License-Identifier: Apache-2.0
"""A CPython with its symbol table for the guest: one of pyenv's, else Debian's own joined with its symbols again."""
import glob
import os
import shutil
import subprocess

import pythons

PREFERRED = ("3.13", "3.14", "3.12", "3.15", "3.11", "3.10", "3.9", "3.8")
JOINED = "/opt/unstripped"
NOT_NEEDED = shutil.ignore_patterns(
    "test", "tests", "idlelib", "ensurepip", "site-packages", "config-*", "lib2to3", "tkinter",
    "turtledemo", "pydoc_data", "*.opt-*.pyc", "*.a",
)


def from_pyenv(tree):
    """Copies one into tree under the name it has here, which it has built in. Its path, or None where there is none."""
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
    shutil.copytree(prefix + "/lib/python" + version, there + "/lib/python" + version, ignore=NOT_NEEDED, symlinks=True)
    return path


def from_debian(tree, cache):
    """The distribution's own program as it was before its symbols were taken out. Its path."""
    python = os.path.realpath(pythons.DISTRIBUTION)
    name = os.path.basename(python)
    folder = os.path.join(cache, name + "-dbg")
    if not os.path.isdir(folder):
        shutil.rmtree(folder + ".new", ignore_errors=True)
        os.makedirs(folder + ".new")
        subprocess.run(["apt-get", "download", "-q", name + "-dbg"], cwd=folder + ".new", check=True, stdout=subprocess.DEVNULL)
        (deb,) = glob.glob(folder + ".new/*.deb")
        subprocess.run(["dpkg-deb", "--extract", deb, folder + ".new"], check=True)
        os.rename(folder + ".new", folder)
    build_id = read_build_id(python)
    symbols = os.path.join(folder, "usr/lib/debug/.build-id", build_id[:2], build_id[2:] + ".debug")
    if not os.path.exists(symbols):
        raise RuntimeError("%s-dbg has no symbols of %s: is it another version?" % (name, python))
    path = os.path.join(JOINED, "bin", name)
    os.makedirs(os.path.dirname(tree + path))
    subprocess.run(["eu-unstrip", "-o", tree + path, python, symbols], check=True)
    os.chmod(tree + path, 0o755)
    return path


def read_build_id(path):
    said = subprocess.run(["readelf", "-n", path], check=True, stdout=subprocess.PIPE, text=True).stdout
    return said.split("Build ID:")[1].split()[0]


def put(tree, cache):
    """Puts an unstripped CPython into tree; its path in there."""
    return from_pyenv(tree) or from_debian(tree, cache)
