/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that are waited for, because they have not loaded Python yet (late.h). */
#ifndef TRACER_CLI_LATE_TARGETS_H
#define TRACER_CLI_LATE_TARGETS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "python/late.h"
#include "session/session.h"

struct late_targets {
	struct late *items;
	size_t count;
	uint64_t looked_ns;
};

/*
 * Begins to wait for a process, and says so. 0; -ENOMEM. Zero-initialise; late_targets_free()
 * releases.
 */
int late_targets_add(struct late_targets *targets, pid_t pid);
/*
 * Looks, if the last time is 20 ms ago, and brings under trace what has come; what ended or cannot
 * be traced is told and dropped. Returns how many were attached.
 */
size_t late_targets_look(struct late_targets *targets, struct session *session);
/* Tells of those that are waited for still. */
void late_targets_give_up(struct late_targets *targets);
void late_targets_free(struct late_targets *targets);

/* The same of one process at hand: brings it under trace. 0, or session_add()'s error. */
int late_attach(struct session *session, pid_t pid);

#endif
