# SPDX-License-Identifier: Apache-2.0
"""Mirrors out of apt's configuration in both formats."""
import mirror

DEB822 = """\
# the archive
Types: deb deb-src
URIs: https://mirror.example/debian/
Suites: trixie trixie-updates
# a comment within
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: https://security.example/debian-security
Suites:
 trixie-security
Components: main

Types: deb
URIs: https://disabled.example/
Suites: trixie
Enabled: no

Types: deb-src
URIs: https://sources.example/
Suites: trixie
"""
LIST = """\
# deb http://comment.example/debian bookworm main
deb http://other.example/apt bookworm stable
deb [arch=amd64 signed-by=/etc/key.gpg] http://mirror.example/debian bookworm main contrib
deb http://mirror.example/debian bookworm-updates main
deb-src http://sources.example/debian bookworm main
deb http://security.example/debian-security bookworm-security main
"""


def test_deb822():
    assert mirror.parse_deb822(DEB822) == [
        ("https://mirror.example/debian/", "trixie"),
        ("https://mirror.example/debian/", "trixie-updates"),
        ("https://security.example/debian-security", "trixie-security"),
    ]


def test_one_line_format():
    found = mirror.parse_list(LIST)
    assert ("http://mirror.example/debian", "bookworm") in found
    assert not [uri for uri, _ in found if "comment" in uri or "sources" in uri]


def test_the_archive_has_updates():
    """Third parties call a suite after the release, too."""
    archive, security = mirror.choose(mirror.parse_list(LIST), "bookworm")
    assert archive == "http://mirror.example/debian"
    assert security == "http://security.example/debian-security"


def test_without_security():
    assert mirror.choose([("http://a.example/", "trixie")], "trixie") == ("http://a.example", None)
    assert mirror.choose([], "trixie") == (None, None)


def test_configured(tmp_path):
    """What apt does not read, we do not; a missing sources.list is none."""
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (parts / "b.sources").write_text(DEB822)
    (parts / "a.list").write_text("deb http://first.example/ trixie main\n")
    (parts / "c.list.save").write_text("deb http://saved.example/ trixie main\n")
    found = mirror.configured(str(tmp_path))
    assert found[0] == ("http://first.example/", "trixie")
    assert len(found) == 4
