/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session of tracer perfmap: processes and their children, their tables, the files that they
 * append to, the memory that they unmap. The counterpart of session.h for perf maps.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "abi/events.h"
#include "object/perfmap/follow.h"
#include "object/perfmap/install.h"
#include "object/perfmap/jitdump_out.h"
#include "object/perfmap/process.h"
#include "probe/python/perfmap_plan.h"

#define PERFMAP_FOLLOWS_MAX 64 /* files that are followed for one process */

struct perfmap_session_opts {
	size_t ring_bytes;                    /* 0: the default */
	uint64_t budget;                      /* see perfmaps_budget() */
	int merge;                            /* begin with the existing map files */
	const char *jitdump;                  /* directory for a jitdump; borrowed; NULL: none */
	enum outfile_replace replace;         /* of the jitdump */
	const struct perfmap_symbol *symbols; /* borrowed */
	size_t symbol_count;
};

struct perfmap_target {
	struct perfmap_process *process; /* borrowed from the session */
	pid_t pid, ns_pid;
	int pidfd; /* -1: it has ended, possibly before it could be opened */
	uint32_t uid;
	int named;  /* it was added by perfmap_session_add(), not forked by a target */
	int probed; /* number of probes in the files that it maps */
	int python; /* it maps a CPython with the perf map functions */
	char name[64];
	const char *advice; /* how its program is made to write a map; NULL: not known */
	int advised;        /* that was said */
	struct perfmap_places places;
	struct space *space; /* its memory, for the jitdump; NULL: not opened */
	/* its executable mappings at the last look, for the jitdump; NULL: none yet */
	struct perfmap_range *code;
	size_t code_count;
	uint64_t outside_ns; /* time of the newest function outside of them; 0: none since then */
	struct perfmap_follow *follows[PERFMAP_FOLLOWS_MAX];
	size_t follow_count;
	uint64_t files_refused;   /* map files of another user, or that are no regular files */
	char file_reason[128];    /* why the first one was refused */
	uint64_t follows_dropped; /* files beyond PERFMAP_FOLLOWS_MAX */
	int stale;    /* its map file was written by an earlier process, and is not read */
	int older;    /* its map file is older than the process, which has written to it, too */
	int orphaned; /* it was forked by a process that has ended, whose map is not known */
	int finished; /* it has ended, and all that it wrote was read */
	uint64_t opened_ns, scanned_ns, expired_ns, scan_cost_ns;
	int install_error; /* the last one that was reported */
};

struct perfmap_session;

/* As session_new(). */
int perfmap_session_new(struct perfmap_session **out, const struct perfmap_session_opts *opts,
			const char **remedy);
void perfmap_session_free(struct perfmap_session *session);
/*
 * Brings a process under trace and reads its existing map. 0; -ESRCH; -EPERM; -EINVAL a thread;
 * -ENOENT it does not map the file of a symbol in the options; -errno. Logs the attachment
 * (log_info).
 */
int perfmap_session_add(struct perfmap_session *session, pid_t pid);
/* Drains records and reads files. Returns the number of records handled, or -errno. */
int perfmap_session_drain(struct perfmap_session *session);
/* The same to the end, for every record and file, and reads the mappings. 0, -errno. */
int perfmap_session_refresh(struct perfmap_session *session);
/*
 * Installs a target's map, as perfmap_install(). Nothing is installed for a target that never had
 * an entry.
 */
int perfmap_session_install(struct perfmap_session *session, struct perfmap_target *target);

/* Says how a process without entries is made to write a map, once. */
void perfmap_session_advise(struct perfmap_target *target);
/* How many processes of perfmap_session_add() are running. */
size_t perfmap_session_running(const struct perfmap_session *session);
size_t perfmap_session_count(const struct perfmap_session *session);
struct perfmap_target *perfmap_session_at(const struct perfmap_session *session, size_t index);
/* Descriptors to poll() for: writes at most capacity of them, returns how many. */
size_t perfmap_session_poll_fds(const struct perfmap_session *session, int *fds, size_t capacity);
/* The jitdump that is written; NULL: none. Borrowed until perfmap_session_free(). */
const struct jitdump_out *perfmap_session_jitdump(const struct perfmap_session *session);
int perfmap_session_loss(const struct perfmap_session *session, __u64 counts[LOSS_COUNT]);
