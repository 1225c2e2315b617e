/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks coming to life and dying. A realloc takes its block out at EVENT_REALLOC, since another
 * thread may be given that address before the realloc returns, and sets it aside for its thread;
 * EVENT_REALLOC_DONE drops it for the new block, EVENT_REALLOC_FAIL puts it back. A thread has at
 * most one: an older one that never ended is dropped.
 */
#include <errno.h>

#include "base/array.h"
#include "snapshot/estimate.h"
#include "trace/state.h"

static enum event_layer layer_of(uint32_t api)
{
	return (api & EVENT_API_MASK) == EVENT_API_NATIVE ? EVENT_LAYER_NATIVE : EVENT_LAYER_PYTHON;
}

int state_tables_new(struct blocks *tables[EVENT_LAYER_TABLES], struct account *account)
{
	int err = blocks_new(&tables[EVENT_LAYER_PYTHON], account);

	return err ? err : blocks_new(&tables[EVENT_LAYER_NATIVE], account);
}

/* The interpreter's own count is of some moment while the heap is read. */
static void large_change(struct process_state *process, int by)
{
	struct census *census = &process->census;
	uint64_t *count = &process->info.large_blocks;

	*count += (uint64_t)(int64_t)by;
	if (*count < census->large_low)
		census->large_low = *count;
	if (*count > census->large_high)
		census->large_high = *count;
}

void state_block_gone(struct process_state *process, enum event_layer layer,
		      const struct block *block)
{
	process->info.tables[layer].live_bytes -=
		estimate_bytes(process->info.sample_bytes, block->bytes);
	process->info.tables[layer].live_blocks--;
	large_change(process, -(int)block->large);
	process->info.rounded_blocks -= block->rounded;
}

int state_block_put(struct process_state *process, enum event_layer layer,
		    const struct block *block)
{
	struct trace_process *info = &process->info;
	struct trace_table *table = &info->tables[layer];
	int heap_tells = layer == EVENT_LAYER_PYTHON && state_heap_tells(info);
	uint64_t bytes = estimate_bytes(info->sample_bytes, block->bytes);
	struct block old;

	if (!block->address || bytes > TRACE_BYTES_MAX - table->live_bytes)
		return -EBADMSG;
	int replaced = blocks_put(process->blocks[layer], block, &old);
	if (replaced < 0)
		return replaced;
	if (replaced) {
		state_block_gone(process, layer, &old);
		/* Where the heap tells of deaths every block that lies in a pool ends so. */
		table->replaced += !old.pooled || !heap_tells;
	}
	table->live_bytes += bytes;
	table->live_blocks++;
	large_change(process, block->large);
	info->rounded_blocks += block->rounded;
	if (!heap_tells && table->live_bytes > table->peak_bytes)
		table->peak_bytes = table->live_bytes;
	return 0;
}

/* Where the block is: in a pool, or passed on to malloc because it is too large, or of 0 bytes. */
static void place_set(struct block *block, uint32_t face, int was_large)
{
	int pymalloc = face == EVENT_API_MEM || face == EVENT_API_OBJ;
	uint64_t bytes = block->bytes + (block->hooked ? EVENT_HOOKS_BYTES : 0);

	block->large = was_large || face == EVENT_API_LARGE ||
		       (pymalloc && bytes - 1 >= EVENT_SMALL_BYTES);
	/* In growth mode it is a whole pool. */
	block->pooled = face == EVENT_API_POOL || (pymalloc && !block->large);
	/* Passed on, one of 0 bytes asks malloc for 1; pymalloc itself would have served that. */
	if (face == EVENT_API_LARGE && bytes == 1)
		block->bytes = 0;
}

/*
 * The thread of a record, made at first mention; NULL: there is no room for it. Borrowed until the
 * next one is made.
 */
static struct thread_entry *thread_find(struct process_state *process, uint32_t tid)
{
	uint32_t index;

	if (process->thread_count && process->last_tid == tid)
		return &process->threads[process->last_thread];
	index = id_map_find(&process->tids, tid);
	if (index == ID_MAP_NONE) {
		int err =
			array_reserve_in(process->account, &process->threads, &process->thread_room,
					 process->thread_count, 1, sizeof(*process->threads));
		if (!err)
			err = id_map_put(&process->tids, tid, (uint32_t)process->thread_count);
		if (err)
			return NULL;
		index = (uint32_t)process->thread_count++;
		process->threads[index] = (struct thread_entry){0};
	}
	process->last_tid = tid;
	process->last_thread = index;
	return &process->threads[index];
}

static void thread_did(struct process_state *process, const struct event_header *header,
		       enum event_layer layer, uint64_t address, int freed)
{
	struct thread_entry *thread = thread_find(process, header->tid);

	if (thread && layer == EVENT_LAYER_NATIVE) {
		thread->native_freed = freed ? address : 0;
	} else if (thread) {
		thread->last_freed = freed;
		thread->last_address = address;
	}
}

/* What the allocator rounds a block of its pools up to. */
static uint64_t class_bytes(const struct block *block)
{
	uint64_t bytes = block->bytes + (block->hooked ? EVENT_HOOKS_BYTES : 0);

	return (bytes ? bytes + EVENT_BLOCK_STEP - 1 : EVENT_BLOCK_STEP) / EVENT_BLOCK_STEP *
	       EVENT_BLOCK_STEP;
}

static uint64_t allocator_address(const struct block *block)
{
	return block->address - (block->hooked ? EVENT_HOOKS_BEFORE : 0);
}

/* The pool that the block lies in, if pools are of a known size; 0. */
static uint64_t pool_of(const struct process_state *process, const struct block *block)
{
	uint64_t bytes = process->info.pool_bytes;

	return block->pooled && bytes ? allocator_address(block) / bytes * bytes : 0;
}

/*
 * A pool that comes to have blocks of another size gives its first one first. What finds no room is
 * not known.
 */
static void pool_note(struct process_state *process, const struct block *block)
{
	uint64_t pool = pool_of(process, block), bytes = class_bytes(block);

	if (pool && allocator_address(block) == pool + EVENT_POOL_HEADER_BYTES &&
	    bytes <= process->info.pool_bytes)
		id_map_put(&process->pools, pool, (uint32_t)bytes);
}

/*
 * How the block's pool is divided now: where its first block begins and how large each is; 0 bytes:
 * not known.
 */
static uint32_t pool_division(const struct process_state *process, const struct block *block,
			      uint64_t *first)
{
	uint64_t pool = pool_of(process, block);
	uint32_t bytes = pool ? id_map_find(&process->pools, pool) : ID_MAP_NONE;

	*first = pool + EVENT_POOL_HEADER_BYTES;
	return bytes == ID_MAP_NONE ? 0 : bytes;
}

/* Does a block begin there, as the pool is now? 0: no, or it is not known. */
static int is_in_place(const struct process_state *process, const struct block *block)
{
	uint64_t first;
	uint32_t bytes = pool_division(process, block, &first);

	return bytes && !((allocator_address(block) - first) % bytes);
}

const struct block *state_block_containing(const struct process_state *process,
					   enum event_layer layer, uint64_t address)
{
	const struct block *block = blocks_containing(process->blocks[layer], address), *other;
	uint64_t first = 0;
	uint32_t bytes = block ? pool_division(process, block, &first) : 0;

	if (!bytes || is_in_place(process, block))
		return block;
	first += block->hooked ? EVENT_HOOKS_BEFORE : 0;
	if (address < first)
		return block;
	other = blocks_find(process->blocks[layer], address - (address - first) % bytes,
			    block->domain);
	return other ? other : block;
}

/* before: what it was, of a realloc, which may have left it in its place. */
static int event_put(struct process_state *process, const struct event_alloc *event,
		     const struct pending *before)
{
	struct block block = {.address = event->address,
			      .bytes = event->bytes,
			      .epoch = process->census.epoch,
			      .hooked = !!(event->api & EVENT_API_HOOKED),
			      .rounded = !!(event->api & EVENT_API_ROUNDED),
			      .domain = event->domain};
	enum event_layer layer = layer_of(event->api);
	int err;

	if (event->bytes > TRACE_BYTES_MAX)
		return -EBADMSG;
	block.traceback = state_stack_index(process, event->stack_id) & BLOCK_TRACEBACK_MAX;
	place_set(&block, event->api & EVENT_API_MASK,
		  before->state != PENDING_NONE && before->block.large);
	err = state_block_put(process, layer, &block);
	if (err)
		return err;
	if (!event->domain)
		thread_did(process, &event->header, layer, event->address, 0);
	if (before->state == PENDING_NONE || before->block.address != block.address)
		pool_note(process, &block);
	if (block.traceback && !process->stacks[block.traceback].known) {
		process->stacks[block.traceback].waiting++;
		process->info.counters.stacks_unknown++;
	}
	return 0;
}

int state_alloc(struct process_state *process, const struct event_alloc *event)
{
	static const struct pending none;
	int err = event_put(process, event, &none);

	if (err != -EBADMSG)
		process->info.tables[layer_of(event->api)].allocs++;
	return err;
}

/* Where the allocator's block begins. */
static uint64_t block_start(const struct event_free *event)
{
	return event->address - (event->api & EVENT_API_HOOKED ? EVENT_HOOKS_BEFORE : 0);
}

/* What a block's end means beside the table. */
static void block_died(struct process_state *process, const struct event_free *event)
{
	enum event_layer layer = layer_of(event->api);

	if (event->domain)
		return;
	thread_did(process, &event->header, layer, block_start(event), 1);
	if (layer == EVENT_LAYER_PYTHON)
		state_census_died(process, block_start(event));
}

/* operator delete has told of it, and calls free: the address cannot be another block's yet. */
static int freed_again(struct process_state *process, const struct event_free *event)
{
	uint32_t index = id_map_find(&process->tids, event->header.tid);

	return layer_of(event->api) == EVENT_LAYER_NATIVE && index != ID_MAP_NONE &&
	       process->threads[index].native_freed == event->address;
}

int state_free(struct process_state *process, const struct event_free *event)
{
	enum event_layer layer = layer_of(event->api);
	struct trace_table *table = &process->info.tables[layer];
	struct block old;

	if (blocks_take(process->blocks[layer], event->address, event->domain, &old))
		state_block_gone(process, layer, &old);
	else if (freed_again(process, event))
		return 0;
	else
		table->frees_unknown++;
	table->frees++;
	block_died(process, event);
	return 0;
}

int state_realloc(struct process_state *process, const struct event_free *event)
{
	enum event_layer layer = layer_of(event->api);
	struct thread_entry *thread = thread_find(process, event->header.tid);
	struct pending lost = {0}, *pending = thread ? &thread->pending[layer] : &lost;

	pending->state = PENDING_UNSEEN;
	if (blocks_take(process->blocks[layer], event->address, event->domain, &pending->block)) {
		pending->state = PENDING_TAKEN;
		state_block_gone(process, layer, &pending->block);
	} else {
		pending->block.address = event->address;
		/* Not on the heap: then malloc has it, and keeps it when it shrinks. */
		pending->block.large = layer == EVENT_LAYER_PYTHON && process->census.known &&
				       !address_set_has(&process->census.old, event->address);
	}
	block_died(process, event);
	return 0;
}

/* Ends the thread's realloc under way. */
static struct pending pending_end(struct process_state *process, enum event_layer layer,
				  uint32_t tid)
{
	struct thread_entry *thread = thread_find(process, tid);
	struct pending ended = {0};

	if (thread) {
		ended = thread->pending[layer];
		thread->pending[layer].state = PENDING_NONE;
	}
	return ended;
}

int state_realloc_done(struct process_state *process, const struct event_alloc *event)
{
	enum event_layer layer = layer_of(event->api);
	struct pending pending = pending_end(process, layer, event->header.tid);

	process->info.tables[layer].reallocs++;
	if (pending.state == PENDING_UNSEEN)
		process->info.tables[layer].frees_unknown++;
	return event_put(process, event, &pending);
}

int state_realloc_fail(struct process_state *process, const struct event_free *event)
{
	enum event_layer layer = layer_of(event->api);
	struct pending pending = pending_end(process, layer, event->header.tid);

	if (!event->domain) /* the free was none */
		thread_did(process, &event->header, layer, event->address, 0);
	if (pending.state != PENDING_TAKEN ||
	    blocks_find(process->blocks[layer], pending.block.address, pending.block.domain))
		return 0;
	/* The heap shows it, if it is in a pool: it never left. */
	pending.block.epoch = process->census.epoch;
	return state_block_put(process, layer, &pending.block);
}

/*
 * An object lies at the start of its block, or behind the collector's head (16 bytes), or behind
 * that and the two pointers that some types keep before it (32 bytes). Until a reading of the heap
 * says so the table has dead blocks, too, of the time when the pool was one of another size: of
 * several blocks that may be meant it is the one that fits the pool.
 */
int state_reuse(struct process_state *process, const struct event_alloc *event)
{
	static const uint64_t heads[] = {0, 16, 32};
	const struct blocks *blocks = process->blocks[EVENT_LAYER_PYTHON];
	uint64_t address = 0;

	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
		const struct block *block =
			blocks_find(blocks, event->address - heads[i], event->domain);

		if (!block || block->bytes <= heads[i])
			continue;
		if (!address || is_in_place(process, block))
			address = block->address;
	}
	if (!address)
		return 0;
	process->info.counters.reuses++;
	blocks_retrace(process->blocks[EVENT_LAYER_PYTHON], address, event->domain,
		       state_stack_index(process, event->stack_id));
	return 0;
}

/*
 * A realloc that is under way ends as one of a block that the table does not know. From here on
 * there are blocks that are older than what the table shows, also in a process that was traced from
 * its start.
 */
int state_clear(struct process_state *process)
{
	struct trace_process *info = &process->info;
	struct blocks *empty[EVENT_LAYER_TABLES] = {NULL};
	int err = state_tables_new(empty, process->account);

	for (size_t layer = 0; layer < EVENT_LAYER_TABLES; layer++) {
		struct trace_table *table = &info->tables[layer];

		if (err) {
			blocks_free(empty[layer]);
			continue;
		}
		blocks_free(process->blocks[layer]);
		process->blocks[layer] = empty[layer];
		table->live_bytes = table->live_blocks = table->peak_bytes = 0;
		table->frees_unknown = table->replaced = 0;
		for (size_t i = 0; i < process->thread_count; i++)
			if (process->threads[i].pending[layer].state == PENDING_TAKEN)
				process->threads[i].pending[layer].state = PENDING_UNSEEN;
	}
	if (err)
		return err;
	regions_free(&process->regions);
	state_final_free(process);
	for (size_t i = 0; i < process->stack_count; i++)
		process->stacks[i].waiting = 0;
	info->large_blocks = info->rounded_blocks = 0;
	info->counters.stacks_unknown = 0;
	info->coverage = (struct snapshot_coverage){0};
	state_census_free(&process->census);
	info->from_start = 0;
	return 0;
}
