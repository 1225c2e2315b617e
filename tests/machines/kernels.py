# SPDX-License-Identifier: Apache-2.0
"""Debian's kernels one after the other in qemu: the tracer runs in each, feature by feature, and a table is written.

usage: kernels.py [--quick] [--only REGEX,REGEX] [--report FILE] [SERIES...]    e.g. 6.1 6.12 newest; default: all

build/machines/ has everything that it makes: packages and kernels, the image, results/KERNEL.json, and the serial
ports' output of every guest. Exit status: 0, 1 if a feature failed, 2 if the machines could not be made.
"""
import argparse
import hashlib
import json
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tools"))

import image  # noqa: E402
import packages  # noqa: E402
import replay  # noqa: E402
import report  # noqa: E402
import vm  # noqa: E402

FOLDER = os.path.join(ROOT, "build", "machines")
TRACER = os.path.join(ROOT, "build", "tracer")
RUNS, RUNS_QUICK = 25, 5
LIMIT = 1500  # seconds for one boot


def say(text):
    print(text, flush=True)


def tell(series, record):
    where = "%-6s %-32s %-6s" % (series, record["feature"], record["status"])
    say("%s %6.1f s  %s" % (where, record.get("seconds", 0), record["reason"][:160]))


class Machine:
    """One kernel: boots it, and again where a feature asks for another command line."""

    def __init__(self, series, kernel, vmlinuz, initrd, accelerator):
        self.series, self.kernel, self.vmlinuz = series, kernel, vmlinuz
        self.initrd, self.accelerator = initrd, accelerator
        self.features = {}
        self.boots = []
        self.bad_boot = []
        self.why_ended = ""

    def boot(self, append, name="boot"):
        folder = os.path.join(FOLDER, "serial", self.series, name)
        boot = vm.Boot(self.accelerator, self.vmlinuz, self.initrd, folder, append, LIMIT)
        for record in boot.records():
            if "boot" in record:
                self.boots.append(record["boot"])
                self.bad_boot += record["bad"]
            elif "feature" in record:
                self.features[record["feature"]] = record
                tell(self.series, record)
        for sent in boot.files():
            self.judge(sent)
        self.why_ended = self.why_ended or boot.why_ended

    def judge(self, sent):
        """What can be seen on the host alone."""
        wrong = replay.differs(TRACER, sent, os.path.join(FOLDER, "serial", self.series))
        name = sent["feature"]
        record = {"feature": "replay on the host", "seconds": 0, "notes": {}}
        record.update(status="no" if wrong else "yes", reason=wrong)
        if name in self.features:
            self.features[record["feature"]] = record
            tell(self.series, record)

    def run(self, only):
        begin = time.monotonic()
        self.boot("machines.only=" + ",".join(only) if only else "")
        again = [(f["reason"], name) for name, f in self.features.items() if f["status"] == "reboot"]
        for parameter, name in again:
            pattern = name.replace(" ", ".").replace(",", ".")  # words of a command line
            self.boot("%s machines.only=%s" % (parameter, pattern), parameter)
        if self.why_ended:
            self.features["to the end"] = {"feature": "to the end", "status": "no", "reason": self.why_ended, "notes": {}, "seconds": 0}
        return {
            "series": self.series,
            "package": self.kernel.name,
            "version": self.kernel.version,
            "release": self.boots[0] if self.boots else None,
            "accelerator": self.accelerator,
            "seconds": round(time.monotonic() - begin),
            "boot_messages": self.bad_boot,
            "features": self.features,
        }


def tracer_identity():
    with open(TRACER, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:16]


def run_all(series, quick, only):
    """{series: result, or None where there is no package}."""
    folder = os.path.join(FOLDER, "results")
    os.makedirs(folder, exist_ok=True)
    say("packages")
    fetched = packages.fetch(FOLDER, series)
    say("image")
    initrd = image.make(FOLDER, TRACER, {"runs": RUNS_QUICK if quick else RUNS})
    accelerator, results = None, {}
    for name, found in fetched.items():
        if not found:
            say("%s: no package: untested" % name)
            results[name] = None
            continue
        accelerator = accelerator or vm.choose_accelerator(FOLDER, found[1])
        say("%s: %s %s, %s" % (name, *found[0][:2], accelerator))
        results[name] = Machine(name, *found, initrd, accelerator).run(only)
        results[name].update(tracer=tracer_identity(), quick=quick)
        with open(os.path.join(folder, name + ".json"), "w") as file:
            json.dump(results[name], file, indent=1)
        say("%s: %d s" % (name, results[name]["seconds"]))
    return results


def failures(results):
    """["6.12: demo: why"]; a kernel on which nothing ran is one."""
    found = []
    for series, result in results.items():
        if result is None:
            continue
        ran = [f for f in result["features"].values() if f["status"] == "yes"]
        bad = [f for f in result["features"].values() if f["status"] not in ("yes", "absent")]
        found += ["%s: %s: %s" % (series, f["feature"], f["reason"]) for f in bad]
        if not ran and not bad:
            found.append("%s: nothing ran" % series)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("series", nargs="*")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--report", help="where the table goes (default: build/machines/kernels.md)")
    options = parser.parse_args()
    series = options.series or (packages.QUICK if options.quick else packages.SERIES)
    try:
        results = run_all(series, options.quick, [p for p in options.only.split(",") if p])
    except (RuntimeError, OSError) as error:
        print("kernels: %s" % error, file=sys.stderr)
        return 2
    path = options.report or os.path.join(FOLDER, "kernels.md")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(report.text(results))
    found = failures(results)
    counts = [sum(f["status"] == s for r in results.values() if r for f in r["features"].values()) for s in ("yes", "absent")]
    say("table: %s" % os.path.relpath(path, ROOT))
    for line in found:
        say("FAILED " + line)
    for name, result in results.items():
        if result is None:
            say("SKIPPED kernel %s: no package" % name)
    say("kernels: %d passed, %d failed, %d skipped" % (counts[0], len(found), counts[1] + sum(r is None for r in results.values())))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
