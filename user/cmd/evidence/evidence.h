/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps evidence of processes whose memory runs out. It places no probe and stops nothing: it looks
 * at the limits of their cgroups, copies a heap a few times while a limit comes nearer (suspect.h),
 * and writes a bundle (bundle.h) when the kernel has killed a process for memory, or when a
 * threshold is reached. What is waited for is a kill that the cgroup counts, so nothing is lost
 * between two looks.
 */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cmd/evidence/trigger.h"

struct evidence_set;

struct evidence_opts {
	int on_oom;
	struct triggers triggers;
	/* between two bundles of processes of one name, in ns; those between are skipped */
	uint64_t pause_ns;
	const char *folder; /* of bundles and copies: a directory that is there; copied */
	uint64_t space;     /* bytes of all copies; 0: as long as the file system has room */
	/* the bundle's file, borrowed; NULL: NAME-PID-TIME.evidence in the folder, for each one */
	const char *path;
	unsigned int keep; /* bundles of that path that are kept: the newest */
	/* called when a bundle has been written; NULL: nothing is to be done */
	void (*done)(void *context, const char *path);
	void *done_context;
};

/* Makes a hidden folder for copies, and removes those that killed tracers left. 0, -errno. */
int evidence_new(struct evidence_set **out, const struct evidence_opts *opts);
/* Removes the copies. Bundles that are being written are completed. NULL is legal. */
void evidence_free(struct evidence_set *evidence);
/*
 * Watches a process, too. One that is watched stays so. baseline: its heap is copied now, too, to
 * tell what has grown since. 0; -ESRCH; -errno.
 */
int evidence_add(struct evidence_set *evidence, pid_t pid, bool baseline);
bool evidence_has(const struct evidence_set *evidence, pid_t pid);
/* Is a bundle being written? */
bool evidence_is_writing(const struct evidence_set *evidence);
/* Processes that are watched, or have ended and are not dealt with yet. */
size_t evidence_count(const struct evidence_set *evidence);
/* Bundles that were written. */
size_t evidence_written(const struct evidence_set *evidence);

/* For poll(), at most `capacity` of them: what has to be looked at at once. */
size_t evidence_poll_fds(const struct evidence_set *evidence, struct pollfd *fds, size_t capacity);
/*
 * Looks at everything that is due; events: and at what a descriptor says, since poll() returned for
 * one. The time until the next look, in ns.
 */
uint64_t evidence_step(struct evidence_set *evidence, bool events);
