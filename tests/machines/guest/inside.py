# SPDX-License-Identifier: Apache-2.0
"""Runs every feature in the guest, each one in a process of its own and with a time limit.

Serial ports: the first is the console. The second has one line of JSON per result, the third a log
of failures, the fourth the data that the host checks.
"""
import fcntl
import json
import os
import re
import select
import signal
import sys
import time
import traceback

os.environ.setdefault("TRACER_TEST_TIMEOUT", "600")

import guest  # noqa: E402
from guest import Absent, Machine, Reboot  # noqa: E402
import capture  # noqa: E402
import life  # noqa: E402
import locked  # noqa: E402
import mix  # noqa: E402
import native  # noqa: E402
import python  # noqa: E402
import system  # noqa: E402

MODULES = (system, python, native, life, capture, mix, locked)
BAD = re.compile(
    r"WARNING|BUG:|Oops|Call Trace|leaking uprobe|\bstall|soft lockup|hung task|"
    r"blocked for more than"
)
# What hangs on the kernel most. The kernels of a quick run have these each, and share the others.
OF_EACH = re.compile(r"doctor|verifier|--backend .*|no task storage|8 threads, .*|lockdown=.*")
# A quick run has these: one of each kind that hangs on the kernel. The others are for make kernels;
# of the kernel that CI has, tests/e2e has them.
QUICK = re.compile(
    r"doctor|verifier|heap, unstripped|census, stripped, 4 threads|exact, unstripped, 1 thread|"
    r"growth, stripped, 4 threads|--backend perf, unstripped|no task storage|native layer|"
    r"lockdown=confidentiality|8 threads, preempt=full"
)
FOLDER = "/tmp/work"
LIMIT = 900  # seconds for one feature, unless its module says otherwise
ALIVE_S = 10  # the host hears of a guest at least this often


class KernelLog:
    def __init__(self):
        self.fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)

    def new(self):
        """The messages since the last call."""
        messages = []
        while True:
            try:
                record = os.read(self.fd, 8192).decode(errors="replace")
            except BlockingIOError:
                return messages
            except BrokenPipeError:  # overwritten before it was read
                messages.append("BUG: kernel messages were lost")
                continue
            messages.append(record.partition(";")[2].partition("\n")[0])


def bad_messages(messages):
    """What the kernel says when it kills for memory, as a feature has it do, has a trace, too."""
    killed = any("invoked oom-killer" in message for message in messages)
    return [
        message
        for message in messages
        if BAD.search(message) and not (killed and "Call Trace" in message)
    ]


def one_line(text):
    """Shortens a reason. For a tracer that ended, it is the last line of its output, since libbpf
    may print thousands."""
    said = re.findall(r"^(?:the tracer ended: )?(tracer: .*)$", text, re.M)
    if text.startswith("the tracer ended: ") and said:
        text = "the tracer ended: " + said[-1].replace("tracer: ", "", 1)
    return " ".join(text.split())


def run_feature(function, machine):
    """Runs a feature in this process; returns (status, reason)."""
    try:
        function(machine)
        return "yes", machine.notes.pop("remark", "")
    except Absent as error:
        return "absent", str(error)
    except Reboot as error:
        return "reboot", str(error)
    except AssertionError as error:
        statement = traceback.format_exc().strip().split("\n")[-2].strip()
        return "no", one_line(str(error)) or statement
    except Exception as error:
        return "no", "%s: %s" % (type(error).__name__, one_line(str(error)))


def child(function, machine, pipe):
    """The process of one feature."""
    os.setsid()
    status, reason = run_feature(function, machine)
    try:
        machine.end()
    except Exception as error:
        status, reason = "no", "cannot be ended: %s" % error
    result = {"status": status, "reason": reason[:1000], "notes": machine.notes}
    said = {"log": machine.said() if status == "no" else "", "sent": machine.sent}
    with os.fdopen(pipe, "w") as out:
        out.write(json.dumps(dict(result, **said)))
    os._exit(0)


def kill_strays():
    """Ends what a feature left: every process but us, our parents and the kernel's threads."""
    spared = {os.getpid(), os.getppid(), 1}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in spared:
            continue
        try:
            with open("/proc/%s/stat" % name) as file:
                fields = file.read().rpartition(")")[2].split()
            if fields[1] != "2" and name != "2" and fields[0] != "Z":
                os.kill(int(name), signal.SIGKILL)
        except OSError:
            pass


def run_bounded(function, machine, limit, alive=lambda: None):
    """The result of a feature as a dict; a feature that exceeds the limit is killed. alive() is
    called every ALIVE_S until then."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        child(function, machine, writer)
    os.close(writer)
    text, ended, end = b"", False, time.monotonic() + limit
    while not ended and time.monotonic() < end:
        wait = min(ALIVE_S, max(0, end - time.monotonic()))
        ready, _, _ = select.select([reader], [], [], wait)
        alive()
        data = os.read(reader, 65536) if ready else b""
        ended = bool(ready) and not data
        text += data
    os.close(reader)
    kill_strays()
    os.waitpid(pid, 0)
    try:
        return json.loads(text)
    except ValueError:
        reason = "its process died" if ended else "no end within %d s" % limit
        return {"status": "no", "reason": reason, "notes": {}, "log": "", "sent": []}


def port(name):
    fd = os.open("/dev/" + name, os.O_WRONLY | os.O_NOCTTY)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)
    return os.fdopen(fd, "w", buffering=1)


def wanted_features(settings, line):
    """(name, function, seconds) of the features that the command line selects:
    machines.only=PATTERN,..., machines.after=PATTERN, machines.share=I/N: every Nth of the features
    that are not OF_EACH, from the Ith on."""
    only = [pattern for pattern in line.get("machines.only", "").split(",") if pattern]
    after = line.get("machines.after")
    mine, shares = map(int, line.get("machines.share", "0/1").split("/"))
    turn = 0  # of the features that are shared
    for module in MODULES:
        for name, function in module.features(settings):
            if settings["quick"] and not only and not QUICK.fullmatch(name):
                continue
            shared = not OF_EACH.fullmatch(name)
            chosen = not shared or turn % shares == mine
            turn += shared
            if only:
                chosen = any(re.search(pattern, name) for pattern in only)
            if chosen and not after:
                yield name, function, getattr(module, "LIMIT", LIMIT)
            if after and re.fullmatch(after, name):
                after = None


def run_one(name, function, limit, settings, kernel, alive):
    """The result of a feature, with the messages that the kernel logged during it."""
    begin = time.monotonic()
    result = run_bounded(function, Machine(settings, FOLDER), limit, alive)
    result.update(feature=name, seconds=round(time.monotonic() - begin, 1))
    messages = kernel.new()
    bad = bad_messages(messages)
    if bad and result["status"] != "reboot":
        reason = "%s kernel: %s" % (result["reason"], "; ".join(bad[:3]))
        result.update(status="no", reason=reason.strip())
    result["log"] += "\nkernel:\n%s\n" % "\n".join(messages)
    return result


def tell(result, results, log, files):
    """Writes a result to the ports."""
    text, sent = result.pop("log"), result.pop("sent")
    if result["status"] == "no":
        log.write("=== %(feature)s: %(reason)s\n" % result + text)
    for parts in sent:
        print(json.dumps(dict(parts, feature=result["feature"])), file=files)
    print(json.dumps(result), file=results)
    print("%(feature)s: %(status)s (%(seconds)s s) %(reason)s" % result)


def main():
    settings = guest.read_settings()
    ports = [port(name) for name in settings["ports"]]
    os.makedirs(FOLDER, exist_ok=True)
    kernel = KernelLog()
    boot = {"boot": os.uname().release, "bad": bad_messages(kernel.new())}
    print(json.dumps(boot), file=ports[0])

    def alive():
        print(json.dumps({"alive": True}), file=ports[0])

    for name, function, limit in wanted_features(settings, guest.command_line()):
        tell(run_one(name, function, limit, settings, kernel, alive), *ports)
    print(json.dumps({"end": True}), file=ports[0])
    for file in ports:
        file.close()


if __name__ == "__main__":
    sys.exit(main())
