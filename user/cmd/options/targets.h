/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attaches to the processes of a target_set: those that exist at the start, and with --wait those
 * that load Python later or belong to a container that starts later.
 */
#pragma once

#include "probe/process/late.h"
#include "proc/targets/target_set.h"
#include "session/session.h"

/* Processes to wait for, because they have not loaded Python yet (probe/process/late.h). */
struct late_targets {
	struct late *items;
	size_t count;
	uint64_t looked_ns;
};

struct targets {
	struct target_set *set; /* borrowed */
	struct late_targets late;
	pid_t *seen; /* every process that was tried */
	size_t seen_count, seen_capacity, attached;
	size_t refused; /* with -a: what cannot be traced as asked */
	int follows;    /* set by the caller: the session attaches to later processes that match */
	int open;       /* nothing matched at the start, but a match may start later */
	uint64_t looked_ns, pause_ns;
	/* called after each attach of many; 1: give up the rest; NULL: none */
	int (*between)(void *context);
	void *between_context;
};

/*
 * Resolves the set and attaches to its processes. 0: something is traced or waited for; else -errno
 * after a message.
 */
int targets_attach(struct targets *targets, struct session *session);
/*
 * Checks for what is waited for, at most as often as its cost allows; call it in the main loop. 0;
 * -errno after a message: the wait is over.
 */
int targets_look(struct targets *targets, struct session *session);
/* Attaches to one process that has loaded Python. 0, or session_add()'s error. */
int late_attach(struct session *session, pid_t pid);
/* Is anything waited for? */
int targets_waiting(const struct targets *targets);
/*
 * At the end: prints an error for each target that was waited for in vain. traced: the number of
 * processes that the session traced; ended: of matching ones that ended before.
 */
void targets_give_up(struct targets *targets, size_t traced, size_t ended);
void targets_free(struct targets *targets);

/*
 * The current processes of a set. missing: the remedy if there is no such container. 0, or -errno
 * after a message; the caller frees *pids.
 */
int targets_list(struct target_set *set, const char *missing, pid_t **pids, size_t *count);
/*
 * Names on stderr the workers (family.h) of these processes that are not among them, nor under
 * trace (session NULL: there is none). done: what they are not, "traced". several: the command's -p
 * takes several processes.
 */
void targets_workers_print(const pid_t *pids, size_t count, struct session *session,
			   const char *done, int several);
void target_error_print(const struct target_set *set, pid_t pid, int err);
/*
 * The same for a process that the user named by its id: an id of another PID namespace is
 * explained.
 */
void pid_error_print(pid_t pid, int err);
/* Prints that none of the `count` processes can be traced, and a remedy. Returns -ESRCH. */
int targets_none_print(const struct target_set *set, size_t count);
