/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first walk says which blocks are older than the trace: all that were not seen. Later ones
 * count all of them by size and by the walk that has shown them first. Of the native layer they say
 * which of those that were seen are still allocated; of Python's, other looks do (large.c), and a
 * walk of its pools follows, with which these are counted.
 */
#include <errno.h>

#include "trace/process/process_tables.h"
#include "util/array.h"

/* The cohort of a block that no walk has shown before. */
static uint32_t cohort_new(struct process_state *process, const struct sampled_block *sampled_block)
{
	int is_old = !process->windows.chunks.known && !process->info.from_start && !sampled_block;
	uint32_t now = state_windows_cohort_now(process);

	return is_old ? COHORT_OLD : now;
}

/* Is it known as one block, and stands for no others? */
static bool is_certain(const struct process_state *process,
		       const struct sampled_block *sampled_block, uint64_t address)
{
	if (sampled_block || state_window_is_native(process) || process->info.large_windowed)
		return sampled_block && sampled_block->flags & SAMPLED_BLOCK_CERTAIN;
	return blocks_at_allocator(process->blocks[EVENT_LAYER_PYTHON], address) != NULL;
}

static int chunk_show(struct process_state *process, const struct event_chunk *shown)
{
	struct sampled_block *sampled_block =
		sampled_blocks_find(&process->windows.sampled_blocks, shown->address);
	int has_classes = process->windows.chunks.has_classes, err;
	struct chunk *chunk;

	if (shown->address % (EVENT_CHUNK_UNIT / (has_classes ? 2 : 1)) || !shown->units)
		return -EBADMSG;
	if (!shown->unread && is_certain(process, sampled_block, shown->address))
		return 0;
	if (shown->unread)
		return chunk_table_unread(&process->windows.chunks, shown->address, shown->units);
	err = chunk_table_show(&process->windows.chunks, shown->address, shown->units, &chunk);
	if (!err && !chunk->cohort)
		chunk->cohort = cohort_new(process, sampled_block);
	return err;
}

/* May a block that was seen be in a chunk of that size? */
static bool is_same(const struct sampled_block *sampled_block, const struct block *block,
		    uint32_t units, int has_classes)
{
	return sampled_block->print ? sampled_block->print == units
				    : chunk_fits(units, block->bytes, has_classes);
}

/* Drops what was seen and is not allocated any more. */
static int sampled_blocks_judge(struct process_state *process)
{
	struct trace_windows *windows = &process->windows;
	const struct sampled_block *next;
	int err = 0;

	windows->fresh_count = windows->last_count = 0;
	for (size_t cursor = 0;
	     !err && (next = sampled_blocks_next(&windows->sampled_blocks, &cursor));) {
		struct sampled_block *sampled_block =
			sampled_blocks_find(&windows->sampled_blocks, next->address);
		const struct chunk *chunk = chunk_table_find(&windows->chunks, next->address);
		const struct block *block = state_window_block(process, sampled_block);

		if (chunk && block &&
		    is_same(sampled_block, block, chunk->units, windows->chunks.has_classes)) {
			sampled_block->print = chunk->units;
			sampled_block->seen_ns = process->info.end_ns;
			continue;
		}
		if (!chunk && chunk_table_is_unread(&windows->chunks, next->address))
			continue;
		windows->changed += chunk != NULL;
		err = ARRAY_RESERVE(windows->account, windows, fresh, fresh_count, fresh_capacity,
				    1);
		if (!err)
			windows->fresh[windows->fresh_count++] = next->address;
	}
	for (size_t i = 0; i < windows->fresh_count; i++)
		state_window_drop(process, windows->fresh[i]);
	windows->fresh_count = 0;
	return err;
}

static int walk_end(struct process_state *process, uint64_t time_ns)
{
	struct trace_windows *windows = &process->windows;
	int is_first = !windows->chunks.known, err = 0;

	chunk_table_end(&windows->chunks);
	if (is_first)
		windows->chunks_old = chunk_table_of(&windows->chunks, COHORT_OLD);
	if (!state_window_is_native(process))
		return 0;
	frees_walked(&windows->frees, &windows->chunks, &windows->deaths);
	err = sampled_blocks_judge(process);
	kind_counts_free(&windows->walk);
	if (!err)
		state_windows_walked(process, 1, 0, time_ns);
	return err;
}

static int is_wanted(const struct process_state *process)
{
	const struct trace_process *info = &process->info;

	return info->mode == EVENT_MODE_WINDOWS && info->end == TRACE_RUNNING &&
	       !process->windows.open;
}

int state_census_chunks(struct process_state *process, const struct event_census_chunks *event)
{
	struct chunk_table *chunks = &process->windows.chunks;
	int err = 0;

	if (event->count > EVENT_CHUNKS_MAX ||
	    event->header.size != sizeof(*event) + event->count * sizeof(event->chunks[0]))
		return -EBADMSG;
	if (!is_wanted(process))
		return 0;
	if (event->flags & EVENT_CHUNKS_FIRST)
		chunk_table_begin(chunks, !!(event->flags & EVENT_CHUNKS_CLASSES));
	for (uint32_t i = 0; !err && i < event->count; i++)
		err = chunk_show(process, &event->chunks[i]);
	if (!err && chunks->walking && event->flags & EVENT_CHUNKS_LAST)
		err = walk_end(process, event->header.time_ns);
	if (err)
		chunk_table_abandon(chunks);
	return err;
}
