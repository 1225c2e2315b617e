# SPDX-License-Identifier: Apache-2.0
"""Protocol buffers written by hand, for files that no library would write."""


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    """value: a number, or bytes (a string, a message)."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value
