/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building a snapshot: equal tracebacks and equal {process, traceback, bytes, domain, flags} become
 * one. Strings go straight into builder.snapshot->strings, the meta data into
 * builder.snapshot->meta.
 */
#ifndef TRACER_SNAPSHOT_BUILDER_H
#define TRACER_SNAPSHOT_BUILDER_H

#include "snapshot/snapshot.h"

/* Open addressing over indices of an array of the snapshot; zero-initialised. */
struct builder_index {
	uint32_t *slots; /* index + 1; 0: empty */
	size_t capacity; /* a power of two, or 0 */
};

struct builder {
	struct account *account;   /* of its own, borrowed; NULL: none */
	struct snapshot *snapshot; /* owned until builder_finish() */
	size_t frame_room, traceback_room, trace_room, layer_room[EVENT_LAYERS], process_room;
	struct builder_index traceback_index, trace_index;
	uint64_t total_bytes, layer_bytes[EVENT_LAYERS];
};

int builder_begin(struct builder *builder); /* 0, -ENOMEM */
/*
 * What is built is charged to an account that nothing else is charged to: this and the functions
 * below also fail with -EDQUOT, and may be called again then. builder_finish() and builder_abort()
 * clear it.
 */
int builder_begin_in(struct builder *builder, struct account *account);
/*
 * Index of the traceback, added if new. nframe is at least 1. 0; -ENOMEM; -EOVERFLOW beyond 2^32
 * frames.
 */
int builder_traceback(struct builder *builder, const struct snapshot_frame *frames, uint32_t nframe,
		      uint32_t total, uint32_t *traceback);
/*
 * Adds trace->count blocks (at least one). 0; -ENOMEM; -EOVERFLOW when the bytes of all blocks
 * would exceed INT64_MAX, so that no sum over a snapshot's blocks can overflow.
 */
int builder_trace(struct builder *builder, const struct snapshot_trace *trace);
/* The same for a layer beside the first; equal ones stay apart. */
int builder_layer(struct builder *builder, enum event_layer layer,
		  const struct snapshot_trace *trace);
/*
 * The same, but never one with an equal trace before it: the order of blocks that were listed one
 * by one stays.
 */
int builder_append(struct builder *builder, const struct snapshot_trace *trace);
/*
 * One more process, for the traces that name it; *meta is borrowed until the next. 0; -EFBIG: too
 * many; -ENOMEM.
 */
int builder_process(struct builder *builder, struct snapshot_meta **meta);
/*
 * Puts the traces into the order of their processes, where they came in another; only
 * builder_finish() follows. 0, -ENOMEM.
 */
int builder_order(struct builder *builder);
/* Hands the snapshot over, its traces in the order of their first addition. */
struct snapshot *builder_finish(struct builder *builder);
void builder_abort(struct builder *builder);

#endif
