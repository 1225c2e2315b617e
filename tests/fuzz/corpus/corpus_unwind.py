# SPDX-License-Identifier: Apache-2.0
"""Seeds of fuzz_unwind: two small libraries, and the .eh_frame of each with its code.
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
        subprocess.run(["objcopy", "-O", "binary", "-j", name, path, out.name], check=True)
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


def main():
    cc, folder = sys.argv[1:]
    for name, source in (
        ("spans", "user/tables/spans.c"),
        ("kinds", "tests/unit/data/assembly/unwind.s"),
    ):
        library = os.path.join(folder, name + ".so")
        subprocess.run(
            [cc, "-O2", "-shared", "-fPIC", "-nostdlib", "-Iuser", "-o", library, source],
            check=True,
        )
        frames, at = section(library, ".eh_frame")
        code, code_at = section(library, ".text")
        frames = moved(frames, at, code_at)
        code = code[: len(frames)].ljust(len(frames), b"\x90")
        with open(os.path.join(folder, name), "wb") as out:
            out.write(b"\0" + frames + code)


main()
