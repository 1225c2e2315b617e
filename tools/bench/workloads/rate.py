"""Does work like w1's, w2's or w3's for a time, and keeps a block of 100 bytes of each round: three of four on line A,
the others on line B.    usage: rate.py w1|w2|w3 SECONDS
Prints the seconds since the epoch, its CPU time, the rounds, and the bytes kept on A and B, four times a second."""
import sys, time

import works

name, seconds = sys.argv[1], float(sys.argv[2])
SIZE = 100
kept_a, kept_b = [], []


def keep(i):
    if i % 4:
        value = bytes(SIZE)  # line A
        kept_a.append(value)
    else:
        value = bytes(SIZE)  # line B
        kept_b.append(value)


work, pieces = getattr(works, name), 1 if name == "w3" else 50
bytes_each, count, due = sys.getsizeof(bytes(SIZE)), 0, 0
end = time.time() + seconds
while time.time() < end:
    for _ in range(pieces):
        work(count)
        for _ in range(40 if name == "w3" else 1):
            keep(count)
            count += 1
    if time.time() >= due:
        due = time.time() + 0.25
        kept = len(kept_a) * bytes_each, len(kept_b) * bytes_each
        print("%.3f %.3f %d %d %d" % (time.time(), time.process_time(), count, *kept), flush=True)
