# SPDX-License-Identifier: Apache-2.0
"""The architectures of guests: how qemu runs one, and what is built for it.

An architecture that is not this machine's own is emulated, its programs are cross compiled, and its
packages are unpacked without being configured, since none of its programs runs here.
"""
import collections
import os

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(HERE))

# name: Debian's; accelerators: {name: qemu's options}; console: the kernel's; ports: of the results,
# the log and the files, in the guest; triplet: of libraries and compilers; memory: of the guest.
Arch = collections.namedtuple(
    "Arch", "name qemu accelerators console ports triplet compiler build memory"
)

AMD64 = Arch(
    name="amd64",
    qemu="qemu-system-x86_64",
    accelerators={
        "kvm": ("-accel", "kvm", "-cpu", "host"),
        "tcg": ("-accel", "tcg,thread=multi", "-cpu", "max"),
        # 6.12 double-faults with some versions of qemu if the emulated processor has cx16. From
        # 6.19 on task storage requires cx16.
        "tcg-cx16": ("-accel", "tcg,thread=multi", "-cpu", "max,-cx16"),
    },
    console="ttyS0",
    ports=("ttyS1", "ttyS2", "ttyS3"),
    triplet="x86_64-linux-gnu",
    compiler="gcc",
    build="build",
    memory="2G",
)
ARM64 = Arch(
    name="arm64",
    qemu="qemu-system-aarch64",
    # The default of "max" has a pointer authentication that takes most of the emulator's time.
    accelerators={
        "tcg": ("-machine", "virt", "-accel", "tcg,thread=multi", "-cpu", "max,pauth-impdef=on")
    },
    console="ttyAMA0",
    ports=("ttyS0", "ttyS1", "ttyS2"),
    triplet="aarch64-linux-gnu",
    compiler="aarch64-linux-gnu-gcc",
    build="build/arm64",
    memory="3G",
)
ARCHES = {arch.name: arch for arch in (AMD64, ARM64)}


def is_own(arch):
    return arch.triplet.startswith(os.uname().machine + "-")


def folder(arch):
    """Where its machines' files are."""
    return os.path.join(REPOSITORY, "build", "machines", *(() if is_own(arch) else (arch.name,)))


def serial_ports(arch, paths):
    """qemu's options for the console and the other ports, each into a file. The board of arm64 has
    one port; the others are cards."""
    if arch is not ARM64:
        return [word for path in paths for word in ("-serial", "file:" + path)]
    words = ["-serial", "file:" + paths[0]]
    for number, path in enumerate(paths[1:]):
        words += ["-chardev", "file,id=port%d,path=%s" % (number, path)]
        words += ["-device", "pci-serial,chardev=port%d" % number]
    return words
