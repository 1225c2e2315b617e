/* SPDX-License-Identifier: Apache-2.0 */
/* Private to capture.c and capture_again.c: what a running process changes while it is copied. */
#ifndef TRACER_DUMP_CAPTURE_AGAIN_H
#define TRACER_DUMP_CAPTURE_AGAIN_H

#include "dump/capture.h"
#include "dump/resident.h"

/* The copying of a process. */
struct copying {
	pid_t pid;
	int pagemap;
	int skip_swapped; /* pages that are swapped out are not copied */
};

/*
 * Which pages of a piece are copied: all of a file's, and those that exist of other memory, unless
 * they are swapped out and shall stay there. Returns the number of these.
 */
uint32_t piece_pages(const struct copying *copying, const struct image_segment *segment,
		     uint64_t from, uint32_t pages, uint8_t exists[RESIDENT_PAGES]);
/*
 * Copies again what has changed since the process had run for run_ns (threads_run_ns()), if it has
 * run since. 0; -ESRCH; -EPERM; -ENOMEM.
 */
int capture_again(struct capture *capture, const struct copying *copying, uint64_t run_ns);

#endif
