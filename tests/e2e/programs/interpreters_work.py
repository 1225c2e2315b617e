# SPDX-License-Identifier: Apache-2.0
"""What each interpreter of interpreters.py runs; rounds is given."""
import gc

gc.disable()
kept_b, kept_e = [None] * rounds, [None] * rounds  # noqa: F821


def clear():
    for i in range(rounds):  # noqa: F821
        kept_b[i] = kept_e[i] = None


def fill():
    for i in range(rounds):  # noqa: F821
        kept_b[i] = bytes(700)  # line B
        kept_e[i] = chr(97 + i % 26) * 100  # line E
        bytes(600)  # line D
