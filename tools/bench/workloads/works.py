"""The work of w1, w2 and w3 in rounds, for programs that run for a time."""
import ast, json, re, zlib

text = open(ast.__file__, encoding="utf-8").read()[:20000]
text = text[: text.rindex("\ndef ")]


def leaf(i):
    return [i * 1000003, str(i), {"k": i}, (i, i + 1), bytearray(600)]


def churn(i):
    for j in range(8):
        t = (i, j, str(j) * 3)


def w1(i):
    leaf(i)
    churn(i)


def down(depth, i):
    return [str(i), i + 0.5, {i: depth}] if depth == 0 else down(depth - 1, i)


def w2(i):
    down(60, i)


def w3(i):
    words = re.findall(r"\w+", text)
    json.loads(json.dumps({w: [n, w.upper()] for n, w in enumerate(words)}))
    ast.parse(text)
    zlib.compress(text.encode())
