# SPDX-License-Identifier: Apache-2.0
"""Makes a program of another system run on this one, with the dynamic loader and the libraries of
the system for which it was built.

    relocate(path, "/roots/x/lib64/ld-linux-x86-64.so.2", "/roots/x/usr/lib/x86_64-linux-gnu")

The file changes in place. Its code and data are not moved. The two paths are written to the unused
end of a mapped page; the program header PT_INTERP and a spare entry of the dynamic section point to
them. DT_RPATH is used since the loader also searches it for the libraries of libraries.
"""
import struct

PAGE = 4096
PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
DT_NULL, DT_STRTAB, DT_RPATH = 0, 5, 15
HEADER = struct.Struct("<32xQ14xHH")  # e_phoff, e_phentsize, e_phnum of ELF64
SEGMENT = struct.Struct("<IIQQQQQQ")  # type, flags, offset, address, physical, filesz, memsz, align
ENTRY = struct.Struct("<qQ")
OFFSET, ADDRESS, PHYSICAL, FILE_BYTES, MEMORY_BYTES = range(2, 7)


def unused_end(image, segments, wanted):
    """Index of a segment after whose end the last page has `wanted` unused bytes."""
    for index, segment in enumerate(segments):
        if segment[0] == PT_LOAD and segment[FILE_BYTES] == segment[MEMORY_BYTES]:
            end = segment[OFFSET] + segment[FILE_BYTES]
            rest = image[end : end + -end % PAGE]
            if len(rest) >= wanted and not any(rest):
                return index
    raise RuntimeError("no page with %d unused bytes at its end" % wanted)


def add_rpath(image, dynamic, segments, address):
    """Replaces the first entry after the terminator by a DT_RPATH with the path at an address."""
    entries = range(dynamic[OFFSET], dynamic[OFFSET] + dynamic[FILE_BYTES], ENTRY.size)
    tags = [ENTRY.unpack_from(image, at) for at in entries]
    end = [tag for tag, _ in tags].index(DT_NULL)
    if end + 1 >= len(tags):
        raise RuntimeError("no spare entry in the dynamic section")
    ENTRY.pack_into(image, entries[end], DT_RPATH, address - dict(tags[:end])[DT_STRTAB])


def relocate(path, loader, libraries):
    with open(path, "rb") as file:
        image = bytearray(file.read())
    start, size, count = HEADER.unpack_from(image)
    places = [start + i * size for i in range(count)]
    segments = [list(SEGMENT.unpack_from(image, at)) for at in places]
    (dynamic,) = (segment for segment in segments if segment[0] == PT_DYNAMIC)
    (interpreter,) = (segment for segment in segments if segment[0] == PT_INTERP)
    words = loader.encode() + b"\0", libraries.encode() + b"\0"
    room = segments[unused_end(image, segments, sum(map(len, words)))]
    end, address = room[OFFSET] + room[FILE_BYTES], room[ADDRESS] + room[FILE_BYTES]
    image[end : end + sum(map(len, words))] = b"".join(words)
    room[FILE_BYTES] = room[MEMORY_BYTES] = room[FILE_BYTES] + sum(map(len, words))
    interpreter[OFFSET : MEMORY_BYTES + 1] = end, address, address, len(words[0]), len(words[0])
    add_rpath(image, dynamic, segments, address + len(words[0]))
    for at, segment in zip(places, segments):
        SEGMENT.pack_into(image, at, *segment)
    with open(path, "wb") as file:
        file.write(image)
