# SPDX-License-Identifier: Apache-2.0
"""An interpreter for benchmarks and tables, wherever it is installed."""
import os
import re
import shutil
import subprocess
import tempfile

import pythons

HERE = os.path.dirname(os.path.abspath(__file__))
TIMEOUT = 900


def environment():
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    env.update(PYTHONHASHSEED="0", PYTHONDONTWRITEBYTECODE="1")
    return env


class Python:
    """An interpreter, in a root file system of its own or in the host's, with a copy of the
    workloads beside it. before: the words of a command that execs the interpreter."""

    def __init__(self, path, folder, root=None, before=()):
        self.path, self.root = path, root
        self.prefix = [*(["chroot", root] if root else []), *before]
        self.host_folder = tempfile.mkdtemp(dir=root + "/tmp" if root else folder)
        self.folder = self.host_folder[len(root) :] if root else self.host_folder
        os.chmod(self.host_folder, 0o755)
        shutil.copytree(
            os.path.join(HERE, "bench", "workloads"),
            self.host_folder,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        self.stripped = pythons.is_stripped((root or "") + path)
        self.version = pythons.version_of(path, self.prefix)
        self.debug = bool(re.search(r"python3\.\d+d$", path))
        self.free_threaded = bool(re.search(r"python3\.\d+t(_stripped)?$", path))
        self.label = "CPython %s%s, %s%s" % (
            self.version,
            " debug build" if self.debug else " free-threaded" if self.free_threaded else "",
            "stripped" if self.stripped else "with symbols",
            ", in " + os.path.basename(os.path.normpath(root)) if root else "",
        )

    def workload(self, name, rounds, nframe=0):
        return [self.path, os.path.join(self.folder, name + ".py"), str(nframe), str(rounds)]

    def mapped(self, name):
        """The file of that name that the interpreter has mapped, or ""."""
        code = (
            "print(*{l.split(None, 5)[5].strip() for l in open('/proc/self/maps') if '/%s' in l})"
            % name
        )
        done = subprocess.run(
            [*self.prefix, self.path, "-S", "-c", code], stdout=subprocess.PIPE, timeout=TIMEOUT
        )
        return done.stdout.decode().strip()

    def runtime_file(self):
        """The file that contains the interpreter's allocators."""
        return self.mapped("libpython") or self.path

    def find(self, *names):
        """The first of these programs that exists in the interpreter's file system, or None."""
        places = [
            os.path.join(folder, name)
            for name in names
            for folder in ("/usr/sbin", "/usr/bin", "/usr/local/bin")
        ]
        return next(
            (place for place in places if os.access((self.root or "") + place, os.X_OK)), None
        )

    def remove(self):
        shutil.rmtree(self.host_folder, ignore_errors=True)


def packed(which, folder):
    """A packed interpreter (pythons.PACKED); LookupError names what is absent."""
    root, path, before = pythons.unpacked(which)
    python = Python(path, folder, root, before)
    python.label = "%s (%s)" % (pythons.packed_name(which), which.like)
    return python


def everything(folder):
    """Every CPython found: those with symbols, the distribution's, and those in root file
    systems."""
    for path in [*pythons.unstripped().values(), pythons.distribution()]:
        if path:
            yield Python(path, folder)
    for root, path in pythons.in_roots().values():
        yield Python(path, folder, root)
