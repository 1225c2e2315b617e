# SPDX-License-Identifier: Apache-2.0
"""Where this machine gets its Debian packages from: the base URLs in apt's own configuration.

    archive, security = mirrors()      of "trixie" and "trixie-security", say; security may be None
"""
import glob
import os
import re

APT = "/etc/apt"


def parse_deb822(text):
    """[(uri, suite)] of a .sources file; disabled stanzas and source packages are left out."""
    found = []
    for stanza in re.split(r"\n\s*\n", text):
        lines = [line for line in stanza.split("\n") if not line.startswith("#")]
        fields = {}
        for line in lines:
            match = re.match(r"([A-Za-z-]+):\s*(.*)", line)
            if match:
                key = match[1].lower()
                fields[key] = match[2].split()
            elif line[:1].isspace() and fields:
                fields[key] += line.split()
        if "deb" not in fields.get("types", ()) or fields.get("enabled") == ["no"]:
            continue
        found += [(u, s) for u in fields.get("uris", ()) for s in fields.get("suites", ())]
    return found


def parse_list(text):
    """[(uri, suite)] of the one-line format."""
    found = []
    for line in text.split("\n"):
        match = re.match(r"\s*deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)", line)
        if match:
            found.append((match[1], match[2]))
    return found


def configured(apt=APT):
    """[(uri, suite)] in the order in which apt reads them."""
    found = []
    paths = [os.path.join(apt, "sources.list")]
    paths += sorted(glob.glob(os.path.join(apt, "sources.list.d", "*")))
    for path in paths:
        parse = parse_deb822 if path.endswith(".sources") else parse_list
        if path.endswith((".list", ".sources")) and os.path.isfile(path):
            with open(path) as file:
                found += parse(file.read())
    return found


def choose(sources, codename):
    """(archive, security) for a release; either may be None."""

    def first(*suites):
        return next((uri.rstrip("/") for uri, suite in sources if suite in suites), None)

    # Third parties name suites after the release, too: their archives have no -updates.
    archive = first(codename + "-updates") or first(codename)
    return archive, first(codename + "-security", codename + "/updates")


def codename(path="/etc/os-release"):
    """VERSION_CODENAME, e.g. "trixie"."""
    with open(path) as file:
        match = re.search(r'^VERSION_CODENAME="?([a-z]+)', file.read(), re.M)
    return match[1] if match else None


def mirrors():
    archive, security = choose(configured(), codename())
    if not archive:
        raise RuntimeError("apt's configuration names no archive of this release: %s" % APT)
    return archive, security
