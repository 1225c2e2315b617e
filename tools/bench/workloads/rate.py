"""Does work like w1's, w2's or w3's for a time, and keeps a block of 100 bytes of each round: three of four on line A,
the others on line B.    usage: rate.py w1|w2|w3 SECONDS
Prints the seconds since the epoch, its CPU time, the rounds, and the bytes kept on A and B, four times a second."""
import ast, json, re, sys, time, zlib

name, seconds = sys.argv[1], float(sys.argv[2])
SIZE = 100
kept_a, kept_b = [], []
text = open(ast.__file__, encoding="utf-8").read()[:20000]
text = text[: text.rindex("\ndef ")]


def leaf(i):
    return [i * 1000003, str(i), {"k": i}, (i, i + 1), bytearray(600)]


def w1(i):
    leaf(i)
    for j in range(8):
        t = (i, j, str(j) * 3)


def down(depth, i):
    return [str(i), i + 0.5, {i: depth}] if depth == 0 else down(depth - 1, i)


def w2(i):
    down(60, i)


def w3(i):
    words = re.findall(r"\w+", text)
    json.loads(json.dumps({w: [n, w.upper()] for n, w in enumerate(words)}))
    ast.parse(text)
    zlib.compress(text.encode())


def keep(i):
    if i % 4:
        value = bytes(SIZE)  # line A
        kept_a.append(value)
    else:
        value = bytes(SIZE)  # line B
        kept_b.append(value)


work, pieces = globals()[name], 1 if name == "w3" else 50
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
