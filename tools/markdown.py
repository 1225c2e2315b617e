# SPDX-License-Identifier: Apache-2.0
"""The parts of pages that a command writes: a table, and numbered reasons below it."""
import re


def table(header, rows):
    """Markdown with columns of equal width."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [header, ["-" * max(width, 3) for width in widths], *rows]
    cells = [[c.ljust(w) for c, w in zip(row, widths)] for row in lines]
    return "".join("| %s |\n" % " | ".join(row) for row in cells)


class Notes:
    """Numbered reasons; equal ones share their number."""

    def __init__(self):
        self.numbers = {}

    def number(self, reason):
        return self.numbers.setdefault(reason, len(self.numbers) + 1)

    def text(self):
        return "\n".join("%d. %s" % (n, reason) for reason, n in self.numbers.items()) + "\n"


def shown(reason):
    """A reason without the parts that differ from run to run, and with Markdown's characters
    escaped."""
    text = re.sub(r"\bPID \d+", "PID N", reason)
    text = re.sub(r"\b[\d.]+ ms\b", "N ms", text)
    text = text.replace("|", "/").replace("*", "\\*").replace("<", "\\<")
    return text if len(text) <= 300 else text[:297] + "..."
