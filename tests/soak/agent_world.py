# SPDX-License-Identifier: Apache-2.0
"""What goes on around the agent while it is tried: brief processes, services, containers, a
receiver that fails, disks that are full.

Every part is started by its class and ended by end(). Targets run a copy of the interpreter, so
that probes of other tracers are not taken for the agent's.
"""
import collections
import ctypes
import fcntl
import glob
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time

import agents
import bpf_objects
import containers
import harness
import services

HERE = os.path.dirname(os.path.abspath(__file__))
ID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
NAME = "soak%d" % (os.getpid() % 10000)  # targets' names begin with it: other soaks have theirs
QUIET = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
WORKERS = 7  # of a service, beside the process that started them
RATE = 40  # requests a second of a service
ROLES = {"tracer-web": "web", "tracer-push": "push", "tracer-links": "links"}
ROLES_ALL = ("agent", "session", *ROLES.values(), "others")


def interpreter(folder, name, path="/usr/bin/python3"):
    """A copy of an interpreter, Debian's if no other is named, whose processes have that name."""
    return shutil.copy2(os.path.realpath(path), os.path.join(folder, name))


class Part(threading.Thread):
    """A thread that calls step() until end(). What went wrong is in self.wrong."""

    def __init__(self):
        super().__init__(daemon=True)
        self.stopping, self.wrong = threading.Event(), []

    def run(self):
        try:
            while not self.stopping.is_set():
                self.step()
        except Exception as error:  # pylint: disable=broad-except
            self.wrong.append("%s ended: %r" % (type(self).__name__, error))

    def end(self):
        self.stopping.set()
        self.join()


class Churn(Part):
    """Processes that allocate and end, so many a second."""

    def __init__(self, folder, rate):
        super().__init__()
        self.python, self.rate = interpreter(folder, NAME + "-brief"), rate
        self.running, self.count, self.due = [], 0, time.monotonic()
        self.start()

    def step(self):
        command = [self.python, "-S", harness.program("short.py")]
        self.running.append(subprocess.Popen(command, env=harness.environment(), **QUIET))
        self.count += 1
        self.reap()
        self.due = max(self.due + 1 / self.rate, time.monotonic() - 1)
        self.stopping.wait(max(0, self.due - time.monotonic()))

    def reap(self):
        for process in self.running:
            if process.poll():
                self.wrong.append("a brief process has ended with %d" % process.returncode)
        self.running = [process for process in self.running if process.returncode is None]

    def end(self):
        super().end()
        for process in self.running:
            process.wait(harness.TIMEOUT)
        self.reap()


class Service:
    """gunicorn with some workers, and a client that asks at an even rate."""

    def __init__(self, folder, name):
        port = harness.free_port()
        python = interpreter(folder, name)
        command = [python, "/usr/bin/gunicorn", "-w", str(WORKERS), "-b", "127.0.0.1:%d" % port]
        command += ["--log-level", "error", "steady_shop:application"]
        env = harness.environment(PYTHONPATH=HERE)
        self.process = subprocess.Popen(command, env=env, start_new_session=True, **QUIET)
        harness.wait_until(lambda: len(self.pids()) > WORKERS, name + " has its workers")
        harness.wait_until(lambda: services.answers(port), name + " answers")
        words = [services.PYTHON, os.path.join(services.APPS, "client.py"), str(RATE)]
        words.append("http://127.0.0.1:%d/" % port)
        self.client, self.began = services.Client(words, None), time.monotonic()

    def pids(self):
        path = "/proc/%d/task/%d/children" % (self.process.pid, self.process.pid)
        with open(path) as file:
            return [self.process.pid, *map(int, file.read().split())]

    def figures(self):
        """(requests that were answered, CPU time in ns)"""
        requests, cpu_ns = self.client.counted()[0], 0
        for pid in self.pids():
            with open("/proc/%d/schedstat" % pid) as file:
                cpu_ns += int(file.read().split()[0])
        return requests, cpu_ns

    def rate(self):
        """CPUs that a process takes."""
        seconds = time.monotonic() - self.began
        return self.figures()[1] / 1e9 / seconds / len(self.pids())

    def end(self):
        self.client.kill()
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Boxes(Part):
    """Containers, one after another; every second one is killed by the kernel, for memory."""

    def __init__(self, folder, count, seconds):
        super().__init__()
        os.mkdir(folder)
        self.python = interpreter(folder, NAME + "-box")
        self.docker = containers.Docker(folder)
        self.docker.load([self.python])
        self.pause, self.left, self.count, self.oom = seconds / count, count, 0, 0
        self.start()

    def step(self):
        if not self.left:
            self.stopping.wait()
            return
        began, self.left = time.monotonic(), self.left - 1
        limit = ("--memory", "48m")
        box = self.docker.start(self.python, "fills_memory.py", "10", options=limit)
        try:
            self.count += 1
            if self.count % 2:
                box.step()
                status = box.process.wait(harness.TIMEOUT)
                if status != 128 + signal.SIGKILL:
                    self.wrong.append("a container has ended with %d" % status)
                self.oom += 1
            else:
                self.stopping.wait(2)
                self.docker.kill(box)
        finally:
            box.kill()
        self.stopping.wait(max(0, self.pause - (time.monotonic() - began)))

    def end(self):
        super().end()
        self.docker.close()


class Receiving(Part):
    """A receiver that is down half of the time, and answers otherwise than it should for most of
    the rest. acked: how often each id was acknowledged."""

    MODES = "ok ok ok ok ok huge 429 500 hang close reset half".split()

    def __init__(self, folder, seed, always=None):
        super().__init__()
        self.program, self.port = agents.receiver_built(folder), harness.free_port()
        self.random, self.always = random.Random(seed), always
        self.receiver, self.acked = None, collections.Counter()
        self.changes, self.until, self.time, self.since = 0, 0.0, collections.Counter(), 0.0
        self.mode = "down"
        self.change()
        self.start()

    def drain(self):
        if self.receiver:
            for line in self.receiver.read():
                if "refused" in line:
                    self.wrong.append("a profile is not right: " + line["refused"])
                elif "api" in line:
                    self.acked[line["id"].encode()] += 1
            self.receiver.lines.clear()

    def change(self):
        now = time.monotonic()
        if self.since:
            self.time[self.mode] += now - self.since
        down = self.receiver is not None
        self.mode = self.always or ("down" if down else self.random.choice(self.MODES))
        self.until, self.since = now + self.random.uniform(2, 6), now
        self.changes += 1
        if self.mode == "down":
            self.receiver.end()
            self.drain()
            self.receiver = None
        elif not self.receiver:
            self.receiver = agents.Receiver(self.program, self.port)
            self.receiver.answer(self.mode + " Retry-After: 2" * (self.mode == "429"))

    def step(self):
        self.drain()
        if time.monotonic() >= self.until:
            self.change()
        self.stopping.wait(0.05)

    def accept(self):
        """From now on it takes what it gets."""
        self.always, self.until = "ok", 0
        if self.receiver and self.mode != "ok":
            self.receiver.answer("ok")
            self.mode = "ok"

    def end(self):
        super().end()
        if self.receiver:
            self.receiver.end()
            self.drain()


class Spool(Part):
    """What is put into the spool and removed from it, by inotify: made and gone."""

    MOVED_TO, DELETE, OVERFLOW = 0x80, 0x200, 0x4000

    def __init__(self, folder):
        super().__init__()
        self.folder, self.made, self.gone = folder, 0, 0
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        mask = self.MOVED_TO | self.DELETE
        if self.fd < 0 or libc.inotify_add_watch(self.fd, os.fsencode(folder), mask) < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        self.start()

    def step(self):
        try:
            data = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            self.stopping.wait(0.02)
            return
        while data:
            _, mask, _, size = struct.unpack_from("iIII", data)
            name, data = data[16 : 16 + size].rstrip(b"\0"), data[16 + size :]
            if mask & self.OVERFLOW:
                self.wrong.append("inotify has lost events")
            if not name.endswith(b".1"):
                continue
            if mask & self.MOVED_TO:
                self.made += 1
            else:
                self.gone += 1

    def names(self):
        return [name for name in os.listdir(self.folder) if name.endswith(".1")]

    def ids(self):
        """Those of the profiles that wait."""
        found = set()
        for name in self.names():
            with open(os.path.join(self.folder, name), "rb") as file:
                found.add(ID.findall(file.read())[-1])
        return found


class Disk:
    """A small file system of its own, which can be filled."""

    def __init__(self, folder, size):
        self.folder, self.filler = folder, os.path.join(folder, "filler")
        os.mkdir(folder, mode=0o700)
        options = "size=%s,mode=700" % size
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)

    def fill(self):
        with open(self.filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

    def free(self):
        os.unlink(self.filler)

    def end(self):
        subprocess.run(["umount", "-l", self.folder], check=True)


def clock_stepped(hours, seconds):
    """The machine's clock is wrong for a moment. False: it is not, since end-to-end tests run."""
    shift = hours * 3600
    with open(os.path.join(tempfile.gettempdir(), "tracer-tests-machine.lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        time.clock_settime(time.CLOCK_REALTIME, time.time() + shift)
        try:
            time.sleep(seconds)
        finally:
            time.clock_settime(time.CLOCK_REALTIME, time.time() - shift)
    return True


# --- the processes of an agent --------------------------------------------------------------------


class Family:
    """The processes of all agents that were started with its environment, whoever their parent is,
    and what they have in the kernel."""

    def __init__(self):
        self.mark = b"TRACER_SOAK=%d-%d" % (os.getpid(), time.monotonic_ns())
        self.objects = bpf_objects.BpfObjects()

    def environment(self):
        name, value = self.mark.decode().split("=")
        return harness.environment(**{name: value})

    def processes(self):
        """{pid: name}; forked children have the environment of the program that was started."""
        found = {}
        for path in glob.glob("/proc/[0-9]*"):
            try:
                with open(path + "/environ", "rb") as file:
                    if self.mark not in file.read().split(b"\0"):
                        continue
                with open(path + "/comm") as file:
                    found[int(path[6:])] = file.read().rstrip("\n")
            except OSError:
                pass
        return found

    def roles(self, agent):
        """{pid: role} of the processes of one agent; those that come and go are "others"."""
        roles = {}
        children = agent.children()
        for pid, name in self.processes().items():
            direct = "session" if pid in children and name == "tracer" else "others"
            roles[pid] = "agent" if pid == agent.process.pid else ROLES.get(name, direct)
        return roles

    def left(self):
        """What is there after their end."""
        own = self.processes()
        found = ["%s (PID %d)" % (name, pid) for pid, name in own.items()]
        return found + self.objects.left(own)


def memory_of(pid, what="Pss_Anon"):
    """Bytes that it has of its own: the anonymous part of PSS. Pages of files, which are the
    program, count less while other tracers run."""
    with open("/proc/%d/smaps_rollup" % pid) as file:
        return int(re.search(r"^%s:\s+(\d+) kB" % what, file.read(), re.M)[1]) << 10


def descriptors_of(pid):
    return len(os.listdir("/proc/%d/fd" % pid))
