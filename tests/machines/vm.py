# SPDX-License-Identifier: Apache-2.0
"""Boots a kernel in qemu and reads its guest's output from the serial ports.

KVM is used if it boots a kernel, which the existence of /dev/kvm does not guarantee. Otherwise qemu
emulates the processor.
"""
import json
import os
import re
import socket
import subprocess
import time

from arch import AMD64, serial_ports

TRIAL_S = 10  # until a kernel's first message
STILL_S = 300  # without a line from a guest, which sends one every few seconds
MONITOR_S = 5  # for qemu's answer
PROCESSORS = 2
# An emulated machine that has a small share of a processor misses timer interrupts and stands still
# for a while. Neither is the kernel's fault; a processor that does not come back is.
PATIENCE = "no_timer_check rcupdate.rcu_cpu_stall_timeout=200 watchdog_thresh=60"
COMMAND_LINE = "rdinit=/init panic=-1 mitigations=off loglevel=5 log_buf_len=4M " + PATIENCE
FLAGS_BITS = 22  # of EFLAGS; the others are 0
PORTS = ("console", "results", "log", "files")


def command(accelerator, kernel, initrd, append, outputs, limit, arch=AMD64, monitor=None):
    """qemu's command, under timeout(1), so that a machine ends soon after a run was killed.
    monitor: the path of a socket for qemu's monitor."""
    serial = serial_ports(arch, outputs)
    bounded = ["timeout", "-k", "5", str(limit + 60), arch.qemu]
    machine = [*arch.accelerators[accelerator], "-smp", str(PROCESSORS), "-m", arch.memory]
    machine += ["-nodefaults"]
    append = "console=%s %s" % (arch.console, append)
    boot = ["-kernel", kernel, *(("-initrd", initrd) if initrd else ()), "-append", append]
    asked = "unix:%s,server=on,wait=off" % monitor if monitor else "none"
    silent = ["-display", "none", "-monitor", asked, "-no-reboot"]
    return [*bounded, *machine, *boot, *silent, *serial]


def stop(process):
    if process.poll() is None:
        process.terminate()
    process.wait()


def choose_accelerator(folder, kernel, arch=AMD64):
    """ "kvm" if a kernel prints a message under it, else "tcg"."""
    if "kvm" not in arch.accelerators or not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    console = os.path.join(folder, "kvm-trial")
    open(console, "w").close()
    append = "earlyprintk=serial panic=-1"
    process = subprocess.Popen(
        command("kvm", kernel, None, append, [console], TRIAL_S),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        end = time.monotonic() + TRIAL_S
        while time.monotonic() < end:
            with open(console, errors="replace") as file:
                if "Linux version" in file.read():
                    return "kvm"
            if process.poll() is not None:
                break
            time.sleep(0.2)
        return "tcg"
    finally:
        stop(process)


def processor_failed(console):
    """Whether a fault of the emulated processor ended the guest. Each fault occurs once in hours.

    One fault is flags that do not exist, caused by emulated cmpxchg16b. The other is a breakpoint
    that is no longer in the kernel's code: the kernel writes one while it turns a branch on or off
    (text_poke_bp()), and makes each processor drop it before it continues.
    """
    with open(console, errors="replace") as file:
        said = file.read()
    flags = re.findall(r"EFLAGS: ([0-9a-f]{8})$", said, re.M)
    before = re.findall(r"Oops: int3: .*?Code:[0-9a-f ]* ([0-9a-f]{2}) <", said, re.S)
    return any(int(value, 16) >> FLAGS_BITS for value in flags) or any(
        byte != "cc" for byte in before
    )


def ask_monitor(path, words):
    """What qemu's monitor says to a command; as much as arrives in MONITOR_S."""
    said, end = b"", time.monotonic() + MONITOR_S
    with socket.socket(socket.AF_UNIX) as monitor:
        try:
            monitor.connect(path)
            monitor.sendall(words.encode() + b"\n")
            while time.monotonic() < end:
                monitor.settimeout(max(0.01, end - time.monotonic()))
                data = monitor.recv(65536)
                if not data:
                    break
                said += data
        except OSError:  # also the end of the time
            pass
    return said.decode(errors="replace")


class Lines:
    """The complete lines of JSON that were added to a file since the last call."""

    def __init__(self, path):
        self.path = path
        self.offset = 0

    def new(self):
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self.offset += len(whole)
        found = []
        for line in whole.decode(errors="replace").split("\n"):
            try:
                found.append(json.loads(line))
            except ValueError:  # the firmware's greeting, or a line that a crash has cut
                pass
        return [value for value in found if isinstance(value, dict)]


class Boot:
    """One boot: records() yields the guest's records until its end; the files stay in folder."""

    def __init__(self, accelerator, kernel, initrd, folder, append="", limit=1800, arch=AMD64):
        os.makedirs(folder, exist_ok=True)
        self.paths = {name: os.path.join(folder, name) for name in PORTS}
        for path in self.paths.values():
            open(path, "w").close()
        outputs = list(self.paths.values())
        append = "%s %s" % (COMMAND_LINE, append)
        # The path of a socket is at most 107 bytes long; qemu has our working directory.
        self.monitor = os.path.relpath(os.path.join(folder, "monitor"))
        words = command(accelerator, kernel, initrd, append, outputs, limit, arch, self.monitor)
        self.end = time.monotonic() + limit
        self.limit = limit
        self.errors = open(os.path.join(folder, "qemu"), "w")
        self.process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=self.errors, stderr=self.errors
        )
        self.why_ended = ""
        self.stood_still = False  # the guest sent nothing for STILL_S

    def records(self):
        """Yields the results as they arrive. After an abnormal end, why_ended has the reason."""
        lines, finished, heard = Lines(self.paths["results"]), False, time.monotonic()
        try:
            while True:
                ended = self.process.poll() is not None
                for record in lines.new():
                    finished |= "end" in record
                    heard = time.monotonic()
                    yield record
                if ended or finished:
                    break
                if time.monotonic() > heard + STILL_S:
                    self.stood_still = True
                    self.why_ended = "the guest stood still: " + self.where_it_stands()
                    break
                if time.monotonic() > self.end:
                    self.why_ended = "the guest was stopped after %d s" % self.limit
                    break
                time.sleep(0.3)
            if finished:
                self.wait_power_off()
            elif not self.why_ended:
                self.why_ended = "the guest ended early: " + self.last_words()
        finally:
            stop(self.process)
            self.errors.close()

    def where_it_stands(self):
        """The processors' program counters and the last messages of the kernel."""
        registers = ask_monitor(self.monitor, "info registers -a")
        counters = re.findall(r"\b(?:[ER]IP|PC)\s*=\s*([0-9a-f]+)", registers)
        return "at %s; %s" % (", ".join(counters) or "an unknown place", self.last_words())

    def wait_power_off(self):
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            pass

    def last_words(self):
        with open(self.paths["console"], errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
        with open(os.path.join(os.path.dirname(self.paths["console"]), "qemu")) as file:
            said = file.read().strip()
        panics = [line for line in lines if "Kernel panic" in line]
        return (panics or lines or [said or "it said nothing"])[-1][:300]

    def files(self):
        """The data that features sent to the host."""
        return Lines(self.paths["files"]).new()
