/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allow list of system calls for a session that has attached. Code that reads the target's data
 * can then start no program, map no code, write to no process's memory, open no socket except a
 * local one and enter no namespace, even if that data compromises it. Capabilities (privileges.h)
 * limit what the remaining calls can reach.
 */
#pragma once

enum calls_wanted {
	CALLS_ATTACH = 1, /* more probes will be placed */
	CALLS_FREEZE = 2, /* targets are stopped during a heap walk (ptrace) */
};

/*
 * Applies to this process, all of its threads and its future children; it cannot be undone.
 * no_new_privs must be set (privileges_drop()). wants: enum calls_wanted, or-ed. A call that is not
 * on the list fails with EPERM. With TRACER_CALLS=kill in the environment, for tests, it ends the
 * process, which reports the call. A second call of this function adds to the first. 0; -errno. A
 * build with the address sanitizer, whose leak check traces the process, has no list.
 */
int calls_limit(unsigned int wants);
