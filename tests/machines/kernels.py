# SPDX-License-Identifier: Apache-2.0
"""Boots Debian's kernels one after the other in qemu, runs the tracer in each one, feature by
feature, and writes a table.

usage: kernels.py [--arch ARCH] [--quick] [--only REGEX,REGEX] [--resume] [--jobs N]
       [--report FILE] [SERIES...]

A series is "6.12", or "newest"; without an argument all series run, or with --quick two, and whether
the other kernels take the programs. A quick run has fewer features: those that hang on the kernel
most run on each one, the others on one of them.

build/machines/ (of another architecture, build/machines/ARCH/) holds all files that are made:
packages and kernels, the image, results/KERNEL.json, and the serial ports' output of every guest. Exit status: 0, 1 if a feature
failed, 2 if the machines could not be made.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tools"))

import arch as arches  # noqa: E402
import image  # noqa: E402
import packages  # noqa: E402
import report  # noqa: E402
import vm  # noqa: E402
from machine import Machine, say  # noqa: E402

SESSIONS, SESSIONS_QUICK = 5, 1  # of the eight threads; each session has five runs


def tracer_path(arch):
    return os.path.join(ROOT, arch.build, "tracer")


def tracer_identity(arch):
    with open(tracer_path(arch), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:16]


def earlier(series, kernel, arch, only=()):
    """The result of an earlier complete run of the same tracer on the same kernel, without the
    features in `only`. None if that run was incomplete or had a failure."""
    try:
        with open(os.path.join(arches.folder(arch), "results", series + ".json")) as file:
            result = json.load(file)
    except (OSError, ValueError):
        return None
    same = result.get("tracer") == tracer_identity(arch) and result.get("version") == kernel.version
    whole = same and not result.get("quick") and not result.get("only")
    if not whole:
        return None
    for name in [name for name in result["features"] if any(re.search(p, name) for p in only)]:
        del result["features"][name]
    return None if failures({series: result}) else result


def run_one(series, found, initrd, how, share, options):
    """Runs one kernel; returns its result, which is also stored as results/SERIES.json."""
    kernel, vmlinuz = found
    arch, top = options.arch, arches.folder(options.arch)
    before = earlier(series, kernel, arch, options.only) if options.resume else None
    if before and not options.only:
        say("%s: as in an earlier run of this tracer" % series)
        return before
    folder = os.path.join(top, "serial", series)
    if how + "-cx16" in arch.accelerators and series == "6.12":
        how = "tcg-cx16"
    say("%s: %s %s, %s" % (series, kernel.name, kernel.version, how))
    # The host replays captures by its own tracer, of this machine's architecture.
    own = os.path.join(ROOT, "build", "tracer")
    guest = Machine(series, kernel, vmlinuz, initrd, how, own, folder, arch)
    only = ["verifier"] if series in options.verifiers else options.only
    only = ["older kernel"] if series in packages.OLDER else only
    result = guest.run(only, share)
    result.update(tracer=tracer_identity(arch), quick=options.quick, only=only)
    if before:
        result = dict(before, features={**before["features"], **result["features"]})
    with open(os.path.join(top, "results", series + ".json"), "w") as file:
        json.dump(result, file, indent=1)
    say("%s: %d s" % (series, result["seconds"]))
    return result


def run_all(series, options):
    """{series: result, or None if there is no package}."""
    top = arches.folder(options.arch)
    os.makedirs(os.path.join(top, "results"), exist_ok=True)
    say("packages")
    fetched = packages.fetch(top, series, options.arch)
    for name in fetched:
        if not fetched[name]:
            say("%s: no package: untested" % name)
    there = {name: found for name, found in fetched.items() if found}
    if not there:
        return fetched
    say("image")
    sessions = SESSIONS_QUICK if options.quick else SESSIONS
    settings = {"sessions": sessions, "quick": options.quick}
    initrd = image.make(top, tracer_path(options.arch), settings, options.arch)
    how = vm.choose_accelerator(top, next(iter(there.values()))[1], options.arch)
    shares = len(set(there) - set(options.verifiers)) if options.quick else 1
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = {
            name: pool.submit(run_one, name, found, initrd, how, (i % shares, shares), options)
            for i, (name, found) in enumerate(there.items())
        }
    return {name: running[name].result() if name in running else None for name in fetched}


def failures(results):
    """["6.12: demo: why"]; a kernel on which nothing ran counts as a failure."""
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


def summary(results):
    """Prints the failures, the skipped features and the counts; returns the exit status."""
    failed, absent = failures(results), []
    for line in failed:
        say("FAILED " + line)
    passed = 0
    for series, result in results.items():
        features = result["features"].values() if result else ()
        passed += sum(f["status"] == "yes" for f in features)
        skips = [(f["feature"], f["reason"]) for f in features if f["status"] == "absent"]
        absent += ["%s: %s: %s" % (series, *skip) for skip in skips]
        absent += [] if result else ["%s: no package" % series]
    for line in absent:
        say("SKIPPED " + line)
    say("kernels: %d passed, %d failed, %d skipped" % (passed, len(failed), len(absent)))
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("series", nargs="*")
    parser.add_argument("--arch", type=arches.ARCHES.get, default=arches.AMD64, help="e.g. arm64")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default=[], type=lambda text: text.split(","))
    again = (
        "repeat only kernels on which something failed; with --only, what it names on the others"
    )
    parser.add_argument("--resume", action="store_true", help=again)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="machines at a time")
    parser.add_argument("--report", help="the table's file (default: build/machines/kernels.md)")
    options = parser.parse_args()
    whole = options.quick and not options.only and not options.series
    options.verifiers = packages.VERIFIERS if whole else ()
    series = options.series or (packages.QUICK if options.quick else packages.SERIES)
    series += options.verifiers
    try:
        results = run_all(series, options)
    except (RuntimeError, OSError) as error:
        print("kernels: %s" % error, file=sys.stderr)
        return 2
    path = options.report or os.path.join(arches.folder(options.arch), "kernels.md")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(report.text({s: r for s, r in results.items() if s not in packages.OLDER}))
    say("table: %s" % os.path.relpath(path, ROOT))
    return summary(results)


if __name__ == "__main__":
    sys.exit(main())
