# SPDX-License-Identifier: Apache-2.0
"""So many small blocks (argv 1), every second of which is dropped at random. Answers each step with how many there are."""
import random
import sys


blocks = []  # lives until the interpreter shuts down


def main():
    count = int(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    blocks.extend(number.to_bytes(8, "little") for number in range(1000, 1000 + count))  # line K
    dropped = list(range(0, count, 2))
    random.Random(1).shuffle(dropped)
    print(len(blocks), flush=True)
    sys.stdin.readline()
    for index in dropped:
        blocks[index] = None
    del dropped
    print(count // 2, flush=True)
    sys.stdin.readline()


main()
