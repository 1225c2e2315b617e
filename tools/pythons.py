# SPDX-License-Identifier: Apache-2.0
"""The CPythons of this machine: pyenv's builds and those on PATH by minor version, the
distribution's, those in root file systems, and builds of other distributors, packed in archives."""
import collections
import glob
import os
import pwd
import re
import shutil
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15")
DISTRIBUTION = "/usr/bin/python3"

# archive: NAME.tar.xz, with the one folder NAME; path: of the executable in it; libraries: the
# folder of its libpython.
Packed = collections.namedtuple("Packed", "archive path libraries like")
PACKED = (
    Packed(
        "docker312", "bin/python3.12", "lib", "Docker's image: gcc 14, shared, LTO, PGO, stripped"
    ),
    Packed(
        "docker313", "bin/python3.13", "lib", "Docker's image: gcc 12, shared, LTO, PGO, stripped"
    ),
    Packed("docker313", "bin/python3.13", "lib-sym", "the same, with symbols"),
    Packed("conda312", "bin/python_sa", "lib", "conda: gcc 12, static, LTO, PGO, stripped"),
    Packed("conda312", "bin/python_sym", "lib", "the same, with symbols"),
    Packed("pbs313", "bin/python_pgo_sa", "lib", "uv: clang 19, static, ThinLTO, PGO, stripped"),
    Packed("pbs313", "bin/python_pgo_sd", "lib", "the same, with symbols"),
    Packed("pbs313", "bin/python_bolt_sa", "lib", "the same through BOLT, stripped"),
    Packed("pbs313", "bin/python_bolt_sd", "lib", "the same through BOLT, with symbols"),
    Packed(
        "pbs314",
        "bin/python_pgo_sa",
        "lib",
        "uv: clang 19, static, ThinLTO, PGO, tail calls, stripped",
    ),
    Packed("pbs314", "bin/python_pgo_sd", "lib", "the same, with symbols"),
    Packed("pbs314", "bin/python_bolt_sa", "lib", "the same through BOLT, stripped"),
    Packed("pbs314", "bin/python_bolt_sd", "lib", "the same through BOLT, with symbols"),
    Packed("alpine313", "bin/python3.13", "lib", "Alpine: musl, shared, LTO, PGO"),
    Packed("musl313", "bin/python3.13", "lib", "musl, shared"),
    Packed("musl313s", "bin/python", "lib", "musl, static in the executable"),
    Packed("musl313s", "bin/python_sa", "lib", "the same, stripped"),
    Packed("jit314", "bin/python3.14", "lib", "with the experimental JIT"),
    Packed("nogil314", "bin/python3.14t", "lib", "free-threaded"),
    Packed("nogil314", "bin/python3.14t_stripped", "lib", "free-threaded, stripped"),
)


def _pyenv_roots():
    if os.environ.get("PYENV_ROOT"):
        yield os.environ["PYENV_ROOT"]
    pyenv = shutil.which("pyenv")
    if pyenv:
        done = subprocess.run(
            [pyenv, "root"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30
        )
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
    sections = subprocess.run(
        ["readelf", "-SW", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30
    )
    return b".symtab" not in sections.stdout


def version_of(path, prefix=()):
    """ "3.11", or None when it does not run."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(
            [*prefix, path, "-I", "-S", "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode().strip() or None


def roots():
    """Root file systems with other CPythons: those in TRACER_ROOTS, a list like PATH, or, if it is
    not set, those that `make roots` made."""
    if "TRACER_ROOTS" in os.environ:
        return [root for root in os.environ["TRACER_ROOTS"].split(os.pathsep) if root]
    return sorted(glob.glob(os.path.join(glob.escape(ROOT), "build", "roots", "*")))


def unstripped():
    """{version: real path} of interpreters that kept their symbol table, pyenv's first, those of
    root file systems last."""
    candidates = []
    for root in _pyenv_roots():
        candidates += sorted(glob.glob(os.path.join(glob.escape(root), "versions/*/bin/python3")))
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        candidates += sorted(
            f
            for f in glob.glob(os.path.join(glob.escape(folder), "python3.*"))
            if re.search(r"/python3\.\d+$", f)
        )
    for root in roots():  # tests/machines/roots.py
        candidates += sorted(
            glob.glob(os.path.join(glob.escape(root), "opt/unstripped/bin/python3.*"))
        )
    found = {}
    for path in dict.fromkeys(os.path.realpath(c) for c in candidates):
        if is_elf(path) and not is_stripped(path):
            found.setdefault(version_of(path), path)
    return {version: found[version] for version in VERSIONS if version in found}


def newest():
    """Path of the newest of unstripped(), or None. One in a root file system is used only if there
    is no other."""
    found = list(unstripped().values())
    own = [
        path
        for path in found
        if not any(path.startswith(os.path.realpath(root) + os.sep) for root in roots())
    ]
    return (own or found or [None])[-1]


def pyenv(version):
    """Path of pyenv's interpreter of a version, which need not be one of VERSIONS; or None."""
    for root in _pyenv_roots():
        for path in sorted(
            glob.glob(os.path.join(glob.escape(root), "versions", version + ".*", "bin", "python"))
        ):
            return path
    return None


def distribution():
    """Path of the distribution's stripped CPython, or None."""
    if not os.path.exists(DISTRIBUTION):
        return None
    path = os.path.realpath(DISTRIBUTION)
    return path if is_elf(path) and is_stripped(path) else None


def in_roots():
    """{"folder:python3.N": (root, path within it)} of roots()."""
    found = {}
    for root in roots():
        for path in sorted(glob.glob(os.path.join(glob.escape(root), "usr/bin/python3.*"))):
            name = os.path.basename(path)
            if re.match(r"python3\.\d+d?$", name) and is_elf(path):
                found["%s:%s" % (os.path.basename(os.path.normpath(root)), name)] = (
                    root,
                    "/usr/bin/" + name,
                )
    return found


def packed_name(packed):
    """A name of one word: "conda312:python_sa", "docker313:lib-sym/python3.13"."""
    library = packed.libraries + "/" if packed.libraries != "lib" else ""
    return "%s:%s%s" % (packed.archive, library, os.path.basename(packed.path))


def archives():
    """The folder of the archives: PYTHONS, or a folder beside the checkout."""
    return os.environ.get("PYTHONS") or os.path.join(os.path.dirname(ROOT), "shared", "pythons")


def unpack(packed, folder):
    """Unpacks an archive below a folder, once. Returns the path, or None if there is no archive."""
    archive, path = os.path.join(archives(), packed.archive + ".tar.xz"), os.path.join(
        folder, packed.archive
    )
    if os.path.exists(path) or not os.path.exists(archive):
        return path if os.path.exists(path) else None
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as beside:
        subprocess.run(["tar", "-xf", archive, "-C", beside], check=True, timeout=300)
        os.rename(os.path.join(beside, packed.archive), path)
    return path


def unpacked(packed):
    """(root or None, path within it, prefix of the command) of a packed interpreter that runs here
    or in one of roots(); LookupError names what is absent."""
    for root in [None, *roots()]:
        folder = unpack(
            packed, root + "/tmp/pythons" if root else os.path.join(ROOT, "build", "pythons")
        )
        if not folder:
            raise LookupError("no %s.tar.xz in %s" % (packed.archive, archives()))
        folder = folder[len(root or "") :]
        path, prefix = os.path.join(folder, packed.path), [
            "env",
            "LD_LIBRARY_PATH=" + os.path.join(folder, packed.libraries),
        ]
        if version_of(path, [*(["chroot", root] if root else []), *prefix]):
            return root, path, prefix
    raise LookupError("it runs neither here nor in a root file system")


if __name__ == "__main__":
    for version, path in unstripped().items():
        print(version, path)
    print("distribution", distribution())
    for name in in_roots():
        print(name)
    for packed in PACKED:
        try:
            print(packed_name(packed), unpacked(packed)[1])
        except LookupError as error:
            print(packed_name(packed), "absent: %s" % error)
