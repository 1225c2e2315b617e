/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks coming to life and dying. A realloc takes its block out at EVENT_REALLOC, since another thread may
 * be given that address before the realloc returns, and sets it aside for its thread; EVENT_REALLOC_DONE
 * drops it for the new block, EVENT_REALLOC_FAIL puts it back. A thread has at most one: an older one that
 * never ended is dropped.
 */
#include <errno.h>

#include "base/array.h"
#include "stats/estimate.h"
#include "trace/state.h"

void state_block_gone(struct process_state *process, const struct block *block)
{
	process->info.live_bytes -= estimate_bytes(process->info.sample_bytes, block->bytes);
	process->info.live_blocks--;
	process->info.large_blocks -= block->large;
	process->info.rounded_blocks -= block->rounded;
}

int state_block_put(struct process_state *process, const struct block *block)
{
	struct trace_process *info = &process->info;
	uint64_t bytes = estimate_bytes(info->sample_bytes, block->bytes);
	struct block old;

	if (!block->address || bytes > TRACE_BYTES_MAX - info->live_bytes)
		return -EBADMSG;
	int replaced = blocks_put(process->blocks, block, &old);
	if (replaced < 0)
		return replaced;
	if (replaced) {
		state_block_gone(process, &old);
		/* Where the heap tells of deaths every block that lies in a pool ends so. */
		info->counters.replaced += !old.pooled || !state_heap_tells(info);
	}
	info->live_bytes += bytes;
	info->live_blocks++;
	info->large_blocks += block->large;
	info->rounded_blocks += block->rounded;
	if (!state_heap_tells(info) && info->live_bytes > info->peak_bytes)
		info->peak_bytes = info->live_bytes;
	return 0;
}

/* Where the block is: in a pool, or passed on to malloc because it is too large, or of 0 bytes. */
static void place_set(struct block *block, uint32_t face, int was_large)
{
	int pymalloc = face == EVENT_API_MEM || face == EVENT_API_OBJ;
	uint64_t bytes = block->bytes + (block->hooked ? EVENT_HOOKS_BYTES : 0);

	block->large = was_large || face == EVENT_API_LARGE || (pymalloc && bytes - 1 >= EVENT_SMALL_BYTES);
	/* In growth mode it is a whole pool. */
	block->pooled = face == EVENT_API_POOL || (pymalloc && !block->large);
	/* Passed on, one of 0 bytes asks malloc for 1; pymalloc itself would have served that. */
	if (face == EVENT_API_LARGE && bytes == 1)
		block->bytes = 0;
}

/* The thread of a record, made at first mention. Borrowed until the next one is made. */
static int thread_find(struct process_state *process, uint32_t tid, struct thread_entry **out)
{
	uint32_t index;

	if (process->thread_count && process->last_tid == tid) {
		*out = &process->threads[process->last_thread];
		return 0;
	}
	index = id_map_find(&process->tids, tid);
	if (index == ID_MAP_NONE) {
		int err = array_reserve(&process->threads, &process->thread_room, process->thread_count, 1,
					sizeof(*process->threads));
		if (!err)
			err = id_map_put(&process->tids, tid, (uint32_t)process->thread_count);
		if (err)
			return err;
		index = (uint32_t)process->thread_count++;
		process->threads[index] = (struct thread_entry){.state = PENDING_NONE};
	}
	process->last_tid = tid;
	process->last_thread = index;
	*out = &process->threads[index];
	return 0;
}

static int thread_did(struct process_state *process, const struct event_header *header, uint64_t address,
		      int freed)
{
	struct thread_entry *thread;
	int err = thread_find(process, header->tid, &thread);

	if (err)
		return err;
	thread->last_freed = freed;
	thread->last_address = address;
	return 0;
}

static int event_put(struct process_state *process, const struct event_alloc *event, int was_large)
{
	struct block block = {.address = event->address,
			      .bytes = event->bytes,
			      .epoch = process->census.epoch,
			      .hooked = !!(event->api & EVENT_API_HOOKED),
			      .rounded = !!(event->api & EVENT_API_ROUNDED),
			      .domain = event->domain};
	int err = event->bytes > TRACE_BYTES_MAX
			  ? -EBADMSG
			  : state_stack_index(process, event->stack_id, &block.traceback);

	place_set(&block, event->api & EVENT_API_MASK, was_large);
	if (!err)
		err = state_block_put(process, &block);
	if (!err && !event->domain)
		err = thread_did(process, &event->header, event->address, 0);
	if (!err && block.traceback && !process->stacks[block.traceback].known) {
		process->stacks[block.traceback].waiting++;
		process->info.counters.stacks_unknown++;
	}
	return err;
}

int state_alloc(struct process_state *process, const struct event_alloc *event)
{
	int err = event_put(process, event, 0);

	if (!err)
		process->info.counters.allocs++;
	return err;
}

/* Where the allocator's block begins. */
static uint64_t block_start(const struct event_free *event)
{
	return event->address - (event->api & EVENT_API_HOOKED ? EVENT_HOOKS_BEFORE : 0);
}

int state_free(struct process_state *process, const struct event_free *event)
{
	struct block old;
	int err;

	process->info.counters.frees++;
	if (blocks_take(process->blocks, event->address, event->domain, &old))
		state_block_gone(process, &old);
	else
		process->info.counters.frees_unknown++;
	if (event->domain)
		return 0;
	err = thread_did(process, &event->header, block_start(event), 1);
	return err ? err : state_census_died(process, block_start(event));
}

int state_realloc(struct process_state *process, const struct event_free *event)
{
	struct thread_entry *thread;
	int err = thread_find(process, event->header.tid, &thread);

	if (err)
		return err;
	thread->state = PENDING_UNSEEN;
	if (blocks_take(process->blocks, event->address, event->domain, &thread->pending)) {
		thread->state = PENDING_TAKEN;
		state_block_gone(process, &thread->pending);
	} else {
		/* Not on the heap: then malloc has it, and keeps it when it shrinks. */
		thread->pending.large =
			process->census.known && !address_set_has(&process->census.old, event->address);
	}
	if (event->domain)
		return 0;
	err = thread_did(process, &event->header, block_start(event), 1);
	return err ? err : state_census_died(process, block_start(event));
}

/* Ends the thread's realloc under way; copies it out. */
static int pending_end(struct process_state *process, uint32_t tid, struct thread_entry *out)
{
	struct thread_entry *thread;
	int err = thread_find(process, tid, &thread);

	if (err)
		return err;
	*out = *thread;
	thread->state = PENDING_NONE;
	return 0;
}

int state_realloc_done(struct process_state *process, const struct event_alloc *event)
{
	struct thread_entry thread;
	int err = pending_end(process, event->header.tid, &thread);

	if (err)
		return err;
	process->info.counters.reallocs++;
	if (thread.state == PENDING_UNSEEN)
		process->info.counters.frees_unknown++;
	return event_put(process, event, thread.state != PENDING_NONE && thread.pending.large);
}

int state_realloc_fail(struct process_state *process, const struct event_free *event)
{
	struct thread_entry thread;
	int err = pending_end(process, event->header.tid, &thread);

	if (!err && !event->domain) /* the free was none */
		err = thread_did(process, &event->header, event->address, 0);
	if (err || thread.state != PENDING_TAKEN ||
	    blocks_find(process->blocks, thread.pending.address, thread.pending.domain))
		return err;
	/* The heap shows it, if it is in a pool: it never left. */
	thread.pending.epoch = process->census.epoch;
	return state_block_put(process, &thread.pending);
}

/*
 * An object lies at the start of its block, or behind the collector's head (16 bytes), or behind that and the
 * two pointers that some types keep before it (32 bytes).
 */
int state_reuse(struct process_state *process, const struct event_alloc *event)
{
	static const uint64_t heads[] = {0, 16, 32};
	uint32_t traceback;
	int err = state_stack_index(process, event->stack_id, &traceback);

	if (err)
		return err;
	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
		uint64_t address = event->address - heads[i];
		const struct block *block = blocks_find(process->blocks, address, event->domain);

		if (!block || block->bytes <= heads[i])
			continue;
		process->info.counters.reuses++;
		blocks_retrace(process->blocks, address, event->domain, traceback);
		break;
	}
	return 0;
}

/*
 * A realloc that is under way ends as one of a block that the table does not know. From here on there are blocks that
 * are older than what the table shows, also in a process that was traced from its start.
 */
int state_clear(struct process_state *process)
{
	struct trace_process *info = &process->info;
	struct blocks *empty;
	int err = blocks_new(&empty);

	if (err)
		return err;
	blocks_free(process->blocks);
	process->blocks = empty;
	regions_free(&process->regions);
	snapshot_free(process->final);
	process->final = NULL;
	for (size_t i = 0; i < process->thread_count; i++)
		if (process->threads[i].state == PENDING_TAKEN)
			process->threads[i].state = PENDING_UNSEEN;
	for (size_t i = 0; i < process->stack_count; i++)
		process->stacks[i].waiting = 0;
	info->live_bytes = info->live_blocks = info->peak_bytes = 0;
	info->large_blocks = info->rounded_blocks = 0;
	info->counters.frees_unknown = info->counters.replaced = info->counters.stacks_unknown = 0;
	info->coverage = (struct snapshot_coverage){0};
	state_census_free(&process->census);
	info->from_start = 0;
	return 0;
}
