/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts a command under trace: the child is stopped until the tracer has attached. ptrace steps it
 * from system call to system call through its exec (a shell wrapper or "env" may exec again) until
 * the dynamic loader has mapped every library that the program was linked against; then the
 * callback decides. Only our own children are stopped this way.
 */
#pragma once

#include <sys/types.h>

struct launch;

/* The status of a command that could not be executed, as shells have it. */
#define LAUNCH_NOT_RUN   126
#define LAUNCH_NOT_FOUND 127

/*
 * Called after every exec, when the new program's libraries are mapped and none of its own code has
 * run. It is then called repeatedly while the program runs, with running set, since libraries may
 * be loaded later. Returns 1: the target is found, let it run; 0: continue; -errno: give up.
 */
typedef int (*launch_ready_fn)(pid_t pid, int running, void *context);

/*
 * Forks and execs argv (searched in PATH), with no signal blocked. Returns when
 *   ready() has returned 1: 0, *out is set;
 *   the command has ended before that: -ECHILD, *out is set, launch_wait() has its status;
 *   it could not be executed: -ENOENT, -EACCES …, *out is set, launch_wait() has LAUNCH_NOT_FOUND
 *     or LAUNCH_NOT_RUN;
 *   ready() failed: its error; the command is killed, *out untouched.
 * A program that forks instead of exec'ing is let go (its children are not followed). ptrace
 * belongs to a thread: ready() runs on the caller's. Signals that the caller ignores stay ignored
 * in the command.
 */
int launch_start(struct launch **out, char *const argv[], launch_ready_fn ready, void *context);
pid_t launch_pid(const struct launch *launch);
/*
 * Has it ended? Blocks only if block is set. 1 and *status (0-255, 128+signal) if it has ended, 0
 * if not, -EINTR if a signal handler ran while it blocked, -errno.
 */
int launch_wait(struct launch *launch, int block, int *status);
void launch_signal(struct launch *launch, int signal);
void launch_free(struct launch *launch); /* a child that still runs continues on its own */
