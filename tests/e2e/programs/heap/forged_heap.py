# SPDX-License-Identifier: Apache-2.0
"""
A CPython up to 3.11, with symbols, that claims to have another heap than it has. argv: how many arenas, all of them the same one; of
what kind its pools are:

    none    no arena at all: the array's entries are unused
    empty   in use and without a block
    full    all blocks live
    links   all blocks but one are on the free list
    loop    the free list's last link leads to its first
    bent    the free list leads out of the pool

and whether the heap is to be believed when the interpreter shuts down ("finalize"), at the process's end ("exit") or
while it waits for its stdin to end ("now").
"""
import ctypes
import mmap
import random
import struct
import subprocess
import sys

ARENA, POOL, HEAD, BLOCK = 1 << 20, 16384, 48, 16
BLOCKS = (POOL - HEAD) // BLOCK


def variables():
    """Addresses of the interpreter's arenas and maxarenas."""
    with open("/proc/self/maps") as maps:
        lines = [line.split() for line in maps]
    files = [line[5] for line in lines if len(line) > 5 and ("libpython" in line[5] or "/bin/python" in line[5])]
    for path in dict.fromkeys(reversed(files)):
        done = subprocess.run(["nm", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        symbols = {fields[2]: int(fields[0], 16) for fields in map(str.split, done.stdout.decode().splitlines()) if len(fields) == 3}
        if "maxarenas" not in symbols:
            continue
        header = subprocess.run(["readelf", "-hW", path], stdout=subprocess.PIPE, check=True).stdout.decode()
        base = 0 if "EXEC (" in header else int(next(line[0] for line in lines if line[-1] == path).split("-")[0], 16)
        return base + symbols["arenas"], base + symbols["maxarenas"]
    sys.exit("no symbols")


def pool_bytes(address, kind, order):
    if kind == "empty":
        return b""
    free = [] if kind == "full" else [address + HEAD + BLOCK * i for i in order]
    body = bytearray(BLOCKS * BLOCK)
    last = {"loop": free[:1], "bent": [address + POOL]}.get(kind, [0])[0] if free else 0
    for this, following in zip(free, free[1:] + [last]):
        struct.pack_into("<Q", body, this - address - HEAD, following)
    count = BLOCKS - len(free)
    return struct.pack("<IIQQQIIII", count, 0, free[0] if free else 0, 0, 0, 0, 0, POOL, POOL - BLOCK) + body


def forge(libc, arenas, kind):
    area = libc.mmap(None, 2 * ARENA, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    arena = (area + ARENA - 1) & -ARENA
    ctypes.memset(arena, 0, ARENA)
    order = list(range(1, BLOCKS))
    random.Random(1).shuffle(order)
    for pool in range(arena, arena + ARENA, POOL):
        content = pool_bytes(pool, kind, order)
        ctypes.memmove(pool, content, len(content))
    objects = struct.pack("<QQIIQQQ", 0 if kind == "none" else arena, arena + ARENA, 0, 64, 0, 0, 0) * arenas
    array = libc.mmap(None, len(objects), mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    ctypes.memmove(array, objects, len(objects))
    return array


def libc_of():
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    return libc


def forger(libc, arenas, kind):
    """What puts the forgery in the place of the heap."""
    array = forge(libc, arenas, kind)
    at_arenas, at_count = variables()
    here = ctypes.c_uint64.from_address(at_arenas), ctypes.c_uint32.from_address(at_count)

    def put():
        here[1].value, here[0].value = arenas, array

    return put


def main():
    arenas, kind, moment = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    libc = libc_of()
    put = forger(libc, arenas, kind)
    # Looked up before: from the forgery on nothing is to be allocated.
    finish, arguments = (ctypes.pythonapi.Py_FinalizeEx, ()) if moment == "finalize" else (libc._exit, (0,))
    print("ready", flush=True)
    sys.stdin.readline()
    put()
    if moment == "now":
        print("forged", flush=True)
        sys.stdin.read()
        libc._exit(0)
    finish(*arguments)


if __name__ == "__main__":
    main()
