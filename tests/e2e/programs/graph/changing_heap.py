# SPDX-License-Identifier: Apache-2.0
"""A heap that changes all the time: objects of a table are replaced, none is kept beside it. It
prints "ready" and works on until it is killed."""
import sys

COUNT = int(sys.argv[1])


class Item:
    def __init__(self, number):
        self.number, self.text = number, str(number) * 3


TABLE = {number: Item(number) for number in range(COUNT)}
print("ready", flush=True)
while True:
    for key in range(COUNT):
        TABLE[key] = Item(key + COUNT)
