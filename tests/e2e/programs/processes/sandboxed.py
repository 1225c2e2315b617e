# SPDX-License-Identifier: Apache-2.0
"""Runs a program under a seccomp filter that kills for system calls which only probes make. usage: sandboxed.py PROGRAM ARG...

From 6.11 on the kernel plants returns of probes as a system call (uretprobe, 335; uprobe, 336) in the traced program.
"""
import ctypes
import os
import struct
import sys

LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
KILL_PROCESS, ALLOW = 0x80000000, 0x7FFF0000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2

instructions = ((LOAD, 0, 0, 0), (EQUAL, 2, 0, 335), (EQUAL, 1, 0, 336), (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, KILL_PROCESS))
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *i) for i in instructions))
filter_program = struct.pack("HxxxxxxQ", len(instructions), ctypes.addressof(code))
prctl = ctypes.CDLL(None, use_errno=True).prctl
if prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter_program, 0, 0):
    sys.exit("prctl: " + os.strerror(ctypes.get_errno()))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
