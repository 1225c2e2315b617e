# SPDX-License-Identifier: Apache-2.0
"""Root file systems with the CPythons that the machine's own distribution lacks, for the tests.

usage: python3 tests/machines/roots.py [SUITE…]       (root; default: trixie and testing)

build/roots/SUITE is SUITE's minbase with its interpreters, `python3.N` and `python3.Nd`. Where
Debian has their symbols, `opt/unstripped/bin/python3.N` in it is one that has kept them and runs
outside of it, too. A root that is there stays; another recipe (this file) or place makes it anew.

Prints one line for each suite; the last line is `N passed, N failed[, N skipped]`.
build/roots/.work/SUITE/log has what was said.
"""
import argparse
import collections
import fcntl
import glob
import hashlib
import os
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tools"))

import relocate  # noqa: E402
import unstripped  # noqa: E402
from fresh import System, remove, write  # noqa: E402

BUILD = os.path.join(ROOT, "build")
PLACE = os.path.join(BUILD, "roots")
WORK = os.path.join(PLACE, ".work")
# versions: of the interpreters; symbols: those that are there with their symbols, too; debug: those
# of which there is the build for debugging, with the modules that only it can load; packages: what
# else is installed, to compare with, or to be read.
Recipe = collections.namedtuple("Recipe", "versions symbols debug packages")
GREENLETS = ("python3-gevent", "python3-eventlet")
SUITES = {
    "trixie": Recipe(
        ("3.13",), ("3.13",), ("3.13",), ("python3-memray", "libmimalloc3", *GREENLETS)
    ),
    "testing": Recipe(
        ("3.13", "3.14", "3.15"), ("3.14", "3.15"), ("3.14",), ("libmimalloc3", *GREENLETS)
    ),
}
LOADER = "usr/lib64/ld-linux-x86-64.so.2"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
# What else is in a debug package is of no use here, and its dependencies are half of a desktop's.
UNPACK = """cd /var/cache/apt/archives && apt-get download -q %(package)s
dpkg-deb --fsys-tarfile %(package)s_*.deb | tar -C / --no-same-owner --wildcards -x '%(wanted)s'"""
NEEDS = ("debootstrap", "unshare", "eu-unstrip", "objcopy")


def recipe(suite):
    with open(os.path.abspath(__file__), "rb") as file:
        return hashlib.sha256(file.read() + os.path.join(PLACE, suite).encode()).hexdigest()


def is_made(suite, stamp):
    if not os.path.isdir(os.path.join(PLACE, suite)) or not os.path.exists(stamp):
        return False
    with open(stamp) as file:
        return file.read() == recipe(suite)


def unpack(system, package, wanted, log):
    command = UNPACK % {"package": package, "wanted": "./" + wanted}
    system.run(system.root, command, log)


def unpack_symbols(system, version, log):
    build_id = unstripped.read_build_id(system.root + "/usr/bin/python" + version)
    symbols = os.path.join(unstripped.DEBUG, build_id[:2], build_id[2:] + ".debug")
    unpack(system, "python%s-dbg" % version, symbols, log)


def unpack_debug(system, version, log):
    unpack(system, "python%s-dbg" % version, "usr/bin/python%sd" % version, log)
    unpack(system, "libpython%s-dbg" % version, "usr/lib/python%s/lib-dynload/*" % version, log)


def add_unstripped(system, version, root):
    """The interpreter with its symbols; root: the path at which its loader and libraries will
    be."""
    python = "/usr/bin/python" + version
    path = system.root + os.path.join(unstripped.JOINED, "bin", os.path.basename(python))
    unstripped.join(system.root + python, os.path.join(system.root, unstripped.DEBUG), path)
    subprocess.run(("objcopy", "--strip-debug", path), check=True)
    relocate.relocate(path, os.path.join(root, LOADER), os.path.join(root, LIBRARIES))
    # Wherever it is called from, its modules are found beside it.
    modules = system.root + os.path.join(unstripped.JOINED, "lib", "python" + version)
    os.makedirs(os.path.dirname(modules), exist_ok=True)
    os.symlink("../../../usr/lib/python" + version, modules)


def make(suite, log):
    """build/roots/SUITE, made beside and renamed when whole."""
    made = SUITES[suite]
    root = os.path.join(os.path.realpath(PLACE), suite)
    base = os.path.join(BUILD, "distros", suite)
    system = System(suite, os.path.join(WORK, suite), base)
    system.make_base(log)
    system.unpack(system.root)
    packages = " ".join((*("python" + version for version in made.versions), *made.packages))
    install = "apt-get install -y -q --no-install-recommends " + packages
    system.run(system.root, "apt-get update -q && " + install, log)
    for version in made.debug:
        unpack_debug(system, version, log)
    for version in made.symbols:
        unpack_symbols(system, version, log)
        add_unstripped(system, version, root)
    shutil.rmtree(system.archives)
    for surplus in ("var/lib/apt/lists", "usr/share/doc", unstripped.DEBUG):
        shutil.rmtree(os.path.join(system.root, surplus), ignore_errors=True)
    remove(root)
    os.rename(system.root, root)
    for path in sorted(glob.glob(root + unstripped.JOINED + "/bin/*")):
        subprocess.run((path, "-c", "import _ctypes, threading"), check=True)


def run_suite(suite):
    """(passed, failed or skipped; what to say)."""
    os.makedirs(os.path.join(WORK, suite), exist_ok=True)
    os.makedirs(os.path.join(BUILD, "distros", suite), exist_ok=True)
    stamp, log = (os.path.join(WORK, suite, name) for name in ("made", "log"))
    with open(os.path.join(WORK, suite, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_made(suite, stamp):
            return "passed", "it is there"
        missing = [name for name in NEEDS if not shutil.which(name)]
        if missing:
            return "skipped", "no %s on this machine" % ", ".join(missing)
        open(log, "w").close()
        try:
            make(suite, log)
        except (RuntimeError, subprocess.CalledProcessError) as reason:
            return "failed", str(reason)
        write(os.path.join(WORK, suite), "made", recipe(suite))
    return "passed", "made"


def main():
    parser = argparse.ArgumentParser(description="root file systems with other CPythons")
    parser.add_argument("suites", nargs="*", default=list(SUITES), help="of " + ", ".join(SUITES))
    options = parser.parse_args()
    if not set(options.suites) <= set(SUITES):
        parser.error("suites are " + ", ".join(SUITES))
    if os.geteuid() != 0:
        parser.error("needs root: sudo make roots")
    results = []
    for suite in options.suites:
        began = time.monotonic()
        result, said = run_suite(suite)
        results.append(result)
        word = "ok" if result == "passed" else result
        print("%s, root: %s: %s (%d s)" % (suite, word, said, time.monotonic() - began), flush=True)
    passed, failed, skipped = map(results.count, ("passed", "failed", "skipped"))
    print("%d passed, %d failed%s" % (passed, failed, ", %d skipped" % skipped * bool(skipped)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
