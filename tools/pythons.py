# SPDX-License-Identifier: Apache-2.0
"""Which CPythons this machine has: pyenv's builds and those on PATH, by minor version."""
import glob
import os
import pwd
import re
import shutil
import subprocess

VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15")
DISTRIBUTION = "/usr/bin/python3"


def _pyenv_roots():
    if os.environ.get("PYENV_ROOT"):
        yield os.environ["PYENV_ROOT"]
    pyenv = shutil.which("pyenv")
    if pyenv:
        done = subprocess.run([pyenv, "root"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30)
        yield done.stdout.decode().strip()
    yield os.path.expanduser("~/.pyenv")
    if os.environ.get("SUDO_USER"):  # sudo hides the caller's PATH and home
        try:
            yield os.path.join(pwd.getpwnam(os.environ["SUDO_USER"]).pw_dir, ".pyenv")
        except KeyError:
            pass


def is_elf(path):
    """False for a wrapper script such as pyenv's shims."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def is_stripped(path):
    sections = subprocess.run(["readelf", "-SW", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30)
    return b".symtab" not in sections.stdout


def version_of(path, prefix=()):
    """"3.11", or None when it does not run."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([*prefix, path, "-I", "-S", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode().strip() or None


def unstripped():
    """{version: real path} of interpreters that kept their symbol table, pyenv's first."""
    candidates = []
    for root in _pyenv_roots():
        candidates += sorted(glob.glob(os.path.join(glob.escape(root), "versions/*/bin/python3")))
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        candidates += sorted(f for f in glob.glob(os.path.join(glob.escape(folder), "python3.*")) if re.search(r"/python3\.\d+$", f))
    found = {}
    for path in dict.fromkeys(os.path.realpath(c) for c in candidates):
        if is_elf(path) and not is_stripped(path):
            found.setdefault(version_of(path), path)
    return {version: found[version] for version in VERSIONS if version in found}


def pyenv(version):
    """Path of pyenv's interpreter of a version, whether it is one of VERSIONS or not; None."""
    for root in _pyenv_roots():
        for path in sorted(glob.glob(os.path.join(glob.escape(root), "versions", version + ".*", "bin", "python"))):
            return path
    return None


def distribution():
    """Path of the distribution's stripped CPython, or None."""
    if not os.path.exists(DISTRIBUTION):
        return None
    path = os.path.realpath(DISTRIBUTION)
    return path if is_elf(path) and is_stripped(path) else None


def in_roots():
    """{"folder:python3.N": (root, path within it)} of the root file systems that TRACER_ROOTS names, as PATH does."""
    found = {}
    for root in filter(None, os.environ.get("TRACER_ROOTS", "").split(os.pathsep)):
        for path in sorted(glob.glob(os.path.join(glob.escape(root), "usr/bin/python3.*"))):
            name = os.path.basename(path)
            if re.match(r"python3\.\d+d?$", name) and is_elf(path):
                found["%s:%s" % (os.path.basename(os.path.normpath(root)), name)] = (root, "/usr/bin/" + name)
    return found


if __name__ == "__main__":
    for version, path in unstripped().items():
        print(version, path)
    print("distribution", distribution())
    for name in in_roots():
        print(name)
