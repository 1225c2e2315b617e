# SPDX-License-Identifier: Apache-2.0
"""The Debian package that `make deb` left in build/deb/: what it has, what lintian says of it, and
its life in a fresh system without compilers."""
import glob
import os
import re
import shutil
import subprocess

import pytest

import arch
import deb
import fresh
import mirror
import root

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build")


def package(name):
    (path,) = glob.glob(os.path.join(BUILD, "deb", name + "_*.deb"))
    return path


def said_by(*command):
    return subprocess.check_output(command, cwd=ROOT, text=True)


def listed(path):
    """The files in a package, with the names that they had before they were packed."""
    lines = said_by("dpkg-deb", "-c", path).splitlines()
    names = [line.split()[5] for line in lines if not line.startswith("d")]
    names = {re.sub(r"^\./|\.gz$", "", name) for name in names}
    # Where /lib is a link to it, which depends on the release.
    return {re.sub(r"^lib/", "usr/lib/", name) for name in names}


def field(name):
    return said_by("dpkg-deb", "-f", package("tracer"), name).strip()


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    subprocess.run(("dpkg-deb", "-x", package("tracer"), folder), check=True)
    return str(folder)


def test_version():
    with open(os.path.join(ROOT, "Makefile")) as file:
        (version,) = re.findall(r"^VERSION\s*:= (\S+)$", file.read(), re.M)
    assert re.fullmatch(re.escape(version) + r"-\d+", field("Version"))


def test_files(tmp_path):
    """What `make install` installs, and what every package has."""
    zsh = "/usr/share/zsh/vendor-completions"
    command = ("make", "install", "DESTDIR=%s" % tmp_path, "PREFIX=/usr", "ZSH_DIR=" + zsh)
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    paths = [os.path.join(path, name) for path, _, names in os.walk(tmp_path) for name in names]
    installed = {re.sub(r"\.gz$", "", os.path.relpath(path, tmp_path)) for path in paths}
    # debhelper calls it so, as policy wants.
    installed.remove("usr/share/doc/tracer/CHANGELOG.md")
    assert listed(package("tracer")) == installed | {
        "usr/share/doc/tracer/changelog",
        "usr/share/doc/tracer/changelog.Debian",
        "usr/share/doc/tracer/copyright",
        "usr/share/lintian/overrides/tracer",
    }


def test_conffiles(tmp_path):
    """An upgrade keeps every file below /etc as it was edited."""
    subprocess.run(("dpkg-deb", "-e", package("tracer"), tmp_path), check=True)
    conffiles = tmp_path / "conffiles"
    kept = conffiles.read_text().split() if conffiles.exists() else []
    assert sorted(kept) == sorted("/" + n for n in listed(package("tracer")) if n[:4] == "etc/")


def test_symbols_are_in_a_package_of_their_own(unpacked):
    program = os.path.join(unpacked, "usr/bin/tracer")
    (build_id,) = re.findall(r"Build ID: (\w+)", said_by("readelf", "-n", program))
    symbols = "usr/lib/debug/.build-id/%s/%s.debug" % (build_id[:2], build_id[2:])
    assert symbols in listed(package("tracer-dbgsym"))
    assert ".debug_info" not in said_by("readelf", "-SW", program)


def test_hardening(unpacked):
    program = os.path.join(unpacked, "usr/bin/tracer")
    dynamic = said_by("readelf", "-dlW", program)
    assert re.search(r"\(FLAGS\).*BIND_NOW", dynamic)
    assert re.search(r"\(FLAGS_1\).*PIE", dynamic)
    assert "GNU_RELRO" in dynamic
    symbols = said_by("readelf", "--dyn-syms", "-W", program)
    assert "__stack_chk_fail@" in symbols
    assert re.search(r"__\w*printf_chk@", symbols)


def test_no_path_of_the_build(unpacked):
    with open(os.path.join(unpacked, "usr/bin/tracer"), "rb") as file:
        assert os.path.join(BUILD, "deb").encode() not in file.read()


def test_build_is_silent():
    with open(os.path.join(BUILD, "deb", "log")) as file:
        log = file.read()
    assert "dh_auto_build" in log or "dh build" in log
    assert not re.findall(r".*\bwarning\b.*", log, re.I)


def test_build_depends():
    """Those of the package are what tools/install-deps installs, and what all packages need."""
    with open(os.path.join(ROOT, "tools/install-deps")) as file:
        (wanted,) = re.findall(r"^build='([^']*)'", file.read(), re.M)
    with open(os.path.join(ROOT, "debian/control")) as file:
        (depends,) = re.findall(r"^Build-Depends: (.*?)^\S", file.read(), re.M | re.S)
    essential = {"gcc", "libc6-dev", "linux-libc-dev"}  # of build-essential
    own = {"debhelper-compat (= 13)", "python3-pytest <!nocheck>"}
    assert {each.strip() for each in depends.split(",")} - own == set(wanted.split()) - essential


def test_lintian():
    if not shutil.which("lintian"):
        pytest.skip("no lintian")
    command = ("lintian", "--fail-on", "error,warning", package("tracer"), package("tracer-dbgsym"))
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert not done.stdout and done.returncode == 0, done.stdout + done.stderr


def test_life():
    """In a Debian of this machine's release, the one that virtual machines are made of."""
    missing = [name for name in ("debootstrap", "unshare") if not shutil.which(name)]
    if missing or os.geteuid() != 0:
        pytest.skip("no " + (", ".join(missing) or "root"))
    tree = root.own_tree(arch.folder(arch.AMD64), os.path.join(BUILD, "tracer"))
    system = fresh.System(mirror.codename(), os.path.join(BUILD, "packages", mirror.codename()))
    log = system.path("log")
    open(log, "w").close()
    try:
        system.copy(tree, system.root)
        deb.live(system, system.root, package("tracer"), log)
    finally:
        fresh.remove(system.root)
    with open(log) as file:
        assert "leak.py:4: size=" in file.read()
