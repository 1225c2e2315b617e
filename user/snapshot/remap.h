/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies traces from one snapshot to another. Names and tracebacks are copied when the first trace
 * needs them.
 */
#pragma once

#include "snapshot/app.h"
#include "snapshot/builder.h"

struct remap {
	const struct snapshot *from; /* borrowed, like the builder */
	struct builder *to;
	/* index in from -> index in to; UINT32_MAX: not copied yet */
	uint32_t *strings, *tracebacks;
	uint16_t *natives; /* of binaries: snapshot_frame.native in to; 0: not copied yet */
	struct snapshot_frame *frames; /* buffer for one traceback */
	/*
	 * Borrowed. Tracebacks start at the application's most recent frame. NULL: unchanged. Its
	 * snapshot is `from`, or a view of it, which lacks frames at the top of tracebacks.
	 */
	struct app_run *app;
};

/* 0, -ENOMEM */
int remap_begin(struct remap *remap, const struct snapshot *from, struct builder *to);
/*
 * Replaces trace->traceback and trace->estimate, indices in from, by those in to. 0, -ENOMEM,
 * -EOVERFLOW.
 */
int remap_trace(struct remap *remap, struct snapshot_trace *trace);
void remap_end(struct remap *remap); /* also valid after a failed remap_begin() */
