# SPDX-License-Identifier: Apache-2.0
"""Seeds of fuzz_unwind: two small libraries, and the .eh_frame of each with its code; a .debug_frame.
usage: corpus_unwind.py CC FOLDER"""
import os
import struct
import subprocess
import sys
import tempfile

BASE = 0x1000  # address of the .eh_frame in the file that fuzz_unwind makes


def section(path, name):
    """The content of a section, and its address."""
    with tempfile.NamedTemporaryFile() as out:
        dump = "--dump-section=%s=%s" % (name, out.name)
        subprocess.run(["objcopy", dump, path, os.devnull], check=True)
        content = out.read()
    for line in subprocess.run(
        ["readelf", "-SW", path], stdout=subprocess.PIPE, check=True, text=True
    ).stdout.splitlines():
        words = line.replace("[ ", "[").split()
        if len(words) > 3 and words[1] == name:
            return content, int(words[3], 16)
    raise SystemExit("%s: no %s" % (path, name))


def moved(frames, at, code_at):
    """The section with its functions where fuzz_unwind puts the code: after the section."""
    frames, offset = bytearray(frames), 0
    while offset + 8 <= len(frames):
        size, entry = struct.unpack_from("<II", frames, offset)
        if size and entry:
            (distance,) = struct.unpack_from("<i", frames, offset + 8)
            function = at + offset + 8 + distance - code_at + BASE + len(frames)
            struct.pack_into("<i", frames, offset + 8, function - (BASE + offset + 8))
        offset += 4 + size
    return bytes(frames)


def moved_debug(frames, code_at):
    """The same for .debug_frame."""
    frames, offset = bytearray(frames), 0
    while offset + 16 <= len(frames):
        size, entry, function = struct.unpack_from("<IIQ", frames, offset)
        if entry != 0xFFFFFFFF:
            struct.pack_into("<Q", frames, offset + 8, function - code_at + BASE + len(frames))
        offset += 4 + size
    return bytes(frames)


def seed(path, first, frames, code):
    with open(path, "wb") as out:
        out.write(first + frames + code[: len(frames)].ljust(len(frames), b"\x90"))


def main():
    cc, folder = sys.argv[1:]
    for name, source in (
        ("spans", "user/util/spans.c"),
        ("kinds", "tests/unit/data/assembly/unwind.s"),
    ):
        library = os.path.join(folder, name + ".so")
        subprocess.run(
            [cc, "-O2", "-shared", "-fPIC", "-nostdlib", "-Iuser", "-o", library, source],
            check=True,
        )
        frames, at = section(library, ".eh_frame")
        code, code_at = section(library, ".text")
        seed(os.path.join(folder, name), b"\0", moved(frames, at, code_at), code)
    library = os.path.join(folder, "debug.so")
    subprocess.run(
        [cc, "-O2", "-g", "-fno-asynchronous-unwind-tables", "-shared", "-fPIC", "-nostdlib"]
        + ["-Iuser", "-o", library, "user/util/spans.c"],
        check=True,
    )
    frames, _ = section(library, ".debug_frame")
    code, code_at = section(library, ".text")
    seed(os.path.join(folder, "debug"), b"\1", moved_debug(frames, code_at), code)


main()
