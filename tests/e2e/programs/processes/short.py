# SPDX-License-Identifier: Apache-2.0
"""Over before one looks. usage: short.py [STATUS]    One marked block, then exit with STATUS."""
import sys

kept = bytes(len(sys.argv) + 4000)  # makes the module's room for the name, and the call's tuple for the free list
kept = bytes(len(sys.argv) + 4000)  # line S: one block
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
