# SPDX-License-Identifier: Apache-2.0
"""Containers that filled.py fills, too."""
STORE, PAIRS, SHARED = {}, set(), []


def put(number):
    PAIRS.add((number, number + 1, number + 2))  # line pairs
