# SPDX-License-Identifier: Apache-2.0
"""Runs the README's two commands in fresh Debian systems, with each one's compilers and libraries.

usage: python3 tests/machines/distros.py [--steps STEP,STEP…] [SUITE…]
       (root; default: every step in every suite)

A fresh system is debootstrap's minbase with `make` and a clean copy of HEAD. The steps:

    demo     `make demo` installs what the build needs, builds without a message from any tool, and
             names the leaking line
    clang    `make CC=clang` builds without a message, too
    static   `make static` does, too, with the system's static libraries
    verifier this machine's kernel verifies the programs that the system's clang builds, within
             their budgets
    deps     `tools/install-deps test` installs everything
    unit     `make unit`
    golden   `make golden`
    package  `make deb-reproducible` builds the Debian package, twice; lintian has nothing to say;
             it is installed in a system without compilers, names the leaking line and is purged
    tree     makes a system with Python, the tracer and its libraries, without compilers: SUITE/run,
             an initramfs when packed; and stores SUITE's own kernel, SUITE/vmlinuz
    kernel   boots that system on that kernel under qemu and runs tools/demo

Prints one line for each suite and step; the last line is `N passed, N failed[, N skipped]`.
For each suite, build/distros keeps: STEP.log, the output; base.tar, minbase; archives, the
downloaded packages; root, the system, if a step failed in it.
"""
import argparse
import fcntl
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import deb
import distro_boot
from fresh import Failed, System, last_words, remove, said_by, write

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
PLACE = os.path.join(SOURCE, "build", "distros")
SUITES = ("bookworm", "trixie", "testing")
HOME = "/tracer"  # where a system has the source
LEAK = "tools/demo_leak.py:20:"

# The output of a build in which no tool prints a message.
QUIET = re.compile(r"  [A-Z]+ +\S+|unit: .*|SKIPPED .*|install-deps: installing .*")


class Skipped(Exception):
    """A step's reason for doing nothing."""


def copy_source(folder):
    """HEAD, without the other files of the checkout."""
    os.makedirs(folder)
    command = ("git", "-C", SOURCE, "archive", "HEAD")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as archive:
        subprocess.run(("tar", "-C", folder, "-x"), stdin=archive.stdout, check=True)
    if archive.returncode != 0:
        raise Failed("git archive failed")


LISTS = "var/lib/apt/lists"


def copy_lists(here, there):
    """Packages can be installed in a root, without a look at the archive."""
    paths = (os.path.join(root, LISTS) for root in (here, there))
    shutil.copytree(*paths, dirs_exist_ok=True)


def make_fresh(system, log):
    """A root with only minbase, make and the source."""
    system.make_base(log)
    system.unpack(system.root)
    system.run(system.root, "apt-get update -q && apt-get autoclean -q", log)
    system.run(system.root, "apt-get install -y -q --no-install-recommends make", log)
    copy_source(system.root + HOME)


# --- checks of the output ----------------------------------------------------------------------


def check_quiet(output):
    """A build printed nothing but its own lines."""
    for line in output.splitlines():
        if line.strip() and not QUIET.fullmatch(line):
            raise Failed("a tool has something to say: " + line.strip())


def check_report(output):
    """The demo's report has the leaking line on top."""
    report = re.search(r"^All \d+ lines? by size$\n(.*)$", output, re.M)
    if not report:
        refused = re.findall(r"^tracer: .*", output, re.M)
        raise Failed("no report: " + (refused[-1] if refused else last_words(output)))
    if LEAK not in report[1]:
        raise Failed("on top is not the leak but " + report[1].strip())


# --- steps -------------------------------------------------------------------------------------


def make(target):
    return "cd %s && make --no-print-directory -j%d %s" % (HOME, os.cpu_count() or 1, target)


VERSIONS = """gcc -dumpfullversion
clang --version | sed -n 's/.*version \\([0-9.]*\\).*/\\1/p'
pkg-config --modversion libbpf
python3 -c 'import platform; print(platform.python_version())'"""


def step_demo(system, log):
    for program in ("debootstrap", "unshare"):
        if not shutil.which(program):
            raise Skipped("no %s on this machine" % program)
    make_fresh(system, log)
    output = system.run(system.root, make("demo"), log)
    check_quiet(output.partition("A program that leaks")[0])
    check_report(output)
    versions = system.run(system.root, VERSIONS, log).split()
    names = ("gcc", "clang", "libbpf", "Python")
    return ", ".join("%s %s" % pair for pair in zip(names, versions))


def step_clang(system, log):
    check_quiet(system.run(system.root, make("CC=clang all"), log))


def step_static(system, log):
    check_quiet(system.run(system.root, make("static"), log))
    system.run(system.root, "%s/build/static/tracer --version" % HOME, log)


def step_verifier(system, log):
    """The programs that this system's clang builds are within the budgets, on this machine's
    kernel."""
    system.run(system.root, make("build/tools/verifier && build/tools/verifier"), log)


def step_deps(system, log):
    command = "cd %s && tools/install-deps test" % HOME
    system.run(system.root, command, log)
    again = system.run(system.root, command, log)
    if again.strip():
        raise Failed("not all was installed: " + again.strip())


# A fresh system has one CPython, which is stripped; tests that need another one are skipped.
OTHER_PYTHON = re.compile(
    r": (skipped: )?no (pyenv|(/usr/bin/)?python3|(shared|static) lib)"
    r"|does not map a libpython$"
)


def step_unit(system, log):
    output = system.run(system.root, make("unit"), log)
    check_quiet(output)
    result = re.findall(r"^unit: (.*)$", output, re.M)[-1]
    skips = re.findall(r"^SKIPPED (.*)$", output, re.M)
    others = [skip for skip in skips if not OTHER_PYTHON.search(skip)]
    if len(skips) > len(others):
        result += ", %d of them for want of other CPythons" % (len(skips) - len(others))
    return "; ".join([result, *others])


def step_golden(system, log):
    output = system.run(system.root, make("golden"), log)
    if "warning" in output.lower():
        raise Failed("pytest warns: " + output.strip().splitlines()[-1])
    return output.strip().splitlines()[-1]


LINTIAN = "lintian --allow-root --fail-on error,warning build/deb/*.deb"


def step_package(system, log):
    system.run(system.root, make("deb-reproducible"), log)
    system.run(system.root, "cd %s && %s" % (HOME, LINTIAN), log)
    (package,) = glob.glob(system.root + HOME + "/build/deb/tracer_*.deb")
    folder = system.path("installed")
    system.unpack(folder)
    copy_lists(system.root, folder)
    deb.live(system, folder, package, log)
    remove(folder)
    return "%s, %d KiB" % (os.path.basename(package), os.path.getsize(package) // 1024)


# The packages of the libraries that the tracer is linked to.
LIBRARIES = (
    """cd %s || exit
ldd build/tracer | sed -n 's/^[[:space:]]*\\([^ ]*\\) => .*/\\1/p' | while read -r library; do
    dpkg-query -S "*/$library" || exit
done | sed 's/:.*//' | sort -u"""
    % HOME
)
TRACED_WITH = ("build/tracer", "tools/demo", "tools/demo_leak.py")
# An initramfs is held in memory, so files that are not needed there are removed.
SURPLUS = (LISTS, "usr/share/doc", "usr/share/locale", "usr/share/man", "var/cache/debconf")


def step_tree(system, log):
    """The tree is made from minbase, so that nothing of the toolchain is left in it."""
    libraries = system.run(system.root, LIBRARIES, log).split()
    system.unpack(system.tree)
    copy_lists(system.root, system.tree)
    install = "apt-get install -y -q --no-install-recommends python3 " + " ".join(libraries)
    system.run(system.tree, install, log)
    for name in TRACED_WITH:
        path = os.path.join(HOME, name)
        os.makedirs(os.path.dirname(system.tree + path), exist_ok=True)
        shutil.copy(system.root + path, system.tree + path)
    for name in SURPLUS:
        shutil.rmtree(os.path.join(system.tree, name), ignore_errors=True)
    write(system.tree, "init", distro_boot.INIT % HOME, 0o755)
    distro_boot.keep_kernel(system, log)
    system.run(system.tree, "%s/build/tracer --version" % HOME, log)
    return said_by("du", "-sh", system.tree).split()[0]


def step_kernel(system, log):
    for program in ("qemu-system-x86_64", "cpio"):
        if not shutil.which(program):
            raise Skipped("no %s on this machine" % program)
    if not os.path.exists(system.path("vmlinuz")):
        raise Skipped("there is no tree from an earlier run")
    output = distro_boot.boot(system, log)
    release = "Linux " + distro_boot.release(output)
    try:
        check_report(output)
    except Failed as reason:
        raise Failed("%s: %s" % (release, reason))
    return release


STEPS = {
    "demo": step_demo,
    "clang": step_clang,
    "static": step_static,
    "verifier": step_verifier,
    "deps": step_deps,
    "unit": step_unit,
    "golden": step_golden,
    "package": step_package,
    "tree": step_tree,
    "kernel": step_kernel,
}
NEEDS = {
    "clang": "demo",
    "static": "demo",
    "verifier": "demo",
    "deps": "demo",
    "unit": "deps",
    "golden": "deps",
    "package": "demo",
    "tree": "demo",
    "kernel": "tree",
}


# --- the run -----------------------------------------------------------------------------------


def run_step(system, name, done):
    """(passed, failed or skipped; the text to print)."""
    need = NEEDS.get(name)
    if done.get(need, "passed") != "passed":
        return "skipped", "needs what %s leaves" % need
    log = system.path(name + ".log")
    open(log, "w").close()
    try:
        return "passed", STEPS[name](system, log)
    except Skipped as reason:
        return "skipped", str(reason)
    except (RuntimeError, subprocess.CalledProcessError) as reason:
        return "failed", str(reason)


def run_suite(suite, steps):
    """Runs steps one after another and prints a line for each; returns their results."""
    system = System(suite, os.path.join(PLACE, suite))
    done = {}
    with open(system.path("lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # only one run at a time uses the root
        for name in steps:
            began = time.monotonic()
            done[name], said = run_step(system, name, done)
            word = "ok" if done[name] == "passed" else done[name]
            line = "%s, %s: %s%s" % (suite, name, word, ": " + said if said else "")
            print("%s (%d s)" % (line, time.monotonic() - began), flush=True)
        if "failed" not in done.values():  # otherwise it is kept for inspection
            remove(system.root)
    return list(done.values())


def main():
    parser = argparse.ArgumentParser(description="the README's two commands in fresh Debians")
    parser.add_argument("--steps", default=",".join(STEPS), help="of " + ", ".join(STEPS))
    parser.add_argument("suites", nargs="*", default=SUITES, help="of " + ", ".join(SUITES))
    options = parser.parse_args()
    wanted = options.steps.split(",")
    if not set(wanted) <= set(STEPS):
        parser.error("steps are " + ", ".join(STEPS))
    if os.geteuid() != 0:
        parser.error("needs root: sudo make distros")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinding ends what runs in a root
    results = []
    for suite in options.suites:
        results += run_suite(suite, [name for name in STEPS if name in wanted])
    passed, failed, skipped = map(results.count, ("passed", "failed", "skipped"))
    print("%d passed, %d failed%s" % (passed, failed, ", %d skipped" % skipped * bool(skipped)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
