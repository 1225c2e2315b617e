# SPDX-License-Identifier: Apache-2.0
"""refuse.py CALL[,CALL...] ERRNO COMMAND ARG...: runs a command under a seccomp filter that refuses system calls, as a container's does."""
import ctypes
import errno
import os
import struct
import sys

NUMBERS = {"bpf": 321, "perf_event_open": 298}  # x86-64
PR_SET_SECCOMP, MODE_FILTER = 22, 2
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06  # of classic BPF: a word at an offset; is it?; the answer
REFUSE, ALLOW = 0x00050000, 0x7FFF0000

code = [(LOAD, 0, 0, 0)]
for call in sys.argv[1].split(","):
    code += [(EQUAL, 0, 1, NUMBERS[call]), (RETURN, 0, 0, REFUSE | getattr(errno, sys.argv[2]))]
code.append((RETURN, 0, 0, ALLOW))
instructions = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(instructions)))
libc = ctypes.CDLL(None, use_errno=True)
# Who is privileged needs no no_new_privs for it.
if libc.prctl(PR_SET_SECCOMP, MODE_FILTER, program, 0, 0):
    raise OSError(ctypes.get_errno(), "prctl")
os.execvp(sys.argv[3], sys.argv[3:])
