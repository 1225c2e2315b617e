/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds a snapshot. Equal tracebacks and equal {process, traceback, bytes, domain, flags, age} are
 * merged. Callers write strings directly to builder.snapshot->strings and the meta data to
 * builder.snapshot->meta.
 */
#pragma once

#include "snapshot/snapshot.h"

/* Open addressing over the indices of one of the snapshot's arrays; zero-initialised. */
struct builder_index {
	uint32_t *slots; /* index + 1; 0: empty */
	size_t capacity; /* a power of two, or 0 */
};

struct builder {
	struct account *account;   /* used by this builder only, borrowed; NULL: none */
	struct snapshot *snapshot; /* owned until builder_finish() */
	size_t frame_capacity, binary_capacity, traceback_capacity, trace_capacity,
		layer_capacity[SNAPSHOT_LAYERS], process_capacity, estimate_capacity,
		thread_capacity;
	struct builder_index binary_index, traceback_index, trace_index, estimate_index,
		thread_index;
	uint64_t total_bytes, layer_bytes[SNAPSHOT_LAYERS];
};

int builder_begin(struct builder *builder); /* 0, -ENOMEM */
/*
 * Charges the snapshot to an account that nothing else uses. This function and those below then
 * also fail with -EDQUOT and may be called again after that. builder_finish() and builder_abort()
 * clear the account.
 */
int builder_begin_in(struct builder *builder, struct account *account);
/*
 * What snapshot_frame.native is of a binary's frames, which is added if new: SNAPSHOT_NATIVE beyond
 * SNAPSHOT_BINARIES_MAX. 0; -ENOMEM.
 */
int builder_binary(struct builder *builder, const struct snapshot_binary *binary, uint16_t *native);
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
/*
 * Sets trace->estimate for a count with such deviations; 0 if all of them are 0. Equal ones are
 * stored once. Traces with an estimate are not merged. 0; -ENOMEM; -EOVERFLOW beyond
 * SNAPSHOT_ESTIMATES_MAX.
 */
int builder_estimate(struct builder *builder, const struct snapshot_estimate *deviations,
		     struct snapshot_trace *trace);
/*
 * The same for a layer other than the first, or SNAPSHOT_OLDER; equal traces are not merged.
 */
int builder_layer(struct builder *builder, uint32_t layer, const struct snapshot_trace *trace);
/*
 * The same, but without merging equal traces, so that the order of individually listed blocks is
 * kept.
 */
int builder_append(struct builder *builder, const struct snapshot_trace *trace);
/* Names a thread, unless it has a name already. 0, -ENOMEM. */
int builder_thread(struct builder *builder, uint32_t tid, const char *name);
/*
 * Adds a process that traces may refer to. *meta is borrowed until the next call. 0; -EFBIG: too
 * many; -ENOMEM.
 */
int builder_process(struct builder *builder, struct snapshot_meta **meta);
/*
 * Sorts the traces by process if they are not in that order; only builder_finish() may follow. 0,
 * -ENOMEM.
 */
int builder_order(struct builder *builder);
/*
 * Returns the snapshot, with its traces in the order in which they were first added. Caller frees.
 */
struct snapshot *builder_finish(struct builder *builder);
void builder_abort(struct builder *builder);
