/* SPDX-License-Identifier: Apache-2.0 */
/* Candidates: processes that are watched and not traced, because they may come to run Python. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "probe/process/late.h"

struct session;

struct candidate {
	struct late late;
	/* everything it maps was inspected and nothing is wanted, or it was refused */
	int settled;
	int examined;     /* it has been settled once: nothing was missed before that */
	int native;       /* it is also wanted without Python */
	int wanted;       /* as session_opts.wanted() returned: a process may be gone by then */
	uint64_t born_ns; /* when it appeared, or last mapped a file with code */
	uint64_t next_ns; /* when it is inspected next */
};

/* Valid until the next call of this module. NULL: there is none. */
struct candidate *candidate_find(struct session *session, uint32_t pid);
void candidate_remove(struct session *session, struct candidate *candidate);
/* The same when its process has ended: counts it if its program was never examined. */
void candidate_ended(struct session *session, struct candidate *candidate);
/* Schedules an inspection: it is new, or has mapped a new file. NULL: no memory. */
struct candidate *candidate_touch(struct session *session, uint32_t pid);
/* The same for a new program. parent: its parent's pid, 0: not known; name: its comm, or NULL. */
void candidate_renew(struct session *session, uint32_t pid, uint32_t parent, const char *name);
/* Inspects the candidates that are due, until the time `until`. Returns the time. */
uint64_t candidates_look(struct session *session, uint64_t now, uint64_t until);
/* Makes every process that is neither a target nor a candidate a candidate. */
void untracked_find(struct session *session);
/*
 * -ESRCH in place of an error, if the process ends just now: its first thread may be gone before
 * the others, and its last records are still to come. Else err.
 */
int ending_error(pid_t pid, int err);
/* Logs that a process is not traced: the first SESSION_LOGS ones, the others with -v. */
void refuse(struct session *session, pid_t pid, int err);
