# SPDX-License-Identifier: Apache-2.0
"""Systems in folders, in which the static tracer runs as it would on another machine.

    run(root, ["/mnt/tracer", "--version"], shared)    a subprocess.CompletedProcess

The root is read-only, /tmp and /run are empty and let nothing be executed, the environment has only
a PATH, and `shared`, a folder of the machine, is at /mnt. The mounts end with the command.
With `scratch="ro"` nothing can be written anywhere.
"""
import os
import shutil
import subprocess

TIMEOUT = 120  # seconds
ENTER = """set -e
root=$1 shared=$2 scratch=$3
shift 3
mount --bind "$root" "$root"
mount --bind "$shared" "$root/mnt"
mount --bind /proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o "noexec,$scratch" tmpfs "$root/tmp"
mount -t tmpfs -o "noexec,$scratch" tmpfs "$root/run"
mount -o "remount,bind,$scratch" "$root/mnt"
mount -o remount,bind,ro "$root"
exec env -i PATH=/usr/bin:/bin "$(command -v chroot)" "$root" "$@"
"""
FOLDERS = ("bin", "dev", "mnt", "proc", "run", "sys", "tmp")


def entered(root, words, shared, scratch="rw"):
    """The command that runs `words` in a root."""
    inside = ("unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "sh")
    return [*inside, str(root), str(shared), scratch, *map(str, words)]


def run(root, words, shared, scratch="rw"):
    return subprocess.run(
        entered(root, words, shared, scratch),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT,
    )


def make(root):
    """A root with Busybox and nothing else: no libc, no database of users or terminals."""
    for name in FOLDERS:
        os.makedirs(os.path.join(root, name))
    shutil.copy(shutil.which("busybox"), os.path.join(root, "bin", "busybox"))
    os.symlink("busybox", os.path.join(root, "bin", "sh"))
