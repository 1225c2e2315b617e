"""Prints "ready", waits for a line, then keeps rows at argv[1] MiB a second until it is killed."""
import sys
import time


class Row:
    def __init__(self, number):
        self.number = number
        self.data = bytearray(b"x" * 4000)


ROWS = []


def keep(number):
    ROWS.append(Row(number))  # line rows


print("ready", flush=True)
sys.stdin.readline()
began, number = time.monotonic(), 0
while True:
    for number in range(number, number + 50):
        keep(number)
    number += 1
    ahead = number * 4200 / (float(sys.argv[1]) * (1 << 20)) - (time.monotonic() - began)
    time.sleep(max(0, ahead))
