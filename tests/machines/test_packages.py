# SPDX-License-Identifier: Apache-2.0
"""The newest kernel of a series, chosen by package names and versions."""
import gzip
import re
import struct
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
    Kernel("linux-image-unsigned-7.9.0-14-generic-64k", "7.9.0-14.14", (7, 9, 0)),
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
    assert packages.of_series(LISTED, "7.9-64k").name.endswith("-generic-64k")
    for series in ("6.1-16k", "6.12-64k", "7.9", "7.9-16k"):
        assert packages.of_series(LISTED, series) is None
    assert packages.of_series(LISTED, "newest").release == (7, 3, 4)


def test_choose():
    chosen = packages.choose(LISTED, ("5.15", "6.1", "newest"))
    assert list(chosen) == ["5.15", "6.1", "7.3"]
    assert chosen["5.15"] is None


def test_choose_the_newest_once():
    assert list(packages.choose(LISTED, ("7.3", "newest"))) == ["7.3"]


def test_a_kernel_that_unpacks_itself():
    packed = gzip.compress(b"the kernel")
    head = b"MZ\0\0zimg" + struct.pack("<II", 64, len(packed)) + bytes(8)
    program = head + b"gzip".ljust(40, b"\0") + packed
    assert packages.boot_image(program + b"more") == b"the kernel"
    assert packages.boot_image(b"MZ another") == b"MZ another"
    with pytest.raises(RuntimeError):
        packages.boot_image(head + b"lzo".ljust(40, b"\0") + packed)
    with pytest.raises(RuntimeError):
        packages.boot_image(program[:-1])


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
    (
        "linux-image-cloud-amd64",
        "linux-image-6.1.0-9-amd64",
        "linux-headers-6.1.0-9-cloud-amd64",
        "linux-image-unsigned-7.0.0-14-generic",
        "linux-image-7.0.0-14-generic-64k",
    ),
)
def test_other_packages(name):
    assert not re.match(packages.NAME % "amd64", name)
