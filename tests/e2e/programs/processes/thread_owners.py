# SPDX-License-Identifier: Apache-2.0
"""Named threads that allocate different amounts on one line and stay alive. usage: thread_owners.py

Prints "ready", waits for a line, works, prints {"NAME TID": [bytes, blocks]} of line K, waits for stdin's end.
"""
import ctypes
import gc
import os
import sys
import threading

gc.disable()
THREADS = 4
prctl = ctypes.CDLL(None).prctl
PR_SET_NAME = 15
kept = [[None] * (100 * (me + 1)) for me in range(THREADS)]
names, tids = [b"worker-%d" % me for me in range(THREADS)], [0] * THREADS
begin, done, end = (threading.Barrier(THREADS + 1) for _ in range(3))


def work(me):
    keep = kept[me]
    prctl(PR_SET_NAME, names[me])
    tids[me] = threading.get_native_id()
    begin.wait()
    for i in range(len(keep)):
        keep[i] = bytes(300)  # line K: one block each
    done.wait()
    end.wait()


threads = [threading.Thread(target=work, args=(me,)) for me in range(THREADS)]
for thread in threads:
    thread.start()
os.write(1, b"ready\n")
os.read(0, 100)
begin.wait()
done.wait()
live = {
    "%s %d" % (names[me].decode(), tids[me]): [sum(map(sys.getsizeof, kept[me])), len(kept[me])]
    for me in range(THREADS)
}
os.write(1, ("%s\n" % live).replace("'", '"').encode())
os.read(0, 100)
end.wait()
