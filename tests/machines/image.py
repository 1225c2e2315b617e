# SPDX-License-Identifier: Apache-2.0
"""The initramfs: root file system, an unstripped CPython, and the files under test.

The kernel takes three archives one after the other. Only the last one, which is small, is packed in
every run.
"""
import glob
import json
import os
import shutil
import subprocess

import releases
import root
import unstripped
from arch import AMD64, HERE, REPOSITORY, is_own

T = "/t"  # the folder of the repository's files in the guest
FILES = (
    "tools/pythons.py",
    "tools/demo",
    "tools/demo_leak.py",
    "tests/e2e/harness.py",
    "tests/e2e/procfs.py",
)
TREES = ("tests/e2e/programs", "tests/machines/guest")
COMPILE = ("-g", "-O1", "-fno-omit-frame-pointer", "-fno-builtin", "-pthread")
PROGRAMS = (
    "native/native",
    "native/blocks",
    "stacks/mapped",
    "native/mix",
    "native/late_user",
    "processes/brief",
    "processes/task_storage",
)


def compile_programs(folder, arch):
    """Compiles the native programs; their sources have the names that they have in the guest."""
    sources = os.path.join(REPOSITORY, "tests", "e2e", "programs")
    names = "-ffile-prefix-map=%s=%s" % (REPOSITORY, T)
    compiler = [arch.compiler, *COMPILE, names]
    os.makedirs(folder)
    for name in PROGRAMS:
        source = os.path.join(sources, name + ".c")
        output = os.path.join(folder, os.path.basename(name))
        subprocess.run([*compiler, "-o", output, source, "-ldl"], check=True)
    source = os.path.join(sources, "native", "otel_program.c")
    command = [*compiler, "-DPRODUCER", "-o", os.path.join(folder, "otel_program"), source]
    subprocess.run([*command, "-ldl", "-lm"], check=True)
    library = os.path.join(folder, "liblate.so")
    source = os.path.join(sources, "native", "late_library.c")
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", library, source], check=True)


def unstripped_archive(folder, guest, arch):
    """(archive, path of the interpreter in it); made only once."""
    tree, named = os.path.join(folder, "python"), os.path.join(folder, "python.path")
    archive = os.path.join(folder, "python.cpio")
    if not (os.path.exists(archive) and os.path.exists(named)):
        shutil.rmtree(tree, ignore_errors=True)
        os.makedirs(tree)
        path = unstripped.put(tree, guest, folder, arch)
        root.pack(tree, archive)
        with open(named, "w") as file:
            file.write(path)
    with open(named) as file:
        return archive, file.read()


def under_test_archive(folder, tracer, settings, arch):
    """Everything that changes between runs: the tracer, its tools, the programs, the guest's
    script."""
    tree = os.path.join(folder, "under-test")
    shutil.rmtree(tree, ignore_errors=True)
    there = tree + T
    for name in FILES:
        os.makedirs(os.path.dirname(os.path.join(there, name)), exist_ok=True)
        shutil.copy(os.path.join(REPOSITORY, name), os.path.join(there, name))
    for name in TREES:
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(os.path.join(REPOSITORY, name), os.path.join(there, name), ignore=without)
    os.makedirs(os.path.join(there, "build", "tools"))
    shutil.copy(tracer, os.path.join(there, "build", "tracer"))
    for tool in glob.glob(os.path.join(os.path.dirname(tracer), "tools", "verifier")):
        shutil.copy(tool, os.path.join(there, "build", "tools"))
    compile_programs(os.path.join(there, "bin"), arch)
    with open(os.path.join(there, "settings.json"), "w") as file:
        json.dump(settings, file)
    shutil.copy(os.path.join(HERE, "guest", "init"), os.path.join(tree, "init"))
    return root.pack(tree, os.path.join(folder, "under-test.cpio"))


def make(folder, tracer, settings, arch=AMD64):
    """Path of the initramfs."""
    os.makedirs(folder, exist_ok=True)
    guest, base = root.make(folder, tracer, arch=arch)
    python, path = unstripped_archive(folder, guest, arch)
    # On this machine's own architecture the end-to-end tests have interpreters of other releases.
    roots, others = ({}, None) if is_own(arch) else releases.archive(folder, arch)
    settings = dict(settings, unstripped=path, ports=arch.ports, roots=roots)
    small = under_test_archive(folder, tracer, settings, arch)
    image = os.path.join(folder, "initrd")
    with open(image + ".new", "wb") as out:
        for archive in filter(None, (base, python, others, small)):
            with open(archive, "rb") as part:
                shutil.copyfileobj(part, out, 1 << 20)
    os.rename(image + ".new", image)
    return image
