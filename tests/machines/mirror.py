# SPDX-License-Identifier: Apache-2.0
"""Where this machine gets its Debian packages from: the base URLs in its own apt configuration.

    archive, security = mirrors()      e.g. of "trixie" and "trixie-security"; security may be None
    url = ubuntu()                     the base URL of Ubuntu's archive
"""
import re
import subprocess


def configured(*options):
    """{suite: the first URI that has it}; apt parses both formats of its sources."""
    # apt has no package lists here, so the only suites that it knows are those that a source names.
    command = ["apt-get", *options, "indextargets", "--no-release-info"]
    command += ["--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages"]
    found = {}
    for line in subprocess.check_output(command, text=True).splitlines():
        suite, uri = line.split()
        found.setdefault(suite, uri.rstrip("/"))
    return found


def choose(sources, codename):
    """(archive, security) for a release; either may be None."""

    def first(*suites):
        return next((sources[suite] for suite in suites if suite in sources), None)

    # Third parties also name suites after the release, but their archives have no -updates.
    archive = first(codename + "-updates", codename)
    return archive, first(codename + "-security", codename + "/updates")


def codename(path="/etc/os-release"):
    """VERSION_CODENAME, e.g. "trixie"."""
    with open(path) as file:
        match = re.search(r'^VERSION_CODENAME="?([a-z]+)', file.read(), re.M)
    return match[1] if match else None


def ubuntu(script="/usr/share/debootstrap/scripts/gutsy"):
    """Ubuntu's archive, as debootstrap knows it. It has the packages of arm64, too."""
    with open(script) as file:
        urls = re.findall(r"^\s*default_mirror\s+(\S+)$", file.read(), re.M)
    url = next((url for url in urls if "//archive." in url), None)
    if not url:
        raise RuntimeError("debootstrap names no archive of Ubuntu")
    return url


def mirrors():
    archive, security = choose(configured(), codename())
    if not archive:
        raise RuntimeError("apt's sources name no archive of this release")
    return archive, security
