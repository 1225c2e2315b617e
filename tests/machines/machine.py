# SPDX-License-Identifier: Apache-2.0
"""One kernel: boots it and collects the guest's result of every feature.

A feature may request another boot with a parameter on the kernel's command line.
"""
import os
import re
import time

import replay
import vm
from arch import AMD64

LIMIT = 3000  # seconds for one boot: emulated, on a busy machine
FAILURES_MAX = 3  # of an emulated processor, before a failure counts as the kernel's
STILL_MAX = 1  # times that a guest may stand still
CAPTURE, REPLAY = "capture and replay", "replay on the host"


def say(text):
    print(text, flush=True)


def words_pattern(feature):
    """A feature's name in a form that a kernel's command line can have."""
    return re.sub("[ ,=]", ".", feature)


def tell(series, record):
    where = "%-6s %-34s %-6s" % (series, record["feature"], record["status"])
    say("%s %6.1f s  %s" % (where, record.get("seconds", 0), record["reason"][:160]))


class Machine:
    """folder: for the output of the serial ports; how: the accelerator."""

    def __init__(self, series, kernel, vmlinuz, initrd, how, tracer, folder, arch=AMD64):
        self.series, self.kernel, self.vmlinuz = series, kernel, vmlinuz
        self.initrd, self.how, self.tracer, self.folder = initrd, how, tracer, folder
        self.arch = arch
        self.features = {}
        self.boots = []
        self.bad_boot = []
        self.last = None  # the last feature that a guest has reported
        self.failures = 0  # of the emulated processor
        self.stood_still = []  # where
        self.why_ended = ""

    def boot(self, append, name="boot"):
        # A path with "=" is no option of qemu's.
        folder = os.path.join(self.folder, name.replace("=", "-"))
        boot = vm.Boot(self.how, self.vmlinuz, self.initrd, folder, append, LIMIT, self.arch)
        for record in boot.records():
            if "boot" in record:
                self.boots.append(record["boot"])
                self.bad_boot += record["bad"]
            elif "feature" in record:
                self.features[record["feature"]] = record
                self.last = record["feature"]
                tell(self.series, record)
        for sent in boot.files():
            self.judge(sent)
        if vm.processor_failed(boot.paths["console"]) and self.failures < FAILURES_MAX:
            self.failures += 1
            self.boot_rest(append, name, "the emulated processor failed (%d)" % self.failures)
        elif boot.stood_still and len(self.stood_still) < STILL_MAX:
            self.stood_still.append(boot.why_ended)
            self.boot_rest(append, name, boot.why_ended)
        else:
            self.why_ended = self.why_ended or boot.why_ended

    def boot_rest(self, append, name, why):
        """Boots again for the features that a boot which failed did not reach."""
        say("%-6s %s: booted again" % (self.series, why))
        after = "machines.after=" + words_pattern(self.last) if self.last else ""
        times = self.failures + len(self.stood_still)
        self.boot("%s %s" % (append, after), "%s-%d" % (name, times))

    def judge(self, sent):
        """Checks what can only be checked on the host."""
        wrong = replay.differs(self.tracer, sent, self.folder)
        self.add(REPLAY, "no" if wrong else "yes", wrong)

    def add(self, name, status, reason):
        """Adds a result that does not come from the guest."""
        record = {"feature": name, "status": status, "reason": reason, "notes": {}, "seconds": 0}
        self.features[name] = record
        tell(self.series, record)

    def status(self, name):
        return self.features.get(name, {}).get("status")

    def run(self, only, share=(0, 1)):
        """only: the features' patterns; share: (I, N), the Ith of N kernels that share features."""
        begin = time.monotonic()
        chosen = "machines.only=" + ",".join(only).replace(" ", ".") if only else ""
        self.boot(chosen or "machines.share=%d/%d" % share)
        asked = [f for f in self.features.values() if f["status"] == "reboot"]
        again = [(f["reason"], f["feature"]) for f in asked]
        for parameter, name in again:
            self.boot("%s machines.only=%s" % (parameter, words_pattern(name)), parameter)
        if self.status(CAPTURE) == "yes" and self.status(REPLAY) is None:
            self.add(REPLAY, "no", "the capture did not come out of the guest")
        if self.why_ended:
            self.add("to the end", "no", self.why_ended)
        return {
            "series": self.series,
            "package": self.kernel.name,
            "version": self.kernel.version,
            "release": self.boots[0] if self.boots else None,
            "accelerator": self.how,
            "seconds": round(time.monotonic() - begin),
            "processor_failures": self.failures,
            "stood_still": self.stood_still,
            "boot_messages": self.bad_boot,
            "features": self.features,
        }
