# SPDX-License-Identifier: Apache-2.0
"""waves.py MIB: takes so much memory and gives it back, in turn, one step for each line on stdin:
"up", then "down"."""
import mmap
import sys

BYTES = int(sys.argv[1]) << 20


def main():
    print("ready", flush=True)
    kept = None
    for _ in sys.stdin:
        if kept is None:
            kept = mmap.mmap(-1, BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            for at in range(0, BYTES, 4096):
                kept[at] = 1
            print("up", flush=True)
        else:
            kept.close()
            kept = None
            print("down", flush=True)


main()
