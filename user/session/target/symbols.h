/* SPDX-License-Identifier: Apache-2.0 */
/* Names of native addresses, as records in the stream. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct session;
struct target;

#define TARGET_MODULES 16 /* how many snapshots of its mappings are kept */

/* Zero-initialise. */
struct target_symbols {
	struct modules *modules[TARGET_MODULES]; /* the newest last */
	size_t count;
	/* everything that mmap events reported since its exec; NULL: it ran before */
	struct modules *reported;
	/*
	 * Cursors for trace_unnamed_next(): addresses whose files are open, that were looked up
	 * ahead of time, that have names.
	 */
	size_t watched, prepared, named;
	struct symbols_share *share; /* NULL: nothing was looked up */
	int late;                    /* some lookups timed out: they may be complete by now */
	uint64_t looked_ns;
	uint64_t jit_looked_ns; /* when it was last looked for files that name code */
	int jit_wanted;         /* since then there was code that none names */
};

/*
 * The end of a wait for names, by either of two clocks: symbols_worker_ns() and CLOCK_MONOTONIC.
 */
struct names_end {
	uint64_t worker_ns, wall_ns;
};

/* How long the session may wait for names. Zero-initialise. */
struct names_time {
	/* while several targets run: the time left, a share of the time that passes */
	uint64_t left_ns, filled_ns;
	int ends; /* the session ends, and no name is waited for after end */
	struct names_end end;
	size_t turn; /* index of the target that is looked up next */
};

/* From here on addresses can be named; it is no error if they cannot. 0, -ENOMEM. */
int target_symbols_begin(struct session *session, struct target *target);
/* The same for a forked child, which maps what its parent maps. */
int target_symbols_inherit(struct session *session, struct target *target,
			   const struct target *parent);
/* Takes a snapshot of what is mapped. 0, -errno. */
int target_symbols_look(struct session *session, struct target *target);
void target_symbols_end(struct target *target);
/* Opens the files of new addresses. */
void target_symbols_watch(struct session *session, struct target *target, uint64_t now);
/*
 * Feeds names for the addresses that have none. Waits for those that were not looked up ahead of
 * time, but not so long that other processes lose events; the others are fed as timed out. 0,
 * -errno.
 */
int target_symbols_name(struct session *session, struct target *target);
/* The same for all targets; errors are logged. */
void session_name(struct session *session);
/* Looks names up ahead of time, for some milliseconds. */
void session_names_prepare(struct session *session);
/* The session ends: names are waited for 5 s more, or 0.5 s if hurried. */
void session_names_end(struct session *session, int hurried);
