/* SPDX-License-Identifier: Apache-2.0 */
/* A trace of one process. */
#pragma once

#include "records.h"
#include "snapshot/snapshot.h"

#define PY38 0x030800f0u

static inline int setup(void **state)
{
	struct trace *trace;

	if (trace_new(&trace, NULL) || feed_process(trace, PY38))
		return -1;
	*state = trace;
	return 0;
}

static inline int teardown(void **state)
{
	trace_free(*state);
	return 0;
}

static inline const struct trace_process *process_of(struct trace *trace)
{
	return trace_process_at(trace, 0);
}

static inline const char *filename_at(struct trace *trace, uint32_t traceback, uint32_t frame)
{
	struct trace_traceback shown = trace_traceback_at(trace, 0, traceback);

	return strings_get(trace_strings(trace, 0), shown.frames[frame].filename);
}

static inline uint32_t traceback_of(struct trace *trace, uint64_t address)
{
	const struct block *block =
		blocks_find(trace_blocks(trace, 0, EVENT_LAYER_PYTHON), address, 0);

	assert_non_null(block);
	return block->stack;
}
