# SPDX-License-Identifier: Apache-2.0
"""A running agent, and a receiver of the profiles that it pushes.

    running = Agent(tracer, folder, "[trace]\\nenabled = no\\n")    returns once it watches
    receiving = Receiver(receiver_built(folder), port)
    receiving.answer("500")             how requests are answered from then on: push_receiver.go
"""
import json
import os
import re
import select
import signal
import subprocess

import harness
from harness import environment, wait_until


def at_once(text):
    """The configuration, with processes traced though they have not run: targets here wait."""
    if "[trace]" not in text:
        text += "\n[trace]\n"
    return text.replace("[trace]\n", "[trace]\nafter-cpu = 0\n")


class Agent:
    """tracer agent with a configuration in a folder; its messages are in a file. rests: processes
    are traced once they have run, as by default."""

    def __init__(self, tracer, folder, text, env=None, watches=True, rests=False):
        self.config, self.log = folder / "agent.conf", folder / "log"
        self.config.write_text(text if rests else at_once(text))
        self.process = subprocess.Popen(
            [tracer, "agent", "--config", self.config],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=open(self.log, "w"),
            env=env or environment(),
        )
        if watches:
            self.said("the agent watches")

    def said(self, text):
        wait_until(
            lambda: text in self.log.read_text() or self.process.poll() is not None,
            "the agent says %r" % text,
        )
        assert text in self.log.read_text(), self.log.read_text()

    def children(self):
        path = "/proc/%d/task/%d/children" % (self.process.pid, self.process.pid)
        with open(path) as file:
            return [int(pid) for pid in file.read().split()]

    def session(self):
        """The session's PID. Evidence has children, too, as long as they read."""
        (pid,) = wait_until(
            lambda: [p for p in self.children() if os.path.exists("/run/tracer/%d.sock" % p)],
            "the session runs",
        )
        return pid

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(harness.TIMEOUT)


def metrics_parsed(text):
    """{(name, labels as they are written): value}"""
    found = {}
    for line in text.splitlines():
        if line[0] != "#":
            name, labels, value = re.fullmatch(r"(\w+)(?:{(.*)})? (\S+)", line).groups()
            assert (name, labels) not in found, "twice: " + line
            found[name, labels] = float(value)
    return found


def receiver_built(folder):
    path = str(folder / "push_receiver")
    env = dict(os.environ, GO111MODULE="off", GOPATH="/usr/share/gocode", GOFLAGS="")
    command = ["go", "build", "-o", path, harness.program("push_receiver.go")]
    subprocess.run(command, env=env, check=True)
    return path


class Receiver:
    """It accepts what is right, until it is told to answer otherwise."""

    def __init__(self, path, port, *args):
        self.port, self.lines, self._rest = port, [], b""
        self.process = subprocess.Popen(
            [path, *args, "127.0.0.1:%d" % port], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.wait("mode")

    def read(self):
        """What it has said by now."""
        while select.select([self.process.stdout], [], [], 0)[0]:
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                break
            *lines, self._rest = (self._rest + data).split(b"\n")
            self.lines += map(json.loads, lines)
        return self.lines

    def wait(self, key, count=1):
        """So many lines with a key from now on, the last one of which is returned."""
        start = len(self.lines)
        found = wait_until(
            lambda: [x for x in self.read()[start:] if key in x][count - 1 :],
            "the receiver says %s" % key,
        )
        return found[0]

    def answer(self, how):
        self.process.stdin.write(how.encode() + b"\n")
        self.process.stdin.flush()
        self.wait("mode")

    def accepted(self):
        assert not [line for line in self.read() if "refused" in line]
        return [line for line in self.lines if "api" in line]

    def end(self):
        self.process.kill()
        self.process.wait()
