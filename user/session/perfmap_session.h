/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session of tracer perfmap: processes and what they fork, their tables, the files that they
 * append to, the memory that they unmap. The counterpart of session.h for perf maps.
 */
#ifndef TRACER_SESSION_PERFMAP_SESSION_H
#define TRACER_SESSION_PERFMAP_SESSION_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "abi/events.h"
#include "perfmap/follow.h"
#include "perfmap/install.h"
#include "perfmap/process.h"
#include "plan/perfmap_plan.h"

#define PERFMAP_FOLLOWS_MAX 64 /* files that are followed for one process */

struct perfmap_session_opts {
	size_t ring_bytes;                    /* 0: the default */
	uint64_t budget;                      /* see perfmaps_budget() */
	int merge;                            /* begin with the map files that are there */
	const struct perfmap_symbol *symbols; /* borrowed */
	size_t symbol_count;
};

struct perfmap_member {
	struct perfmap_process *process; /* borrowed from the session */
	pid_t pid, ns_pid;
	int pidfd; /* -1 once it has ended, or where it had before anybody could look */
	uint32_t uid;
	int named;  /* asked for, not forked under our eyes */
	int probed; /* files that have probes */
	int python; /* one of them is CPython with the perf map functions */
	char name[64];
	struct perfmap_places places;
	struct perfmap_follow *follows[PERFMAP_FOLLOWS_MAX];
	size_t follow_count;
	uint64_t jitdumps;        /* of the files followed */
	uint64_t files_refused;   /* map files that belong to somebody else, or are no files */
	char file_reason[128];    /* of the last one */
	uint64_t follows_dropped; /* files beyond PERFMAP_FOLLOWS_MAX */
	uint64_t scanned_ns, scan_cost_ns;
	uint64_t installed_ns;
	int install_error; /* the last one that was reported */
};

struct perfmap_session;

/* As session_new(). */
int perfmap_session_new(struct perfmap_session **out, const struct perfmap_session_opts *opts,
			const char **remedy);
void perfmap_session_free(struct perfmap_session *session);
/*
 * Brings a process under trace and reads what there is of its map. 0; -ESRCH; -EPERM; -EINVAL a
 * thread; -ENOENT a symbol of the user's is nowhere in it; -errno. Says on stderr what was attached
 * to (log_info).
 */
int perfmap_session_add(struct perfmap_session *session, pid_t pid);
/* Records and files as they are now. Returns the number of records handled, or -errno. */
int perfmap_session_drain(struct perfmap_session *session);
/* All that there is to know: every record and file, and what is mapped. 0, -errno. */
int perfmap_session_refresh(struct perfmap_session *session);
/*
 * Puts a member's map in its places, as perfmap_install(); one that never had an entry has none
 * installed.
 */
int perfmap_session_install(struct perfmap_session *session, struct perfmap_member *member);

/* Of processes that were asked for, those still running. */
size_t perfmap_session_running(const struct perfmap_session *session);
size_t perfmap_session_count(const struct perfmap_session *session);
struct perfmap_member *perfmap_session_at(const struct perfmap_session *session, size_t index);
/* Descriptors to poll() for: fills at most room, returns how many. */
size_t perfmap_session_poll_fds(const struct perfmap_session *session, int *fds, size_t room);
int perfmap_session_loss(const struct perfmap_session *session, __u64 counts[LOSS_COUNT]);

#endif
