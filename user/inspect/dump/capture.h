/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies the memory of a Python process, in one pass: what user/inspect/graph/ reads. The process
 * is only read; it runs on unless it is to be stopped for the copying.
 *
 * Copied is all private memory that can be written, and the constants of files that also have
 * variables, which hold names. Other mappings of files, shared memory and devices are not copied.
 */
#pragma once

#include <stdbool.h>

#include "inspect/graph/image.h"
#include "proc/process.h"
#include "runtime/cpython/runtime.h"

struct capture {
	struct image image;
	/* owned by the capture */
	struct image_segment *segments;
	struct heap_head *heads;
	uint8_t *memory;        /* mapped; the segments' bytes are in it */
	uint64_t memory_bytes;  /* of all segments */
	uint64_t memory_end;    /* of what they take of `memory`, with room behind them */
	uint64_t memory_mapped; /* of `memory` */
	uint64_t elapsed_ns;    /* of the copying */
	uint64_t copied_ns;     /* as the image's time_ns, of CLOCK_MONOTONIC; 0: of a file */
	bool torn; /* parts do not fit together: it ended meanwhile, or moved tables all the time */
};

struct capture_opts {
	int freeze;          /* stop the process for the copying */
	int hurried;         /* one pass, or none if it ends meanwhile */
	uint64_t most_bytes; /* refuse to copy more; 0: no limit */
};

/*
 * Pages that are swapped out are not copied, but counted. 0; -EDQUOT: more
 * memory than most_bytes (error_set tells both figures); -ENOTSUP, -ENODATA, -EAGAIN as
 * heap_read_pools(), or PyType_Type is not found; -EBUSY, -ETIMEDOUT as freeze_begin(); -ESRCH;
 * -EPERM; -ENOMEM. *out is the caller's to capture_free(), untouched on failure.
 */
int capture_take(struct capture *out, const struct python_runtime *runtime,
		 const struct process_info *info, const struct capture_opts *opts);
void capture_free(struct capture *capture);
