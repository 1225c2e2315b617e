/* SPDX-License-Identifier: Apache-2.0 */
/* Processes to wait for, because they have not loaded Python yet (probe/process/late.h). */
#ifndef TRACER_CMD_OPTIONS_LATE_TARGETS_H
#define TRACER_CMD_OPTIONS_LATE_TARGETS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "probe/process/late.h"
#include "session/session.h"

struct late_targets {
	struct late *items;
	size_t count;
	uint64_t looked_ns;
};

/*
 * Starts to wait for a process, and says so. 0; -ENOMEM. Zero-initialise the struct;
 * late_targets_free() releases it.
 */
int late_targets_add(struct late_targets *targets, pid_t pid);
/*
 * Checks the processes, at most every 20 ms, and attaches to those that have loaded Python. A
 * process that has ended or cannot be traced is reported and removed. Returns the number of
 * processes attached to.
 */
size_t late_targets_look(struct late_targets *targets, struct session *session);
/* Prints an error for each process that is still waited for. */
void late_targets_give_up(struct late_targets *targets);
void late_targets_free(struct late_targets *targets);

/* Attaches to one process that has loaded Python. 0, or session_add()'s error. */
int late_attach(struct session *session, pid_t pid);

#endif
