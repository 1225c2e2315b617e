# SPDX-License-Identifier: Apache-2.0
"""tools/add-version: the table of layouts can be regenerated from the installed interpreters."""
import os
import shutil
import subprocess
import sys

import pytest

from harness import ROOT, TIMEOUT

sys.path.insert(0, os.path.join(ROOT, "tools"))
import offsets_columns

pytestmark = pytest.mark.unprivileged


@pytest.fixture
def add_version(tmp_path):
    """Runs the tool on a copy of the table without one version. Returns the finished process, and
    whether the table is complete or unchanged."""

    def run(version, *sources):
        table = str(tmp_path / "table.inc")
        offsets = offsets_columns.read()
        del offsets[0x300 + int(version.split(".")[1]), "BUILD_RELEASE"]
        offsets_columns.write(table, offsets)
        with open(table) as file:
            cut = file.read()
        with open(offsets_columns.TABLE) as file:
            text = file.read()
        command = [os.path.join(ROOT, "tools", "add-version"), "--table", table, *sources]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=10 * TIMEOUT
        )
        with open(table) as file:
            return done, file.read() == text, file.seek(0) or file.read() == cut

    return run


@pytest.mark.versions("3.8", "3.13")
def test_file(python, libpython, add_version):
    done, whole, _ = add_version(python.version, libpython(python))
    assert done.returncode == 0, done.stderr
    assert "%s added: libpython" % python.version in done.stdout
    assert whole


def test_package(tmp_path, any_python, libpython, add_version):
    """A package like Debian's python3.N-dbg: one file for each build ID, among other files."""
    if not shutil.which("dpkg-deb"):
        pytest.skip("no dpkg-deb on this machine")
    package = tmp_path / "package"
    debug = package / "usr/lib/debug/.build-id/ab"
    debug.mkdir(parents=True)
    shutil.copy(libpython(any_python), debug / "cdef.debug")
    shutil.copy("/bin/true", debug / "0123.debug")
    (package / "DEBIAN").mkdir()
    (package / "DEBIAN/control").write_text(
        "Package: x\nVersion: 1\nArchitecture: amd64\nMaintainer: x <x@example.org>\nDescription: x\n"
    )
    subprocess.run(
        ["dpkg-deb", "-Znone", "-b", str(package), str(tmp_path / "x.deb")],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=TIMEOUT,
    )
    for source in (tmp_path / "x.deb", package):
        done, whole, _ = add_version(any_python.version, str(source))
        assert done.returncode == 0, done.stderr
        assert done.stdout == "%s added: cdef.debug\n" % any_python.version
        assert whole


def test_refused(tmp_path, add_version):
    """A source without a usable file is reported, and the table is unchanged."""
    (tmp_path / "empty").mkdir()
    for source in ("/bin/true", str(tmp_path / "empty"), str(tmp_path / "absent")):
        done, _, untouched = add_version("3.13", source)
        assert done.returncode and done.stderr and untouched
