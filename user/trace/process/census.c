/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reconciles the table with pymalloc's heap.
 *
 * A pool is read at some moment between EVENT_CENSUS and EVENT_CENSUS_DONE while requests continue.
 * A block that a pool shows and the table knows is confirmed at once. A block that is not in the
 * table stays unconfirmed until all events from before the end of the walk have been processed. By
 * then it is in the table, or was freed during the walk, or had no event. A block without an event
 * is older than the trace if the previous walk classified it so; otherwise its event was missed. A
 * block that was in the table before the walk and that no pool showed is dead: its free was not
 * traced (census mode) or was lost.
 *
 * BPF may emit a record just before the allocator acts. So a thread's last request before the walk
 * counts as done, whatever the heap shows, if EVENT_CENSUS_THREAD says that the thread may be at
 * that point.
 *
 * In growth mode the table holds pools, keyed by the address of their first block. A pool in use is
 * treated as one block of the pool's size.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "trace/process/process_tables.h"
#include "util/array.h"
#include "util/sorted.h"

/* --- kinds ------------------------------------------------------------------------------------ */

/* What looks find in the blocks of pymalloc's pools that were seen in windows. */

/* A walk has shown this at the address of a sampled block. */
static void sampled_block_judge(struct process_state *process, struct sampled_block *sampled_block,
				uint32_t block_bytes, const struct event_census_kind *kind)
{
	const struct block *block = state_window_block_at(process, sampled_block->address);
	uint64_t bytes = block ? block_allocator_bytes(block) : 0;

	if (!sampled_block->kind &&
	    (kind->kind == EVENT_KIND_DEAD ||
	     (process->windows.open &&
	      state_window_in_progress(process, block ? block->address : sampled_block->address))))
		return;
	state_window_rechecked(process, sampled_block,
			       !block || kind->kind == EVENT_KIND_FREE || bytes > block_bytes ||
				       bytes + EVENT_BLOCK_STEP <= block_bytes,
			       kind);
}

/* An object from a free list: its block is the one that contains it. */
static void object_place(struct process_state *process, const struct sampled_block *object,
			 uint64_t address, uint32_t block_bytes,
			 const struct event_census_kind *kind)
{
	const struct block block = {.address = address,
				    .bytes = block_bytes,
				    .epoch = process->census.epoch,
				    .pooled = 1,
				    .rounded = 1,
				    .stack = object->stack & BLOCK_STACK_MAX,
				    .owner = object->owner};
	struct sampled_block sampled_block = {.address = address,
					      .kind = kind->kind,
					      .print = kind->print,
					      .window = object->window,
					      .made_ns = object->made_ns};

	/* Its reference count is about to be set. */
	if (kind->kind == EVENT_KIND_DEAD)
		return;
	state_sampled_block_remove(process, object->address);
	if (kind->kind < EVENT_KIND_FIRST || state_window_block_at(process, address))
		return;
	state_windows_another(process, address);
	state_window_shown(process, &sampled_block);
	if (state_block_put(process, EVENT_LAYER_PYTHON, &block) ||
	    state_sampled_block_add(process, &sampled_block)) {
		process->windows.dropped++;
		state_window_drop(process, address);
	}
}

/* What was seen at one of the addresses of a pool where a block or an object may begin. */
static void address_judge(struct process_state *process, const struct event_census_kinds *event,
			  uint64_t offset)
{
	struct sampled_block *found =
		sampled_blocks_find(&process->windows.sampled_blocks, event->address + offset);
	uint64_t number = offset / event->block_bytes, within = offset % event->block_bytes;
	uint64_t address = event->address + offset - within;
	struct sampled_block object;

	if (!found)
		return;
	if (found->flags & SAMPLED_BLOCK_OBJECT) {
		object = *found;
		if (number < event->count && within <= 2 * EVENT_BLOCK_STEP)
			object_place(process, &object, address, event->block_bytes,
				     &event->kinds[number]);
		else
			state_sampled_block_remove(process, object.address);
	} else if (number >= event->count || within) {
		state_window_drop(process, event->address + offset);
	} else {
		sampled_block_judge(process, found, event->block_bytes, &event->kinds[number]);
	}
}

int state_census_kinds(struct process_state *process, const struct event_census_kinds *event)
{
	uint64_t pool = state_window_pool(process, event->address), end;

	if (event->count > EVENT_POOL_BLOCKS || event->block_bytes > EVENT_SMALL_BYTES ||
	    event->block_bytes % EVENT_BLOCK_STEP || event->address % EVENT_BLOCK_STEP ||
	    (event->count && !event->block_bytes) || event->address > UINT64_MAX / 2 ||
	    event->header.size != sizeof(*event) + event->count * sizeof(event->kinds[0]))
		return -EBADMSG;
	if (process->info.mode != EVENT_MODE_WINDOWS || !pool || !event->block_bytes)
		return 0;
	if (process->census.running && process->census.id == event->id)
		state_windows_count(process, event);
	else
		state_windows_recheck(process, event);
	if (id_map_find(&process->windows.pools, pool) == ID_MAP_NONE)
		return 0;
	end = pool + process->info.pool_bytes;
	for (uint64_t at = event->address; at < end; at += EVENT_BLOCK_STEP)
		address_judge(process, event, at - event->address);
	return 0;
}

/* --- census ----------------------------------------------------------------------------------- */

#define ADDRESS_BITS 56 /* bits of a user-space address */
/* limit of fully read arenas that a walk may record: 64 GiB */
#define ARENAS_MAX (1u << 16)
/* an unconfirmed block: address / EVENT_BLOCK_STEP | bytes / EVENT_BLOCK_STEP << STEPS_SHIFT */
#define STEPS_SHIFT 52

/* Frees the state of a completed or abandoned walk; results stay. */
static void walk_end(struct census *census)
{
	address_set_free(&census->died);
	ARRAY_RELEASE(census->old.account, census, unconfirmed, unconfirmed_capacity);
	census->unconfirmed_count = 0;
	ARRAY_RELEASE(census->old.account, census, walked, walked_capacity);
	census->walked_count = 0;
	ARRAY_RELEASE(census->old.account, census, sizes, size_capacity);
	census->size_count = 0;
	census->running = 0;
}

void state_census_free(struct census *census)
{
	struct account *account = census->old.account;

	walk_end(census);
	address_set_free(&census->old);
	*census = (struct census){.old.account = account, .died.account = account};
}

static void walk_give_up(struct process_state *process)
{
	walk_end(&process->census);
	/* The epochs are mixed now and no longer meaningful, so confirm everything. */
	blocks_confirm_all(process->blocks[EVENT_LAYER_PYTHON], process->census.epoch);
}

/* Abandons the walk for lack of memory. */
static void walk_drop(struct process_state *process)
{
	walk_give_up(process);
	process->info.counters.walks_dropped++;
}

int state_census(struct process_state *process, const struct event_census *event)
{
	struct census *census = &process->census;

	/* BPF's own walk is the last one before the process ends: no later walk can replace it. */
	if (census->running && census->id & EVENT_CENSUS_INSIDE &&
	    !(event->id & EVENT_CENSUS_INSIDE))
		return 0;
	if (census->running)
		walk_give_up(process);
	state_windows_walk(process);
	census->counts = (struct snapshot_coverage){0};
	census->large_low = census->large_high = process->info.large_blocks;
	census->epoch ^= 1;
	census->running = 1;
	census->id = event->id;
	census->begun_ms = state_activity_ms(process, event->header.time_ns);
	for (size_t i = 0; i < process->thread_count; i++)
		process->threads[i].in_flight = 0;
	return 0;
}

int state_census_thread(struct process_state *process, const struct event_mark *event)
{
	uint32_t index = id_map_find(&process->tids, event->header.tid);
	struct thread_entry *thread;

	/* While BPF walks the heap no other request can be in progress. */
	if (!process->census.running || process->census.id & EVENT_CENSUS_INSIDE ||
	    index == ID_MAP_NONE)
		return 0;
	thread = &process->threads[index];
	if (thread->last_freed) {
		state_census_died(process, thread->last_address);
		return 0;
	}
	/*
	 * With sampling, later requests of the thread may have had no record: it may have freed the
	 * block.
	 */
	if (!process->info.sample_bytes)
		thread->in_flight = thread->last_address;
	return 0;
}

static int unconfirmed_add(struct census *census, uint64_t address, uint32_t bytes)
{
	int err = ARRAY_RESERVE(census->old.account, census, unconfirmed, unconfirmed_count,
				unconfirmed_capacity, 1);

	if (!err)
		census->unconfirmed[census->unconfirmed_count++] =
			address / EVENT_BLOCK_STEP | (uint64_t)(bytes / EVENT_BLOCK_STEP)
							     << STEPS_SHIFT;
	return err;
}

static void seen_add(struct census *census, uint32_t bytes)
{
	census->counts.seen_blocks++;
	census->counts.seen_bytes += bytes;
}

/* The pool could not be read: keeps its blocks, of which some may be in the middle of a step. */
static void pool_keep(struct process_state *process, const struct event_census_pool *event)
{
	for (uint64_t at = 0; at < (uint64_t)event->count * EVENT_BLOCK_STEP; at += 8)
		blocks_keep(process->blocks[EVENT_LAYER_PYTHON], event->address + at,
			    process->census.epoch);
}

/* The walk showed a block, or in growth mode a pool. */
static int live_add(struct process_state *process, uint64_t address, uint32_t bytes)
{
	struct census *census = &process->census;

	census->counts.live_blocks++;
	census->counts.live_bytes += bytes;
	if (!blocks_confirm(process->blocks[EVENT_LAYER_PYTHON], address, bytes,
			    process->info.is_mimalloc, census->epoch))
		return unconfirmed_add(census, address, bytes);
	seen_add(census, bytes);
	return 0;
}

int state_census_pool(struct process_state *process, const struct event_census_pool *event)
{
	struct census *census = &process->census;
	int err = 0;

	if (event->count > EVENT_POOL_BLOCKS || event->block_bytes > EVENT_SMALL_BYTES ||
	    event->block_bytes % EVENT_BLOCK_STEP || event->address % EVENT_BLOCK_STEP ||
	    event->address >= (1ull << ADDRESS_BITS) - EVENT_POOL_BLOCKS * EVENT_SMALL_BYTES ||
	    event->header.size !=
		    sizeof(*event) + (event->count + 63) / 64 * sizeof(event->live[0]))
		return -EBADMSG;
	if (!census->running || census->id != event->id)
		return 0;
	process->info.pooled = 1;
	if (!event->block_bytes)
		pool_keep(process, event);
	for (uint32_t i = 0; event->block_bytes && i < event->count && !err; i++) {
		uint64_t address = event->address + (uint64_t)i * event->block_bytes;

		if (!(event->live[i / 64] >> i % 64 & 1))
			continue;
		if (process->info.mode == EVENT_MODE_GROWTH) {
			err = live_add(process, event->address, process->info.pool_bytes);
			break;
		}
		err = live_add(process, address, event->block_bytes);
	}
	if (err)
		walk_drop(process);
	return 0;
}

int state_census_arena(struct process_state *process, const struct event_census_arena *event)
{
	struct census *census = &process->census;

	if (event->bytes > UINT64_MAX - event->address)
		return -EBADMSG;
	/* Blocks of an arena that is not recorded are kept. */
	if (!census->running || census->id != event->id || census->walked_count == ARENAS_MAX)
		return 0;
	if (!ARRAY_RESERVE(census->old.account, census, walked, walked_count, walked_capacity, 1))
		census->walked[census->walked_count++] =
			(struct census_range){event->address, event->address + event->bytes};
	return 0;
}

/* Is the address outside of every fully read arena? */
static bool is_unwalked(const void *context, uint64_t address)
{
	const struct census *census = context;
	size_t above = SORTED_ABOVE(census->walked, census->walked_count, start, address);

	return !above || address >= census->walked[above - 1].end;
}

void state_census_died(struct process_state *process, uint64_t address)
{
	struct census *census = &process->census;

	address_set_remove(&census->old, address);
	if (census->running && address % EVENT_BLOCK_STEP == 0 &&
	    address_set_add(&census->died, address))
		walk_drop(process);
}

/* Classifies each unconfirmed block, after all events from before the end of the walk. */
static int unconfirmed_resolve(struct process_state *process, int baseline)
{
	struct census *census = &process->census;
	struct snapshot_coverage *counts = &census->counts;
	struct address_set old = {.account = census->old.account};
	int err = 0;

	for (size_t i = 0; i < census->unconfirmed_count && !err; i++) {
		uint64_t address =
			(census->unconfirmed[i] & ((1ull << STEPS_SHIFT) - 1)) * EVENT_BLOCK_STEP;
		uint32_t bytes =
			(uint32_t)(census->unconfirmed[i] >> STEPS_SHIFT) * EVENT_BLOCK_STEP;

		if (blocks_confirm(process->blocks[EVENT_LAYER_PYTHON], address, bytes,
				   process->info.is_mimalloc, census->epoch)) {
			seen_add(census, bytes);
		} else if (address_set_has(&census->died, address)) {
			counts->live_blocks--;
			counts->live_bytes -= bytes;
		} else if (baseline || address_set_has(&census->old, address)) {
			counts->old_blocks++;
			counts->old_bytes += bytes;
			err = address_set_add(&old, address);
		}
	}
	if (err) {
		address_set_free(&old);
		return err;
	}
	address_set_free(&census->old);
	census->old = old;
	return 0;
}

static void block_swept(void *context, const struct block *block)
{
	struct process_state *process = context;

	process->census.counts.dead_blocks++;
	state_block_gone(process, EVENT_LAYER_PYTHON, block);
}

/* Records the statistics of the kernel's own walk at exit. */
static void ending_note(struct trace_process *info, const struct event_census *event)
{
	if (event->header.size < sizeof(*event) || !event->pieces)
		return;
	info->ending = (struct snapshot_ending){
		.pieces = event->pieces,
		.steps = event->steps,
		.slowest_ns = event->slowest_ns,
		.arenas = event->arenas,
		.arenas_unread = event->failed == EVENT_CENSUS_CUT ? event->arenas_unread : 0,
		.failed = event->failed,
	};
}

/*
 * The walk was cut short. In the arenas that it read completely its result is used. Elsewhere the
 * table is kept, and so are the figures of the previous walk.
 */
static void walk_cut(struct process_state *process)
{
	struct census *census = &process->census;
	struct blocks *blocks = process->blocks[EVENT_LAYER_PYTHON];

	if (census->walked_count)
		qsort(census->walked, census->walked_count, sizeof(*census->walked), key_compare);
	blocks_keep_if(blocks, census->epoch, is_unwalked, census);
	blocks_sweep(blocks, census->epoch, block_swept, process);
	walk_end(census);
}

/*
 * The table's count of large blocks, now or at another moment of the walk, that is closest to the
 * interpreter's.
 */
static uint64_t large_seen(const struct census *census, const struct snapshot_coverage *counts,
			   uint64_t now)
{
	if (now > counts->large_blocks)
		return counts->large_blocks > census->large_low ? counts->large_blocks
								: census->large_low;
	if (now < counts->large_new)
		return counts->large_new < census->large_high ? counts->large_new
							      : census->large_high;
	return now;
}

int state_census_done(struct process_state *process, const struct event_census *event)
{
	struct census *census = &process->census;
	struct snapshot_coverage *counts = &census->counts;
	struct trace_process *info = &process->info;
	struct trace_table *table = &info->tables[EVENT_LAYER_PYTHON];
	int err;

	if (!census->running || census->id != event->id)
		return 0;
	ending_note(info, event);
	if (event->failed == EVENT_CENSUS_CUT) {
		walk_cut(process);
		return 0;
	}
	if (event->failed && event->failed != EVENT_CENSUS_PARTIAL) {
		walk_give_up(process);
		return 0;
	}
	err = unconfirmed_resolve(process, event->baseline);
	if (err) {
		walk_drop(process);
		return 0;
	}
	for (size_t i = 0; i < process->thread_count; i++)
		blocks_keep(process->blocks[EVENT_LAYER_PYTHON], process->threads[i].in_flight,
			    census->epoch);
	if (event->failed == EVENT_CENSUS_PARTIAL)
		blocks_confirm_all(process->blocks[EVENT_LAYER_PYTHON], census->epoch);
	else
		blocks_sweep(process->blocks[EVENT_LAYER_PYTHON], census->epoch, block_swept,
			     process);
	census->walked_ms = census->begun_ms;
	if (state_needs_walk(info) && table->live_bytes > table->peak_bytes)
		state_peak_now(process, EVENT_LAYER_PYTHON);
	if (event->baseline)
		census->old_large = event->large_blocks > info->large_blocks
					    ? event->large_blocks - info->large_blocks
					    : 0;
	state_sizes_judge(process);
	counts->time_ns = event->header.time_ns;
	counts->new_blocks = counts->live_blocks - counts->old_blocks;
	counts->new_bytes = counts->live_bytes - counts->old_bytes;
	counts->large_blocks = event->large_blocks;
	counts->large_new = event->large_blocks > census->old_large
				    ? event->large_blocks - census->old_large
				    : 0;
	counts->large_seen = large_seen(census, counts, info->large_blocks);
	counts->pools_unreadable = event->pools_unreadable;
	counts->elapsed_ns = event->elapsed_ns;
	counts->frozen_ns = event->frozen_ns;
	/* The baseline walk only identifies older blocks. */
	if (!event->baseline)
		info->coverage = *counts;
	census->known = 1;
	info->walked_cpu_ns = info->cost_ns ? info->cpu_ns : EVENT_COST_UNKNOWN;
	state_windows_walked(process, event->failed != EVENT_CENSUS_PARTIAL, event->baseline,
			     event->header.time_ns);
	walk_end(census);
	return 0;
}
