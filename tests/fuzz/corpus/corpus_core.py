# SPDX-License-Identifier: Apache-2.0
"""Seeds for fuzz_core: small core files. usage: corpus_core.py FOLDER"""
import os
import struct
import sys

PAGE = 4096
BASE = 0x10000000
PATH = b"/usr/bin/shop\0"


def note(kind, content):
    return (
        struct.pack("<III8s", 5, len(content), kind, b"CORE") + content + bytes(-len(content) % 4)
    )


def core(maps):
    """maps: (start, bytes, bytes in the core, flags) of each."""
    files = struct.pack("<QQ", len(maps), PAGE)
    files += b"".join(struct.pack("<QQQ", m[0], m[0] + m[1], i) for i, m in enumerate(maps))
    notes = note(0x46494C45, files + PATH * len(maps)) + note(3, bytes(136))
    notes += note(6, struct.pack("<QQQQ", 9, BASE, 25, maps[-1][0]))
    at = 64 + 56 * (len(maps) + 1)
    head = b"\x7fELF\2\1\1" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 4, 62, 1, 0, 64, 0, 0, 64, 56, len(maps) + 1, 0, 0, 0)
    table = struct.pack("<IIQQQQQQ", 4, 0, at, 0, 0, len(notes), 0, 4)
    at += len(notes)
    for start, size, stored, flags in maps:
        table += struct.pack("<IIQQQQQQ", 1, flags, at, start, 0, stored, size, PAGE)
        at += stored
    return head + table + notes + bytes(sum(m[2] for m in maps))


def main(folder):
    os.makedirs(folder, exist_ok=True)
    seeds = {
        "two": [(BASE, PAGE, PAGE, 4), (BASE + PAGE, PAGE, PAGE, 6)],
        "absent": [(BASE, PAGE, 0, 5), (BASE + PAGE, 2 * PAGE, PAGE, 6), (1 << 46, PAGE, 0, 6)],
    }
    for name, maps in seeds.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(core(maps))


main(sys.argv[1])
