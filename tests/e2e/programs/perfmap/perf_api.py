# SPDX-License-Identifier: Apache-2.0
"""Calls CPython's perf map functions as it is told: "NAME ARG..." a line on stdin, the result on stdout."""
import ctypes
import os
import sys
import threading

API = ctypes.PyDLL(None)
KEPT = []
WRITE = ctypes.CDLL(None).PyUnstable_WritePerfMapEntry  # holds no GIL, as the manual allows
WRITE.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_char_p]


def many(threads, each):
    def work(number):
        for i in range(each):
            WRITE(0x10000000 + (number * each + i) * 64, 48, b"thread %d entry %d" % (number, i))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return threads * each


def fork():
    pid = os.fork()
    if not pid:

        def function_of_child():
            return 1

        function_of_child()
        sys.stdin.readline()
        os._exit(0)
    return pid


def function_of_parent():
    return 1


function_of_parent()
COMMANDS = {
    "init": lambda: API.PyUnstable_PerfMapState_Init(),
    "fini": lambda: API.PyUnstable_PerfMapState_Fini() and 0,
    "write": lambda address, size, name: WRITE(int(address, 16), int(size, 16), bytes.fromhex(name)),
    "copy": lambda path: API.PyUnstable_CopyPerfMapFile(path.encode()),
    "compile": lambda: API.PyUnstable_PerfTrampoline_CompileCode(ctypes.py_object(function_of_parent.__code__)),
    "persist": lambda enable: API.PyUnstable_PerfTrampoline_SetPersistAfterFork(int(enable)),
    "many": lambda threads, each: many(int(threads), int(each)),
    "fork": fork,
    "exec": lambda: os.execv("/bin/sleep", ["sleep", "60"]),
    "reopen": lambda path: KEPT.append(open(path, "w")) or 0,
    "setuid": lambda uid: os.setgid(int(uid)) or os.setuid(int(uid)) or 0,
    "locks": lambda fail: ctypes.CDLL(None).locks_set(int(fail)),
}
print("ready", flush=True)
for line in sys.stdin:
    words = line.split()
    print(COMMANDS[words[0]](*words[1:]), flush=True)
