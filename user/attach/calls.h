/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls of a session that has attached, as a list: what reads the target's bytes from
 * then on can start no program, map no code, write to no process's memory, open no socket but a
 * local one and enter no namespace, whatever those bytes have made of it. Capabilities
 * (privileges.h) say what the calls that are left may reach.
 */
#ifndef TRACER_ATTACH_CALLS_H
#define TRACER_ATTACH_CALLS_H

enum calls_wanted {
	CALLS_ATTACH = 1, /* further probes will be placed */
	CALLS_FREEZE = 2, /* targets are stopped for a reading (ptrace) */
};

/*
 * For this process, all of its threads and what it forks from here on; not to be taken back.
 * no_new_privs must be set (privileges_drop()). wants: enum calls_wanted, or-ed. What is not on the
 * list fails with EPERM; with TRACER_CALLS=kill in the environment, for tests, it ends the process,
 * which says which call it was. A second call adds to the first. 0; -errno. A build with the
 * address sanitizer, whose leak check traces the process, has no list.
 */
int calls_limit(unsigned int wants);

#endif
