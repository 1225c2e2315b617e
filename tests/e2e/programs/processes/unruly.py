# SPDX-License-Identifier: Apache-2.0
"""unruly.py SECONDS SEED [PYTHON…]: a tree of processes that at random forks, execs these
interpreters, starts threads, renames itself, loads and unloads libraries, and dies by exit,
_exit() or signal. The first process ends after SECONDS with status 0."""
import ctypes
import os
import random
import signal
import sys
import threading
import time

DEPTH = 3
NAMES = (b"", b"a) S 1 (", b"%s%n", b"\n\n", b"\x1b[31m", b"python")
LIBRARIES = ("libm.so.6", "libz.so.1", "libssl.so.3", "libcrypto.so.3")
SIGNALS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGABRT)
kept = []


def allocate(count):
    for number in range(count):
        kept.append([number] * 3)
        kept.append(bytearray(600))
    if len(kept) > 20000:
        del kept[:]


def rename():
    with open("/proc/self/comm", "wb") as comm:
        comm.write(random.choice(NAMES))


def load():
    try:
        library = ctypes.CDLL(random.choice(LIBRARIES))
    except OSError:
        return
    if random.random() < 0.7:
        ctypes.CDLL(None).dlclose(ctypes.c_void_p(library._handle))


def start_threads():
    threads = [threading.Thread(target=allocate, args=(100,)) for _ in range(random.randrange(20))]
    for thread in threads:
        thread.start()
    if random.random() < 0.7:
        for thread in threads:
            thread.join()


def call(end, depth, pythons):
    python = random.choice(pythons)
    seconds = "%.3f" % max(0, end - time.monotonic())
    os.environ["UNRULY_DEPTH"] = str(depth)
    os.execv(python, [python, sys.argv[0], seconds, str(random.randrange(1 << 30)), *pythons])


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def main():
    end = time.monotonic() + float(sys.argv[1])
    random.seed(int(sys.argv[2]))
    pythons = sys.argv[3:] or [sys.executable]
    depth = int(os.environ.get("UNRULY_DEPTH", 0))
    if not depth:
        print("ready", flush=True)
    while time.monotonic() < end:
        allocate(random.randrange(300))
        chance = random.random()
        if chance < (0.1 if depth else 0.004):
            call(end, depth, pythons)
        elif chance < 0.35 and depth < DEPTH:
            seed = random.randrange(1 << 30)
            if os.fork() == 0:
                random.seed(seed)
                depth += 1
                end = min(end, time.monotonic() + random.uniform(0, 2))
                if random.random() < 0.5:
                    call(end, depth, pythons)
        elif chance < 0.45:
            start_threads()
        elif chance < 0.55:
            rename()
        elif chance < 0.6 and depth:
            os.kill(os.getpid(), random.choice(SIGNALS))
        elif chance < 0.65 and depth:
            os._exit(random.randrange(256))
        elif chance < 0.7 and depth:
            sys.exit(3)
        elif chance < 0.75:
            load()
        elif chance < 0.78:
            os.system("/bin/true")
        else:
            time.sleep(random.uniform(0, 0.05))
        reap()
    os._exit(0)


main()
