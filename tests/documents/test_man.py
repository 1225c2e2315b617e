# SPDX-License-Identifier: Apache-2.0
"""Compares the man pages of docs/man/ with the program's own --help: both have the same options,
with the same arguments."""
import os
import re
import shutil
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TRACER = os.path.abspath(os.environ.get("TRACER", os.path.join(ROOT, "build", "tracer")))
PAGES = os.path.join(ROOT, "docs", "man")


def tracer(*args):
    done = subprocess.run(
        [TRACER, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60, check=True
    )
    return done.stdout.decode()


def subcommands():
    return re.findall(r"^  tracer \[?(\w+)", tracer("--help"), re.M)


def page_text(name):
    """The page's Markdown with the files that it includes, as tools/man-page reads it."""
    with open(os.path.join(PAGES, name)) as file:
        return re.sub(
            r"^\[[^]]*\]\(([a-z-]+\.md)\)$", lambda m: page_text(m[1]), file.read(), flags=re.M
        )


def options_of_help(text):
    """{"-d, --duration=SEC", …} from the output of argp: an option ends where its description
    begins."""
    return {
        re.split(r"\s{2,}", line.strip())[0] for line in re.findall(r"^ {2,6}-[-\w].*$", text, re.M)
    }


def options_of_page(text):
    """The same set from the terms of a page, without the markup for bold and italic text."""
    return {re.sub(r"[*\\]", "", term) for term in re.findall(r"^(\*\*-.*)\n: ", text, re.M)}


@pytest.mark.parametrize("name", subcommands())
def test_options(name):
    shown, told = options_of_help(tracer(name, "--help")), options_of_page(
        page_text("tracer-%s.1.md" % name)
    )
    assert shown == told, "only --help has %s; only the page has %s" % (
        sorted(shown - told),
        sorted(told - shown),
    )


def test_underscores():
    """Markdown takes underscores outside of code for emphasis."""
    for name in os.listdir(PAGES):
        text = re.sub(r"`[^`]*`", "", page_text(name))
        assert not re.findall(r"\w*[^\W\\]_\w+", text), name


def test_every_subcommand_has_a_page():
    pages = {name for name in os.listdir(PAGES) if name.endswith(".1.md")}
    assert pages == {"tracer.1.md", *("tracer-%s.1.md" % name for name in subcommands())}
    overview = page_text("tracer.1.md")
    assert re.findall(r"^\*\*tracer-(\w+)\*\*\(1\)$", overview, re.M) == subcommands()


@pytest.mark.skipif(
    not (shutil.which("lowdown") and shutil.which("man")), reason="lowdown or man is missing"
)
def test_pages_are_formatted(tmp_path):
    for name in sorted(os.listdir(PAGES)):
        if not name.endswith(".1.md"):
            continue
        page = tmp_path / name[: -len(".md")]
        made = subprocess.run(
            [os.path.join(ROOT, "tools", "man-page"), os.path.join(PAGES, name), "1"],
            stdout=subprocess.PIPE,
            timeout=60,
            check=True,
        )
        page.write_bytes(made.stdout)
        shown = subprocess.run(
            ["man", "--warnings", "-l", str(page)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80"},
            timeout=60,
            check=True,
        )
        assert not shown.stderr, shown.stderr.decode()
        assert re.search(
            r"^NAME\n +%s +- " % name[: -len(".1.md")], shown.stdout.decode(), re.M
        ), shown.stdout.decode()
