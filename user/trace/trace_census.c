/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reconciling the table with pymalloc's heap.
 *
 * A pool is read at some moment between EVENT_CENSUS and EVENT_CENSUS_DONE, and requests go on
 * meanwhile. So a block that a pool shows and the table knows is confirmed at once; one that the
 * table does not know is doubtful until all events of the reading's time are in. Then it is in the
 * table, or it was freed meanwhile, or no event has told of it: it is older than the trace if it
 * was so at the reading before, and else unseen. What the table knew before the reading and no pool
 * has shown is dead: its free was not traced (census mode), or lost.
 *
 * A record can be made just before the allocator does what it tells. So what a thread did last
 * before the reading counts as done whatever the heap shows, if EVENT_CENSUS_THREAD says that it
 * may be at that point. In growth mode the table holds pools, by the addresses of their first
 * blocks: a pool that is in use is one block of its size, and what is said above of blocks is true
 * of them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "trace/state.h"

#define ADDRESS_BITS 56 /* of every user-space address */
/* of which a reading is believed that it has told of them whole: 64 GiB */
#define ARENAS_MAX (1u << 16)
/* a doubtful block: address / EVENT_BLOCK_STEP | bytes / EVENT_BLOCK_STEP << STEPS_SHIFT */
#define STEPS_SHIFT 52

/* Of the reading that has ended, or was given up; what the readings have told remains. */
static void reading_end(struct census *census)
{
	address_set_free(&census->died);
	array_release(census->old.account, &census->doubtful, &census->doubtful_room,
		      sizeof(*census->doubtful));
	census->doubtful_count = 0;
	array_release(census->old.account, &census->told, &census->told_room,
		      sizeof(*census->told));
	census->told_count = 0;
	array_release(census->old.account, &census->sizes, &census->size_room,
		      sizeof(*census->sizes));
	census->size_count = 0;
	census->running = 0;
}

void state_census_free(struct census *census)
{
	struct account *account = census->old.account;

	reading_end(census);
	address_set_free(&census->old);
	*census = (struct census){.old.account = account, .died.account = account};
}

static void reading_give_up(struct process_state *process)
{
	reading_end(&process->census);
	/* Some blocks were confirmed and some not: that no longer tells anything. */
	blocks_confirm_all(process->blocks[EVENT_LAYER_PYTHON], process->census.epoch);
}

/* There is no room for what it tells. */
static void reading_drop(struct process_state *process)
{
	reading_give_up(process);
	process->info.counters.readings_dropped++;
}

int state_census(struct process_state *process, const struct event_census *event)
{
	struct census *census = &process->census;

	/* One of BPF is the last before the end: there is no other that could make up for it. */
	if (census->running && census->id & EVENT_CENSUS_INSIDE &&
	    !(event->id & EVENT_CENSUS_INSIDE))
		return 0;
	if (census->running)
		reading_give_up(process);
	census->counts = (struct snapshot_coverage){0};
	census->large_low = census->large_high = process->info.large_blocks;
	census->epoch ^= 1;
	census->running = 1;
	census->id = event->id;
	for (size_t i = 0; i < process->thread_count; i++)
		process->threads[i].in_flight = 0;
	return 0;
}

int state_census_thread(struct process_state *process, const struct event_mark *event)
{
	uint32_t index = id_map_find(&process->tids, event->header.tid);
	struct thread_entry *thread;

	/* BPF's own comes while nothing else can be under way. */
	if (!process->census.running || process->census.id & EVENT_CENSUS_INSIDE ||
	    index == ID_MAP_NONE)
		return 0;
	thread = &process->threads[index];
	if (thread->last_freed) {
		state_census_died(process, thread->last_address);
		return 0;
	}
	/*
	 * What it did after that and is not in the sample was not told: it may have freed the block
	 * since.
	 */
	if (!process->info.sample_bytes)
		thread->in_flight = thread->last_address;
	return 0;
}

static int doubtful_add(struct census *census, uint64_t address, uint32_t bytes)
{
	int err = array_reserve_in(census->old.account, &census->doubtful, &census->doubtful_room,
				   census->doubtful_count, 1, sizeof(*census->doubtful));

	if (!err)
		census->doubtful[census->doubtful_count++] =
			address / EVENT_BLOCK_STEP | (uint64_t)(bytes / EVENT_BLOCK_STEP)
							     << STEPS_SHIFT;
	return err;
}

static void seen_add(struct census *census, uint32_t bytes)
{
	census->counts.seen_blocks++;
	census->counts.seen_bytes += bytes;
}

/* The pool could not be read. */
static void pool_keep(struct process_state *process, const struct event_census_pool *event)
{
	for (uint32_t i = 0; i < event->count; i++)
		blocks_keep(process->blocks[EVENT_LAYER_PYTHON],
			    event->address + (uint64_t)i * EVENT_BLOCK_STEP, process->census.epoch);
}

/* The reading shows a block, or in growth mode a pool. */
static int live_add(struct process_state *process, uint64_t address, uint32_t bytes)
{
	struct census *census = &process->census;

	census->counts.live_blocks++;
	census->counts.live_bytes += bytes;
	if (!blocks_confirm(process->blocks[EVENT_LAYER_PYTHON], address, bytes, census->epoch))
		return doubtful_add(census, address, bytes);
	seen_add(census, bytes);
	return 0;
}

static int is_live(const struct event_census_pool *event, uint32_t block)
{
	return event->live[block / 64] >> block % 64 & 1;
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
	if (!event->block_bytes)
		pool_keep(process, event);
	for (uint32_t i = 0; event->block_bytes && i < event->count && !err; i++) {
		uint64_t address = event->address + (uint64_t)i * event->block_bytes;

		if (!is_live(event, i))
			continue;
		if (process->info.mode == EVENT_MODE_GROWTH) {
			err = live_add(process, event->address, process->info.pool_bytes);
			break;
		}
		err = live_add(process, address, event->block_bytes);
	}
	if (err)
		reading_drop(process);
	return 0;
}

int state_census_arena(struct process_state *process, const struct event_census_arena *event)
{
	struct census *census = &process->census;

	if (event->bytes > UINT64_MAX - event->address)
		return -EBADMSG;
	/* What is not noted is kept. */
	if (!census->running || census->id != event->id || census->told_count == ARENAS_MAX)
		return 0;
	if (!array_reserve_in(census->old.account, &census->told, &census->told_room,
			      census->told_count, 1, sizeof(*census->told)))
		census->told[census->told_count++] =
			(struct census_range){event->address, event->address + event->bytes};
	return 0;
}

static int range_compare(const void *a, const void *b)
{
	const struct census_range *x = a, *y = b;

	return (x->start > y->start) - (x->start < y->start);
}

/* Has the reading not told of all that is around this address? */
static int is_untold(const void *context, uint64_t address)
{
	const struct census *census = context;
	size_t low = 0, high = census->told_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (census->told[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return !low || address >= census->told[low - 1].end;
}

void state_census_died(struct process_state *process, uint64_t address)
{
	struct census *census = &process->census;

	address_set_remove(&census->old, address);
	if (census->running && address % EVENT_BLOCK_STEP == 0 &&
	    address_set_add(&census->died, address))
		reading_drop(process);
}

/* All events of the reading's time are in: each doubtful block is what it is. */
static int doubtful_resolve(struct process_state *process, int baseline)
{
	struct census *census = &process->census;
	struct snapshot_coverage *counts = &census->counts;
	struct address_set old = {.account = census->old.account};
	int err = 0;

	for (size_t i = 0; i < census->doubtful_count && !err; i++) {
		uint64_t address =
			(census->doubtful[i] & ((1ull << STEPS_SHIFT) - 1)) * EVENT_BLOCK_STEP;
		uint32_t bytes = (uint32_t)(census->doubtful[i] >> STEPS_SHIFT) * EVENT_BLOCK_STEP;

		if (blocks_confirm(process->blocks[EVENT_LAYER_PYTHON], address, bytes,
				   census->epoch)) {
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

/* The kernel's own reading at the end. */
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
 * The reading ends before the heap does: in the arenas that it has told of it counts, elsewhere
 * what is known since the one before. What that one has measured stands.
 */
static void reading_cut(struct process_state *process)
{
	struct census *census = &process->census;
	struct blocks *blocks = process->blocks[EVENT_LAYER_PYTHON];

	if (census->told_count)
		qsort(census->told, census->told_count, sizeof(*census->told), range_compare);
	blocks_keep_if(blocks, census->epoch, is_untold, census);
	blocks_sweep(blocks, census->epoch, block_swept, process);
	reading_end(census);
}

/*
 * The table's count, now or at another moment of the reading, that agrees best with the
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
		reading_cut(process);
		return 0;
	}
	if (event->failed && event->failed != EVENT_CENSUS_PARTIAL) {
		reading_give_up(process);
		return 0;
	}
	err = doubtful_resolve(process, event->baseline);
	if (err) {
		reading_drop(process);
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
	if (state_heap_tells(info) && table->live_bytes > table->peak_bytes)
		table->peak_bytes = table->live_bytes;
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
	/* The first one only tells what is older. */
	if (!event->baseline)
		info->coverage = *counts;
	census->known = 1;
	reading_end(census);
	return 0;
}
