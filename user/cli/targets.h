/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bringing the processes of a target_set under trace: those that there are at the start, and with
 * --wait those that load Python later or live in a container that comes later.
 */
#ifndef TRACER_CLI_TARGETS_H
#define TRACER_CLI_TARGETS_H

#include "cli/late_targets.h"
#include "select/target_set.h"
#include "session/session.h"

struct targets {
	struct target_set *set; /* borrowed */
	struct late_targets late;
	pid_t *seen; /* every process that was looked at */
	size_t seen_count, seen_room, attached;
	int follows; /* set by the caller: the session picks up what comes to match */
	int open;    /* nothing matched at the start, and something may come */
	uint64_t looked_ns, pause_ns;
};

/*
 * Finds out what the set means and attaches. 0: something is traced or waited for; else -errno
 * after a message.
 */
int targets_attach(struct targets *targets, struct session *session);
/*
 * Looks, now and then, for what is waited for; call it often. 0, or -errno after a message: it will
 * not come.
 */
int targets_look(struct targets *targets, struct session *session);
/* Is anything waited for? */
int targets_waiting(const struct targets *targets);
/*
 * At the end: tells of what has been waited for in vain. traced: processes that the session has
 * had.
 */
void targets_give_up(struct targets *targets, size_t traced);
void targets_free(struct targets *targets);

/*
 * The processes of a set now. missing: what helps where there is no such container. 0, or -errno
 * after a message; caller frees *pids. session_add()'s and plan_process()'s errors are told by
 * target_error_print(): of one among many that has no Python only with -v.
 */
int targets_list(struct target_set *set, const char *missing, pid_t **pids, size_t *count);
void target_error_print(const struct target_set *set, pid_t pid, int err);
/* The same of a process that was named by its id: one of another PID namespace is explained. */
void pid_error_print(pid_t pid, int err);
/* None of them has Python: what was asked for, and what may help. Returns -ESRCH. */
int targets_none_print(const struct target_set *set, size_t count);

#endif
