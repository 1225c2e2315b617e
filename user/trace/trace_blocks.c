/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks coming to life and dying. A realloc takes its block out at EVENT_REALLOC, since another thread may
 * be given that address before the realloc returns, and sets it aside for its thread; EVENT_REALLOC_DONE
 * drops it for the new block, EVENT_REALLOC_FAIL puts it back. A thread has at most one: an older one that
 * never ended is dropped.
 */
#include <errno.h>

#include "base/array.h"
#include "trace/state.h"

void state_block_gone(struct process_state *process, const struct block *block)
{
	process->info.live_bytes -= block->bytes;
	process->info.live_blocks--;
	process->info.large_blocks -= block->large;
	process->info.rounded_blocks -= block->rounded;
}

static int block_put(struct process_state *process, const struct block *block)
{
	struct trace_process *info = &process->info;
	struct block old;

	if (!block->address || block->bytes > TRACE_BYTES_MAX - info->live_bytes)
		return -EBADMSG;
	int replaced = blocks_put(process->blocks, block, &old);
	if (replaced < 0)
		return replaced;
	if (replaced) {
		state_block_gone(process, &old);
		/* In census mode every block that lies in a pool ends so. */
		info->counters.replaced += info->mode != EVENT_MODE_CENSUS || !old.pooled;
	}
	info->live_bytes += block->bytes;
	info->live_blocks++;
	info->large_blocks += block->large;
	info->rounded_blocks += block->rounded;
	if (info->mode != EVENT_MODE_CENSUS && info->live_bytes > info->peak_bytes)
		info->peak_bytes = info->live_bytes;
	return 0;
}

/* Asked of pymalloc? */
static int is_pymalloc(const struct event_alloc *event)
{
	uint32_t face = event->api & EVENT_API_MASK;

	return face == EVENT_API_MEM || face == EVENT_API_OBJ;
}

/* Would pymalloc pass this request on to malloc? One of 0 bytes it does, too. */
static int is_large(const struct event_alloc *event)
{
	return event->bytes - 1 >= EVENT_SMALL_BYTES;
}

static int event_put(struct process_state *process, const struct event_alloc *event, int was_large)
{
	struct block block = {.address = event->address,
			      .bytes = event->bytes,
			      .large = was_large || (is_pymalloc(event) && is_large(event)),
			      .pooled = !was_large && is_pymalloc(event) && !is_large(event),
			      .epoch = process->census.epoch,
			      .rounded = !!(event->api & EVENT_API_ROUNDED),
			      .domain = event->domain};
	int err = event->bytes > TRACE_BYTES_MAX
			  ? -EBADMSG
			  : state_stack_index(process, event->stack_id, &block.traceback);

	if (!err)
		err = block_put(process, &block);
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

int state_free(struct process_state *process, const struct event_free *event)
{
	struct block old;

	process->info.counters.frees++;
	if (blocks_take(process->blocks, event->address, event->domain, &old))
		state_block_gone(process, &old);
	else
		process->info.counters.frees_unknown++;
	return event->domain ? 0 : state_census_died(process, event->address);
}

int state_realloc(struct process_state *process, const struct event_free *event)
{
	uint32_t index = id_map_find(&process->tids, event->header.tid);

	if (index == ID_MAP_NONE) {
		int err = array_reserve(&process->pending, &process->pending_room, process->pending_count, 1,
					sizeof(*process->pending));
		if (!err)
			err = id_map_put(&process->tids, event->header.tid, (uint32_t)process->pending_count);
		if (err)
			return err;
		index = (uint32_t)process->pending_count++;
	}
	struct pending *pending = &process->pending[index];
	pending->state = PENDING_UNSEEN;
	if (blocks_take(process->blocks, event->address, event->domain, &pending->block)) {
		pending->state = PENDING_TAKEN;
		state_block_gone(process, &pending->block);
	}
	return event->domain ? 0 : state_census_died(process, event->address);
}

/* Ends the thread's realloc under way; copies it out. */
static struct pending pending_end(struct process_state *process, uint32_t tid)
{
	struct pending ended = {.state = PENDING_NONE};
	uint32_t index = id_map_find(&process->tids, tid);

	if (index != ID_MAP_NONE) {
		ended = process->pending[index];
		process->pending[index].state = PENDING_NONE;
	}
	return ended;
}

int state_realloc_done(struct process_state *process, const struct event_alloc *event)
{
	struct pending pending = pending_end(process, event->header.tid);

	process->info.counters.reallocs++;
	if (pending.state == PENDING_UNSEEN)
		process->info.counters.frees_unknown++;
	return event_put(process, event, pending.state == PENDING_TAKEN && pending.block.large);
}

int state_realloc_fail(struct process_state *process, const struct event_free *event)
{
	struct pending pending = pending_end(process, event->header.tid);

	if (pending.state != PENDING_TAKEN ||
	    blocks_find(process->blocks, pending.block.address, pending.block.domain))
		return 0;
	return block_put(process, &pending.block);
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
