# SPDX-License-Identifier: Apache-2.0
"""Boots a Debian suite's own kernel and runs the demo on it. qemu emulates the machine, and the
suite's run tree is the initramfs."""
import os
import re
import subprocess

import packages
import root
import vm
from fresh import Failed, last_words

LIMIT = 300  # seconds for a boot and the demo; emulated, they take half a minute
ARGUMENTS = vm.COMMAND_LINE + " random.trust_cpu=on"

# The first process; its output is sent to the serial port.
INIT = """#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LC_ALL=C.UTF-8 NO_COLOR=1
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs tmpfs /run
mount -t tracefs tracefs /sys/kernel/tracing
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec </dev/ttyS0 >/dev/ttyS0 2>&1
echo "booted $(uname -r)"
cd %s && tools/demo
status=$?
echo "demo's exit status $status"
[ $status -eq 0 ] || build/tracer -v -- python3 -c pass # what the kernel said, for the log
echo o >/proc/sysrq-trigger
sleep 20
"""

# Prints the package with the kernel of the suite's linux-image-cloud-amd64: up to 6.18 it is that
# package's dependency, later the dependency of that dependency.
FETCH = """cd /var/cache/apt/archives
depends() { apt-cache depends "$1" | sed -n "s/^ *Depends: \\($2-[0-9].*\\)/\\1/p" | head -n 1; }
image=$(depends linux-image-cloud-amd64 linux-image)
binary=$(depends "$image" linux-binary)
apt-get download -q -o APT::Sandbox::User=root "${binary:-$image}" >&2 || exit
ls -t "${binary:-$image}"_*.deb | head -n 1 | sed 's/^/package: /'"""


def keep_kernel(system, log):
    """Stores SUITE's kernel as the file vmlinuz; the root has the suite's package lists."""
    said = re.search(r"^package: (.*)$", system.run(system.root, FETCH, log), re.M)
    if not said:
        raise Failed("no package with a kernel")
    if os.path.exists(system.path("vmlinuz")):
        os.unlink(system.path("vmlinuz"))
    packages.unpack(os.path.join(system.archives, said[1]), system.path("vmlinuz"))


def boot(system, log):
    """Returns the output up to the demo's end; the log has all of it, up to the power-off."""
    initramfs = root.pack(system.tree, system.path("initramfs"))
    # The processor is emulated, which works on every machine.
    words = vm.command("tcg-cx16", system.path("vmlinuz"), initramfs, ARGUMENTS, [log], LIMIT)
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    os.unlink(initramfs)
    with open(log, errors="replace") as file:
        output = file.read().replace("\r", "")
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace") + output
        raise Failed("qemu: status %d: %s" % (done.returncode, last_words(said)))
    return output.partition("demo's exit status")[0]


def release(output):
    """The release name of the running kernel."""
    said = re.search(r"^booted (\S+)$", output, re.M)
    if not said:
        raise Failed("it did not come up: " + last_words(output))
    return said[1]
