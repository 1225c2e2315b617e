# SPDX-License-Identifier: Apache-2.0
"""Every option of tracer that the documents name exists: in `code` and in blocks of commands."""
import glob
import os
import re

import pytest
from test_man import ROOT, options_of_help, subcommands, tracer

# Options of other programs that stand alone in the documents.
OTHERS = {"--no-children", "--sort", "--max-stack", "--add", "--temporary-allocations", "--other"}
OTHERS |= {"--cap-add", "--security-opt", "--user"}  # docker's


def options_of(subcommand):
    return {
        name
        for spec in options_of_help(tracer(subcommand, "--help"))
        for name in re.findall(r"-[-\w]+", spec.split("=")[0])
    }


@pytest.fixture(scope="module")
def options():
    """{subcommand: its options}; "" has those of all subcommands."""
    known = {name: options_of(name) | {"--help"} for name in subcommands()}
    known["trace"] |= {"--version", "-V", "-h"}  # without a subcommand
    known[""] = set().union(*known.values())
    return known


def codes(text):
    """The text within each `…`, and each line of a block."""
    blocks = re.findall(r"^```(?:sh|text)\n(.*?)^```$", text, re.M | re.S)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    lines = [
        line[2:] if line.startswith("$ ") else line
        for block in blocks
        for line in block.splitlines()
    ]
    return lines + re.findall(r"`([^`]+)`", " ".join(prose.splitlines()))


@pytest.mark.parametrize(
    "path",
    [
        "README.md",
        "CHANGELOG.md",
        *(os.path.relpath(p, ROOT) for p in sorted(glob.glob(os.path.join(ROOT, "docs", "*.md")))),
    ],
)
def test_options_exist(path, options):
    with open(os.path.join(ROOT, path)) as file:
        text = file.read()
    for code in codes(text):
        match = re.match(r"(?:sudo )?(?:build/)?tracer (?:(\w+)\b)?|(?=-[-a-z])", code)
        if not match:
            continue
        ours = re.sub(r"\s#\s.*| -- .*|'[^']*'", "", code)
        known = options.get(match[1] or ("trace" if match[0] else ""), options[""])
        named = set(re.findall(r"(?<![\w-])(?:--[a-z][-a-z]*|-[a-z]\b)", ours)) - OTHERS
        assert named <= known, "%s has no option %s" % (code, sorted(named - known))
