# SPDX-License-Identifier: Apache-2.0
"""Kernels as packages: lists those that the mirror has, chooses the wanted ones, downloads and unpacks
them.

They are Debian's, but for those of arm64 with pages of 64 KiB, which only Ubuntu packages. apt works
in a directory of its own, so that the machine's sources and state do not change. Packages are
verified with Debian's archive keys; Ubuntu's come from a package of Debian.
"""
import collections
import glob
import os
import re
import shutil
import struct
import subprocess

import mirror
from arch import AMD64

SUITES = ("bookworm", "bookworm-backports", "trixie", "trixie-backports", "testing", "sid")
SECURITY = ("bookworm-security", "trixie-security")
OLD_SUITES = ("bullseye",)  # of OLDER
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
# Series; 5.15 and 6.6 are long-term kernels that Debian does not package today.
SERIES = ("5.10", "5.15", "6.1", "6.6", "6.12", "6.16", "6.18", "6.19", "7.0", "7.2", "newest")
QUICK = ("6.1", "newest")  # Debian 12's, and what comes next
# Each has a verifier of its own: a quick run shows that it takes all programs.
VERIFIERS = ("6.12", "6.16", "6.18", "6.19", "7.0", "7.2")
# Nothing can be traced on it: it runs the feature for that alone.
OLDER = ("5.10",)
# Kernels for clouds, and arm64's with pages of 16 and 64 KiB. Ubuntu's signed ones are EFI programs.
NAME = (
    r"linux-(?:image(?!\S*-64k$)|binary|image-unsigned)-(\d+(?:\.\d+)+)\S*"
    r"-(?:cloud-%s|arm64-16k|generic-64k)$"
)
LARGE_PAGES = ("-16k", "-64k")  # the ends of a series' and of a package's name
UBUNTU, UBUNTU_SUITES = "-64k", ("resolute",)
UBUNTU_KEYS, UBUNTU_KEY_FILE = "ubuntu-keyring", "usr/share/keyrings/ubuntu-archive-keyring.gpg"

# name: of the package; version: of the package, as dpkg compares it; release: of the kernel, e.g.
# (7, 3, 4).
Kernel = collections.namedtuple("Kernel", "name version release")


class Apt:
    def __init__(self, folder, arch=AMD64):
        self.arch = arch.name
        self.name = re.compile(NAME % self.arch)
        self.folder = os.path.abspath(folder)
        self.options = os.path.join(self.folder, "apt.conf")

    def run(self, *command, cwd=None):
        env = dict(os.environ, APT_CONFIG=self.options, LC_ALL="C")
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
        if done.returncode:
            errors = re.findall(r"^E: .*", done.stderr, re.M)
            raise RuntimeError("%s: %s" % (" ".join(command), (errors or [done.stderr[-300:]])[0]))
        return done.stdout

    def source(self, keys, url, suites):
        signed = "deb [arch=%s signed-by=%s]" % (self.arch, keys)
        return ["%s %s %s main\n" % (signed, url, suite) for suite in suites]

    def set_up(self, archive, security, suites=SUITES):
        """Writes the configuration and fetches the lists of packages."""
        for name in ("lists/partial", "archives/partial", "debs"):
            os.makedirs(os.path.join(self.folder, name), exist_ok=True)
        lines = self.source(KEYS, archive, suites)
        if security:
            lines += self.source(KEYS, security, SECURITY)
        with open(os.path.join(self.folder, "sources.list"), "w") as file:
            file.writelines(lines)
        open(os.path.join(self.folder, "status"), "a").close()
        settings = {
            "Dir::Etc::sourcelist": "sources.list",
            "Dir::State::lists": "lists",
            "Dir::State::status": "status",
            "Dir::Cache": "",
        }
        with open(self.options, "w") as file:
            for key, name in settings.items():
                file.write('%s "%s";\n' % (key, os.path.join(self.folder, name)))
            file.write('Dir::Etc::sourceparts "-";\nAPT::Architecture "%s";\n' % self.arch)
            file.write('APT::Architectures "%s";\nAcquire::Languages "none";\n' % self.arch)
            file.write('Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";\n')
            file.write('APT::Sandbox::User "root";\n')
        self.run("apt-get", "update", "-q")

    def add_ubuntu(self, url):
        """Adds Ubuntu's archive to the lists, after set_up()."""
        keys = os.path.join(self.folder, "ubuntu-keys")
        path = os.path.join(keys, UBUNTU_KEY_FILE)
        if not os.path.exists(path):
            shutil.rmtree(keys, ignore_errors=True)
            os.makedirs(keys)
            self.run("apt-get", "download", UBUNTU_KEYS, cwd=keys)
            (deb,) = glob.glob(os.path.join(keys, "*.deb"))
            subprocess.run(["dpkg-deb", "--extract", deb, keys], check=True)
        with open(os.path.join(self.folder, "sources.list"), "a") as file:
            file.writelines(self.source(path, url, UBUNTU_SUITES))
        self.run("apt-get", "update", "-q")

    def kernels(self):
        """Every version of every kernel of these names that the mirror lists."""
        names = self.run("apt-cache", "pkgnames", "linux-").split()
        names = sorted(name for name in names if self.name.match(name))
        if not names:
            return []
        found = []
        for line in self.run("apt-cache", "madison", *names).split("\n"):
            fields = [field.strip() for field in line.split("|")]
            if len(fields) == 3 and fields[2].endswith("Packages"):
                release = tuple(map(int, self.name.match(fields[0])[1].split(".")))
                found.append(Kernel(fields[0], fields[1], release))
        return sorted(set(found))

    def download(self, kernel):
        """Path of the package's file, which is downloaded unless it exists."""
        folder = os.path.join(self.folder, "debs")
        version = kernel.version.replace(":", "%3a")
        path = os.path.join(folder, "%s_%s_%s.deb" % (kernel.name, version, self.arch))
        if not os.path.exists(path):
            self.run("apt-get", "download", "%s=%s" % (kernel.name, kernel.version), cwd=folder)
        return path


def version_key(version):
    """Orders package versions as dpkg does: numbers by value, "~" before everything else."""
    end, tilde = (0, 0, ""), (-1, 0, "")
    parts = re.findall(r"\d+|~|[^\d~]+", version)
    keys = [(1, int(p), "") if p.isdigit() else tilde if p == "~" else (2, 0, p) for p in parts]
    return [*keys, end]


def large_pages(name):
    """The end of a name that says how large the kernel's pages are; "" for 4 KiB."""
    return next((end for end in LARGE_PAGES if name.endswith(end)), "")


def of_series(kernels, series):
    """The newest kernel of a series ("6.12", "6.12-16k", "7.0-64k"), or of all ("newest"); None if
    there is none.

    If there are an "image" package and a "binary" package of the same release, the "binary" package
    has the kernel, and the "image" package only depends on it.
    """
    large = large_pages(series)
    number = series[: len(series) - len(large)]
    wanted = () if number == "newest" else tuple(map(int, number.split(".")))
    candidates = [k for k in kernels if large_pages(k.name) == large]
    candidates = [k for k in candidates if k.release[: len(wanted)] == wanted]
    return max(candidates, default=None, key=newness)


def newness(kernel):
    return kernel.release, kernel.name.startswith("linux-binary-"), version_key(kernel.version)


def choose(kernels, wanted):
    """{series: Kernel or None}; the key of the newest kernel is its series ("7.3")."""
    chosen = {}
    for series in wanted:
        kernel = of_series(kernels, series)
        if series == "newest" and kernel:
            series = "%d.%d" % kernel.release[:2]
        chosen[series] = kernel
    return chosen


def boot_image(kernel):
    """The kernel in an EFI program that unpacks itself (Linux's zboot), as qemu boots it; other
    kernels as they are."""
    if kernel[:2] != b"MZ" or kernel[4:8] != b"zimg":
        return kernel
    start, size = struct.unpack("<II", kernel[8:16])
    name = kernel[24:56].split(b"\0")[0].decode()
    if name not in ("gzip", "zstd") or start + size > len(kernel):
        raise RuntimeError("its compression %r is not understood" % name)
    command = [name, "--decompress", "--stdout"]
    return subprocess.run(
        command, input=kernel[start : start + size], stdout=subprocess.PIPE, check=True
    ).stdout


def unpack(deb, vmlinuz):
    """Extracts the kernel from a package; an existing kernel file is kept."""
    if os.path.exists(vmlinuz):
        return vmlinuz
    listing = subprocess.check_output(["dpkg-deb", "--contents", deb], text=True)
    names = re.findall(r"\s(\./(?:boot/vmlinuz-\S+|usr/lib/modules/\S+/vmlinuz))$", listing, re.M)
    if not names:
        raise RuntimeError("%s: no vmlinuz in it" % os.path.basename(deb))
    os.makedirs(os.path.dirname(vmlinuz), exist_ok=True)
    tar = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE)
    with open(vmlinuz + ".new", "wb") as out:
        extract = ["tar", "--extract", "--to-stdout", names[0]]
        done = subprocess.run(extract, stdin=tar.stdout, stdout=out)
    tar.stdout.close()
    if tar.wait() or done.returncode:
        raise RuntimeError("%s: cannot be unpacked" % os.path.basename(deb))
    with open(vmlinuz + ".new", "rb") as file:
        image = boot_image(file.read())
    with open(vmlinuz + ".new", "wb") as file:
        file.write(image)
    shutil.move(vmlinuz + ".new", vmlinuz)
    return vmlinuz


def fetch(folder, wanted, arch=AMD64):
    """{series: (Kernel, path of vmlinuz), or None if the mirror has no package}."""
    apt = Apt(os.path.join(folder, "apt"), arch)
    apt.set_up(*mirror.mirrors(), SUITES + (OLD_SUITES if set(OLDER) & set(wanted) else ()))
    if any(large_pages(series) == UBUNTU for series in wanted):
        apt.add_ubuntu(mirror.ubuntu())
    fetched = {}
    for series, kernel in choose(apt.kernels(), wanted).items():
        if kernel:
            name = "%s_%s" % (kernel.name, kernel.version.replace(":", "%3a"))
            path = os.path.join(folder, "vmlinuz", name)
            fetched[series] = (kernel, unpack(apt.download(kernel), path))
        else:
            fetched[series] = None
    return fetched
