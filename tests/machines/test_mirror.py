# SPDX-License-Identifier: Apache-2.0
"""Mirrors from apt's configuration in both formats, which apt itself parses."""
import mirror
import pytest

DEB822 = """\
# the archive
Types: deb deb-src
URIs: https://mirror.example/debian/
Suites: trixie trixie-updates
# a comment within
Components: main

Types: deb
URIs: https://security.example/debian-security
Suites:
 trixie-security
Components: main

Types: deb
URIs: https://disabled.example/
Suites: trixie-backports
Components: main
Enabled: no

Types: deb-src
URIs: https://sources.example/
Suites: sid
Components: main
"""
LIST = """\
# deb http://comment.example/debian bookworm main
deb http://other.example/apt bookworm stable
deb [arch=amd64] http://mirror.example/debian bookworm main contrib
deb http://mirror.example/debian bookworm-updates main
deb-src http://sources.example/debian sid main
deb http://security.example/debian-security bookworm-security main
"""


@pytest.fixture
def configured(tmp_path):
    """apt's result for files: configured({"a.list": text})."""

    def read(files):
        parts = tmp_path / "sources.list.d"
        parts.mkdir()
        for name, text in files.items():
            (parts / name).write_text(text)
        return mirror.configured("-o", "Dir::Etc=" + str(tmp_path))

    return read


def test_deb822(configured):
    assert configured({"debian.sources": DEB822}) == {
        "trixie": "https://mirror.example/debian",
        "trixie-updates": "https://mirror.example/debian",
        "trixie-security": "https://security.example/debian-security",
    }


def test_the_archive_has_updates(configured):
    """Third parties also name a suite after the release."""
    sources = configured({"all.list": LIST, "saved.list.save": DEB822})
    assert sources["bookworm"] == "http://other.example/apt"
    archive, security = mirror.choose(sources, "bookworm")
    assert archive == "http://mirror.example/debian"
    assert security == "http://security.example/debian-security"
    assert "sid" not in sources


def test_without_security():
    assert mirror.choose({"trixie": "http://a.example"}, "trixie") == ("http://a.example", None)
    assert mirror.choose({}, "trixie") == (None, None)


def test_ubuntu(tmp_path):
    """debootstrap's script names other archives, too."""
    script = tmp_path / "gutsy"
    lines = ("default_mirror http://old.example/ubuntu", "# default_mirror http://archive.no", "default_mirror %s")
    url = "http://archive.example/ubuntu"
    script.write_text("".join("\t%s\n" % line.replace("%s", url) for line in lines))
    assert mirror.ubuntu(script) == url
    script.write_text("default_mirror http://ports.example\n")
    with pytest.raises(RuntimeError):
        mirror.ubuntu(script)
