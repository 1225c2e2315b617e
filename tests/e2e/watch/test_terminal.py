# SPDX-License-Identifier: Apache-2.0
"""On a terminal, without the live view, one line shows the progress of a trace. It is erased at the
end."""
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading

import pytest
from harness import TIMEOUT, environment, wait_until

CLEAR = "\r\x1b[K"


class Terminal:
    """A program on a terminal of its own with that many columns. said: what it wrote there."""

    def __init__(self, columns, *command, **env):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        modes = termios.tcgetattr(slave)
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, modes)
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *map(str, command)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment(TERM="xterm", **env),
        )
        os.close(slave)
        self.said = ""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        try:
            while data := os.read(self.master, 65536):
                self.said += data.decode()
        except OSError:  # all processes that had it open have ended
            pass

    def press(self, key):
        os.write(self.master, key)

    def wait(self):
        status = self.process.wait(TIMEOUT)
        self.reader.join(TIMEOUT)
        os.close(self.master)
        return status

    def screen(self):
        """The remaining lines, as a terminal shows them."""
        lines, column = [""], 0
        for piece in re.split(r"(\r|\n|\x1b\[K)", self.said):
            if piece == "\r":
                column = 0
            elif piece == "\n":
                lines.append("")
                column = 0
            elif piece == "\x1b[K":
                lines[-1] = lines[-1][:column]
            else:
                lines[-1] = lines[-1][:column] + piece + lines[-1][column + len(piece) :]
                column += len(piece)
        return lines

    def drawn(self):
        """Each text that the line has shown so far."""
        return re.findall(re.escape(CLEAR) + r"(\d[^\r\n]*)", self.said)


def test_line(tracer, start, any_python):
    """The line is redrawn every second, moves below messages, and is erased before the report."""
    target = start(any_python, "busy.py")
    terminal = Terminal(80, tracer, "--no-live", "-v", "--overhead", "90", "-p", target.pid)

    def seen():
        assert terminal.process.poll() is None, terminal.said
        drawn = terminal.drawn()
        return len(drawn) >= 2 and "probes took" in terminal.said.split(drawn[0], 1)[1]

    wait_until(seen, "the line was there, a message, and the line again")
    terminal.press(b"\x03")
    assert terminal.wait() == 0, terminal.said
    drawn = terminal.drawn()
    assert all(
        re.match(
            r"\d+ s: \S+ [KM]?i?B in [\d,]+ blocks, cost \d+\.\d %, [\d,]+ lost; Ctrl-C ends it$",
            line,
        )
        for line in drawn
    ), drawn
    screen = terminal.screen()
    # On a busy machine the report may begin with a warning: the heap's last walk is too old.
    report = next(
        i for i, line in enumerate(screen) if line.startswith(("tracer: python", "Warning: "))
    )
    # A long message goes on in an indented line.
    assert all(line.startswith(("tracer: ", "    ")) for line in screen[:report]), "\n".join(screen)
    assert not [
        line
        for line in screen
        if "Ctrl-C" in line or "lost;" in line or line.startswith(tuple(drawn))
    ], screen


def test_light_cost(tracer, start, any_python):
    """What the budget is a share of: of a process that takes little CPU time, a fifth of a CPU. Of
    its own time the probes of a window take most."""
    target = start(any_python, "light.py")
    terminal = Terminal(80, tracer, "--no-live", "-d", "8", "-p", target.pid)
    assert terminal.wait() == 0, terminal.said
    costs = [float(cost) for cost in re.findall(r"cost (\d+\.\d) %", "".join(terminal.drawn()))]
    assert costs and max(costs) <= 15, costs


def test_room(tracer, start, any_python):
    """The line fits into the terminal's width. On a terminal that cannot erase it, it is not
    printed."""
    target = start(any_python, "golden.py")
    terminal = Terminal(40, tracer, "--no-live", "-p", target.pid)
    dumb = Terminal(80, "env", "TERM=dumb", tracer, "-d", "1.2", "-p", target.pid)
    wait_until(terminal.drawn, "the line is drawn")
    terminal.press(b"\x03")
    assert terminal.wait() == dumb.wait() == 0
    assert all(len(line) < 40 and line.endswith(" lost") for line in terminal.drawn())
    assert "\x1b" not in dumb.said and "Ctrl-C" not in dumb.said


@pytest.mark.unprivileged
def test_long_message(tracer):
    """A message is broken at spaces where the terminal ends; what is piped is one line."""
    words = (tracer, "report", "/no such folder" * 9 + "/trace.pb.gz")
    piped = subprocess.run(
        words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT
    )
    terminal = Terminal(60, *words)
    assert terminal.wait() == piped.returncode != 0
    lines = terminal.said.replace("\r\n", "\n").rstrip("\n").split("\n")
    assert piped.stderr.count("\n") == 1 and len(lines) > 2, (piped.stderr, lines)
    assert max(map(len, lines)) <= 60, lines
    assert all(line.startswith("    ") for line in lines[1:]), lines
    assert " ".join(line.strip() for line in lines) == piped.stderr.strip()
