# SPDX-License-Identifier: Apache-2.0
"""Writes tables into docs/benchmarks.md, between <!-- NAME --> and <!-- end NAME -->."""
import os
import re

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "benchmarks.md")


def table(rows, title=""):
    """Markdown of rows of text; the first row is the header. title: of several tables."""
    lines = ["| %s |" % " | ".join(row) for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return ("**%s**\n\n" % title if title else "") + "\n".join(lines)


def replace(name, text, path=PAGE):
    """Replaces the text between the markers of that name; KeyError if they do not exist."""
    with open(path) as file:
        old = file.read()
    pattern = r"(<!-- %s -->\n).*?(<!-- end %s -->)" % (re.escape(name), re.escape(name))
    new, count = re.subn(pattern, lambda m: m.group(1) + text + "\n" + m.group(2), old, flags=re.S)
    if count != 1:
        raise KeyError("%s has no place for %s" % (path, name))
    with open(path, "w") as file:
        file.write(new)
