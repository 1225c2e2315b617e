/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process whose memory may be what a limit kills it for. While the limit comes nearer its heap is
 * copied a few times to a folder, by a confined process of ours: after the kill there is nothing to
 * read any more. Three copies are kept: the first, the second and the last.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cmd/evidence/trigger.h"
#include "util/buffer.h"

#define SUSPECT_COPIES 3u
#define SUSPECT_REASON 256u
/* Priorities: of copies far from a limit, and bundles; of copies in the last seconds. */
#define SUSPECT_NICE         5
#define SUSPECT_NICE_HURRIED -15

struct suspect_copy {
	uint64_t time_ns; /* CLOCK_REALTIME, when it was begun */
	uint64_t rss;     /* bytes */
	double share;     /* of the limit */
	bool cut;         /* its parts do not fit together (capture.torn) */
};

struct suspect {
	pid_t pid;
	unsigned int number; /* of this tracer's suspects: a pid may come again */
	int pidfd;           /* readable when it has ended */
	bool ended;
	bool told; /* a bundle tells of its end */
	char name[64];
	struct buffer command; /* arguments, each with its NUL */
	struct buffer names;   /* of its environment's variables, each with a NUL; no values */
	struct suspect_copy copies[SUSPECT_COPIES], next; /* next: that is being made */
	unsigned int count;                               /* of copies */
	unsigned int failures;                            /* since the last copy */
	pid_t worker;                                     /* makes a copy; 0: none */
	pid_t reader;                                     /* reads what RSS is; 0: none */
	uint64_t reader_time_ns,
		memory_time_ns;               /* CLOCK_REALTIME: when it began; of what is kept */
	uint64_t worker_ns, took_ns, done_ns; /* CLOCK_MONOTONIC; took_ns: of the last copy */
	char reason[SUSPECT_REASON];          /* why the last copy failed; "" */
	uint64_t rss, growth;                 /* at the last look; growth: of the trigger's time */
	struct trigger_past past;
	unsigned int fired; /* triggers that it has reached and not left since, a bit of each */
};

/* 0; -ESRCH, -errno. suspect_free() releases. */
int suspect_new(struct suspect **out, pid_t pid);
/*
 * Of a process that was forked and has the memory of its parent: the parent's first copy is its
 * first, too.
 */
void suspect_inherit(struct suspect *suspect, const struct suspect *parent, int folder);
/* Removes its copies, too. NULL is legal. */
void suspect_free(struct suspect *suspect, int folder);
/*
 * Begins a copy, and to read what RSS consists of. share: of the limit that is used; hurried: there
 * are only seconds, and RSS is not read. 0; -EBUSY: one is being made; -errno.
 */
int suspect_copy_begin(struct suspect *suspect, int folder, double share, bool hurried);
/*
 * Has the copy that was begun come to its end? Then what it gave counts. wait: until then, and
 * until RSS is read.
 */
bool suspect_copy_end(struct suspect *suspect, int folder, bool wait);
/* Gives up what a copy or a reading has not come to its end with. */
void suspect_copy_abort(struct suspect *suspect);
/* Removes its copies, which are made anew when they are due. Not while one is being made. */
void suspect_drop(struct suspect *suspect, int folder);
/*
 * Of a process of ours that takes as much memory as a target: where that runs out, the kernel is to
 * take it before others.
 */
void suspect_yield_memory(void);
/* A file of its in the folder: "1.dump" to "3.dump", "memory.txt", "memory.json". */
void suspect_file(const struct suspect *suspect, const char *what, char name[64]);
