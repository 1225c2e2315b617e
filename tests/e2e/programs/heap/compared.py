# SPDX-License-Identifier: Apache-2.0
"""At the first line of its input it allocates by two lines, argv 1 blocks each; at each further one
it allocates by the first line again and frees half of what the second one has allocated."""
import sys

N = int(sys.argv[1])


class Item:
    pass


grown, shrunk = [], []


def grow():
    for _ in range(N):
        grown.append(Item())  # line GROWN


def shrink():
    if shrunk:
        del shrunk[len(shrunk) // 2 :]
        return
    for number in range(N):
        shrunk.append(bytes(3000 + number))  # line SHRUNK


print("ready", flush=True)
while sys.stdin.readline():
    grow()
    shrink()
    print("done", flush=True)
