/* SPDX-License-Identifier: Apache-2.0 */
/* Which memory is copied, and how it is described: what capturing has in common. */
#pragma once

#include "inspect/dump/capture.h"
#include "proc/memory.h"

/*
 * Lists the segments that are to be copied, without their bytes; a map that begins as a file's .bss
 * gives two. 0, -ENOMEM. They are the caller's to capture_free().
 */
int capture_segments(struct capture *capture, const struct process_maps *maps,
		     const struct memory_reader *memory);
/*
 * Fills in what is known of the runtime. 0; -ENOTSUP: PyType_Type is not found (error_set); errors
 * of runtime_read().
 */
int capture_describe(struct image *image, const struct python_runtime *runtime);
/*
 * Maps memory for the segments, and for what is added later, and gives them their bytes. 0,
 * -ENOMEM.
 */
int capture_reserve(struct capture *capture);
/*
 * Adds anonymous memory that was mapped since, if there is room for it: to the segment before it or
 * as a segment of its own. Its bytes are zero. added() is called for each part. 0, -ENOMEM, or the
 * first error of added().
 */
int capture_extend(struct capture *capture, const struct process_maps *maps,
		   int (*added)(void *context, const struct image_segment *part), void *context);
/*
 * Ends what began at CLOCK_MONOTONIC's began_ns: moves the capture to *out; frees it if err is set.
 * Returns err.
 */
int capture_end(struct capture *capture, int err, uint64_t began_ns, struct capture *out);
