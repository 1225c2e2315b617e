# SPDX-License-Identifier: Apache-2.0
"""What each interpreter of interpreters.py runs; rounds is given."""
import gc

gc.disable()
# Blocks are made without a call: its tuple of arguments may be a new one, kept on the free list of all interpreters, where
# another thread holds the one from before.
one = b"x"
kept_b, kept_e = [None] * rounds, [None] * rounds  # noqa: F821


def clear():
    for i in range(rounds):  # noqa: F821
        kept_b[i] = kept_e[i] = None


def fill():
    for i in range(rounds):  # noqa: F821
        kept_b[i] = one * 700  # line B
        kept_e[i] = chr(97 + i % 26) * 100  # line E
        one * 600  # line D
