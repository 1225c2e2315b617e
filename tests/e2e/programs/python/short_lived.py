# SPDX-License-Identifier: Apache-2.0
"""Code that is compiled, run and dropped, again and again: each finds the memory of the one before it. usage: short_lived.py COUNT [apart]

The i-th block, of 20000 + i bytes, is made by line 1 of file<i>.py; another by line i + 1 of same.py; and one by line 1 of
long<i>.py, whose code object is a large block. apart: another thread than the one that compiles it runs it.
"""
import sys
import threading

count = int(sys.argv[1])
kept = [None] * (3 * count)
job, given, done = None, threading.Semaphore(0), threading.Semaphore(0)


def worker():
    global job
    while given.acquire() and job:
        exec(job)
        job = None
        done.release()


def run(source, name):
    global job
    if len(sys.argv) < 3:
        exec(compile(source, name, "exec"))
        return
    job = compile(source, name, "exec")
    given.release()
    done.acquire()


thread = threading.Thread(target=worker)
thread.start()
for i in range(count):
    run("kept[%d] = bytearray(%d)" % (i, 20000 + i), "file%d.py" % i)
for i in range(count):
    run("\n" * i + "kept[%d] = bytearray(%d)" % (count + i, 20000 + i), "same.py")
for i in range(count):
    run("x = i;" * 60 + "kept[%d] = bytearray(%d)" % (2 * count + i, 20000 + i), "long%d.py" % i)
given.release()
thread.join()
