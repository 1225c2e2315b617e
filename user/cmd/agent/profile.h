/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pprof profile for a scraper, or a report, made by a process of its own: it asks the session for
 * snapshots, which may take a while, and subtracts them. It has no privileges, and its memory goes
 * with it.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "util/buffer.h"

#define PROFILE_SECONDS   300u
#define PROFILE_PROCESSES 64u
#define PROFILE_OUTS      2u

enum profile_kind {
	PROFILE_HEAP,   /* what is in use is shown first */
	PROFILE_ALLOCS, /* what was allocated is shown first */
	PROFILE_REPORT, /* a page of one process, as `tracer export --format html` writes it */
};

struct profile_opts {
	enum profile_kind kind;
	pid_t session;
	uint32_t pids[PROFILE_PROCESSES];
	size_t pid_count; /* 0: all processes of the session that run, in one profile */
	/* the difference between two snapshots so long apart; 0: what there is now */
	unsigned int seconds;
	/*
	 * Makes what is handed over from the profile, in that process, as the first `outs` of
	 * PROFILE_OUTS; NULL: the profile itself is the first. Appends to them. 0, -errno.
	 */
	int (*convert)(const void *context, const struct buffer *profile, struct buffer *outs);
	const void *convert_context;
	size_t outs; /* with convert */
};

/* What becomes of it: an HTTP status and, unless it is 200, a line of text. */
struct profile_end {
	int status;
	char text[248];
};

struct profile {
	pid_t child;
	int socket; /* readable when it is done; -1: there is none */
};

/* 0, -errno. */
int profile_begin(struct profile *profile, const struct profile_opts *opts);
/* Waits for the end; what was made is put in place of the content of outs: so many of them. */
void profile_finish(struct profile *profile, struct profile_end *end, struct buffer *outs,
		    size_t count);
/* Kills the process. A profile that has not begun is legal. */
void profile_kill(struct profile *profile);
