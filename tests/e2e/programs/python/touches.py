# SPDX-License-Identifier: Apache-2.0
"""Memory that is allocated at one line and becomes resident at another. Prints "ready", waits for a
line, touches, prints {line: [bytes, pages]} as JSON, waits and ends."""
import mmap
import os

PAGE, MIB = 4096, 1 << 20


def touch(area, size):
    for at in range(0, size, PAGE):
        area[at] = 1  # line touch


def anonymous(size):
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


zero = os.open("/dev/zero", os.O_RDONLY)
os.write(1, b"ready\n")
os.read(0, 100)
area = anonymous(24 * MIB)  # line mapped
touch(area, 24 * MIB)
filled = bytearray(16 * MIB)  # line filled
into = anonymous(8 * MIB)
os.readv(zero, [into])  # line read
sizes = {"touch": 24 * MIB, "filled": 16 * MIB, "read": 8 * MIB}
text = ", ".join('"%s": [%d, %d]' % (mark, size, size // PAGE) for mark, size in sizes.items())
os.write(1, ("{%s}\n" % text).encode())
os.read(0, 100)
os.read(0, 100)
