# SPDX-License-Identifier: Apache-2.0
"""The newest kernel of a series, chosen by package names and versions."""
import re
import subprocess

import pytest

import packages
from packages import Kernel

LISTED = [
    Kernel("linux-image-6.1.0-9-cloud-amd64", "6.1.27-1", (6, 1, 0)),
    Kernel("linux-image-6.1.0-56-cloud-amd64", "6.1.192-2", (6, 1, 0)),
    Kernel("linux-image-6.1.0-50-cloud-amd64", "6.1.176-1", (6, 1, 0)),
    Kernel("linux-image-6.12.107+deb13-cloud-amd64", "6.12.107-1", (6, 12, 107)),
    Kernel("linux-image-6.12.9+deb13-cloud-amd64", "6.12.9-1", (6, 12, 9)),
    Kernel("linux-image-7.3.4+deb13-cloud-amd64", "7.3.4-1~bpo13+1", (7, 3, 4)),
    Kernel("linux-binary-7.3.4+deb13-cloud-amd64", "7.3.4-1~bpo13+1", (7, 3, 4)),
    Kernel("linux-image-6.12.94+deb12-arm64-16k", "6.12.94-1", (6, 12, 94)),
]


def test_newest_of_a_series():
    assert packages.of_series(LISTED, "6.1").version == "6.1.192-2"
    assert packages.of_series(LISTED, "6.12").version == "6.12.107-1"


def test_a_series_is_no_prefix_of_text():
    assert packages.of_series(LISTED, "6") == packages.of_series(LISTED, "6.12")
    assert packages.of_series(LISTED, "7") == packages.of_series(LISTED, "7.3")
    assert packages.of_series(LISTED, "6.11") is None


def test_the_package_with_the_kernel():
    """From 6.19 on linux-image only depends on linux-binary, which has the kernel."""
    assert packages.of_series(LISTED, "7.3").name.startswith("linux-binary-")


def test_large_pages_are_asked_for():
    assert packages.of_series(LISTED, "6.12-16k").name.endswith("-arm64-16k")
    assert packages.of_series(LISTED, "6.1-16k") is None


def test_choose():
    chosen = packages.choose(LISTED, ("5.15", "6.1", "newest"))
    assert list(chosen) == ["5.15", "6.1", "7.3"]
    assert chosen["5.15"] is None


def test_choose_the_newest_once():
    assert list(packages.choose(LISTED, ("7.3", "newest"))) == ["7.3"]


@pytest.mark.parametrize(
    "low, high",
    (
        ("7.3.4-1~bpo13+1", "7.3.4-1"),
        ("6.1.9-1", "6.1.27-1"),
        ("6.1.27-1", "6.1.27-2"),
        ("7.3~rc1-1", "7.3-1"),
    ),
)
def test_versions_as_dpkg_has_them(low, high):
    assert packages.version_key(low) < packages.version_key(high)
    assert subprocess.run(["dpkg", "--compare-versions", low, "lt", high]).returncode == 0


@pytest.mark.parametrize(
    "name",
    ("linux-image-cloud-amd64", "linux-image-6.1.0-9-amd64", "linux-headers-6.1.0-9-cloud-amd64"),
)
def test_other_packages(name):
    assert not re.match(packages.NAME % "amd64", name)
