# SPDX-License-Identifier: Apache-2.0
"""Objects of eight threads that wait, and of four that have ended. usage: graph_threads.py N

It prints the number of allocated blocks, then "ready", then evaluates the expressions that it
reads, a line each, and prints the id() of each value. With "spin" after N the threads allocate and
free on.
"""
import collections
import sys
import threading

N = int(sys.argv[1])


class A:
    def __init__(self, i, peer):
        self.i, self.name, self.peer = i * 1000003, str(i), peer


class S:
    __slots__ = ("a", "b", "__weakref__")


def made(shared, own):
    """Objects that refer to those of another thread, and to a class that is this thread's own."""
    class Own(A):
        pass

    mine = [A(i, shared[i % len(shared)]) for i in range(N)]
    mine.append(Own(1, Own))
    slots = [S() for _ in range(N)]
    for i, slot in enumerate(slots):
        slot.a, slot.b = mine[i], {i * 7919, str(i)}
    queue = collections.deque(str(i * 31) for i in range(N))
    mapping = {str(i): bytearray(i % 3000) for i in range(N)}
    closures = [(lambda k: (lambda: k))(item) for item in mine[: N // 10]]
    own.append((mine, slots, queue, mapping, closures, made, A))
    return own[-1]


def work(shared, own, lock):
    result = made(shared, own)
    ready.release()
    while len(sys.argv) > 2:
        made(shared, [])
    with lock:  # a PyMutex, for which the thread waits
        return result


shared = [A(i, None) for i in range(100)]
keep, ready, lock = [], threading.Semaphore(0), threading.Lock()
lock.acquire()
ended = [threading.Thread(target=made, args=(shared, keep)) for _ in range(4)]
for thread in ended:
    thread.start()
for thread in ended:
    thread.join()
threads = [
    threading.Thread(target=work, args=(shared, keep, lock), daemon=True) for _ in range(8)
]
for thread in threads:
    thread.start()
for _ in threads:
    ready.acquire()


def main():
    local = ["held by a frame alone"]
    print(sys.getallocatedblocks(), flush=True)
    print("ready", flush=True)
    for line in sys.stdin:
        print(id(eval(line, {"sys": sys})), flush=True)
    return local


main()
