# SPDX-License-Identifier: Apache-2.0
"""Seeds of fuzz_recording: a recording itself, its records, and texts that the target packs.
usage: corpus_recording.py RECORDING DIRECTORY"""
import os
import struct
import sys

with open(sys.argv[1], "rb") as file:
    data = file.read()
at, records = 32, b"R"
while at < len(data):
    flags, packed = struct.unpack_from("<4xI24xI", data, at)
    records += struct.pack("<BBH", flags, 0, packed) + data[at + 48 : at + 48 + packed]
    at += 48 + packed
packed = b"R" + b"".join(
    struct.pack("<BBH", 0x80 | (not i), 0, 64) + b"%03d, and the same text" % i + bytes(41)
    for i in range(5)
)
for name, seed in (("file", b"F" + data), ("records", records), ("packed", packed)):
    with open(os.path.join(sys.argv[2], name), "wb") as file:
        file.write(seed)
