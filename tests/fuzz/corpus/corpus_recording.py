# SPDX-License-Identifier: Apache-2.0
"""Seeds of fuzz_recording: the payloads of a recording, and the recording itself.
usage: corpus_recording.py RECORDING DIRECTORY"""
import os
import struct
import sys
import zlib

with open(sys.argv[1], "rb") as file:
    data = file.read()
at, dictionary, payloads = 32, b"", b"P"
while at < len(data):
    flags, packed = struct.unpack_from("<4xI24xI", data, at)
    words = {} if flags & 1 else {"zdict": dictionary}
    payload = zlib.decompressobj(wbits=-15, **words).decompress(data[at + 48 : at + 48 + packed])
    payloads += struct.pack("<H", len(payload)) + payload
    dictionary = payload[:32768]
    at += 48 + packed
for name, seed in (("file", b"F" + data), ("payloads", payloads)):
    with open(os.path.join(sys.argv[2], name), "wb") as file:
        file.write(seed)
