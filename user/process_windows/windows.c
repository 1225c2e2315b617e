/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "process_tables/process_tables.h"

static int is_windowed(const struct process_state *process)
{
	return process->info.mode == EVENT_MODE_WINDOWS;
}

uint64_t state_window_pool(const struct process_state *process, uint64_t address)
{
	uint64_t bytes = process->info.pool_bytes;

	return bytes ? address / bytes * bytes : 0;
}

/* Is it a block of malloc's that is traced in windows only? */
static int is_large(const struct process_state *process, const struct block *block)
{
	return (process->info.large_windowed || state_window_is_native(process)) &&
	       !block->pooled && !block->domain;
}

static struct blocks *windowed_blocks(const struct process_state *process)
{
	return process->blocks[state_window_layer(&process->info)];
}

const struct block *state_window_block_at(const struct process_state *process, uint64_t address)
{
	const struct block *block = blocks_at_allocator(windowed_blocks(process), address);

	return block && (block->pooled || is_large(process, block)) ? block : NULL;
}

const struct block *state_window_block(const struct process_state *process,
				       const struct sighting *sighting)
{
	return sighting->flags & SIGHTING_OBJECT
		       ? NULL
		       : state_window_block_at(process, sighting->address);
}

static int pool_count(struct process_state *process, uint64_t address, int by)
{
	struct id_map *pools = &process->windows.pools;
	uint64_t pool = state_window_pool(process, address);
	uint32_t known = id_map_find(pools, pool), count = known == ID_MAP_NONE ? 0 : known;

	count += (uint32_t)by;
	if (!count) {
		id_map_remove(pools, pool);
		return 0;
	}
	return id_map_put(pools, pool, count);
}

int state_sighting_add(struct process_state *process, const struct sighting *sighting)
{
	struct sightings *sightings = &process->windows.sightings;
	struct trace_windows *windows = &process->windows;
	int known = sightings_find(sightings, sighting->address) != NULL;
	int is_pooled = !(sighting->flags & (SIGHTING_LARGE | SIGHTING_NATIVE));
	int is_known = (sighting->kind && !(sighting->flags & SIGHTING_NATIVE)) ||
		       sighting->flags & SIGHTING_CERTAIN;
	int err = is_known ? 0
			   : array_reserve_in(windows->account, &windows->fresh,
					      &windows->fresh_capacity, windows->fresh_count, 1,
					      sizeof(*windows->fresh));

	if (!err)
		err = sightings_put(sightings, sighting);
	if (!err && !known && is_pooled)
		err = pool_count(process, sighting->address, 1);
	if (err && !known)
		sightings_remove(sightings, sighting->address);
	if (!err && !is_known)
		windows->fresh[windows->fresh_count++] = sighting->address;
	return err;
}

void state_sighting_remove(struct process_state *process, uint64_t address)
{
	const struct sighting *known = sightings_find(&process->windows.sightings, address);
	int is_pooled = known && !(known->flags & (SIGHTING_LARGE | SIGHTING_NATIVE));

	if (sightings_remove(&process->windows.sightings, address) && is_pooled)
		pool_count(process, address, -1);
}

void state_window_drop(struct process_state *process, uint64_t address)
{
	const struct block *known = state_window_block_at(process, address);
	struct block old;

	if (known)
		state_window_died(process, address, known);
	state_sighting_remove(process, address);
	if (known && blocks_take(windowed_blocks(process), known->address, known->domain, &old))
		state_block_gone(process, state_window_layer(&process->info), &old);
}

static uint32_t window_now(const struct process_state *process)
{
	return process->windows.count ? (uint32_t)process->windows.count - 1 : 0;
}

int state_window_skips(struct process_state *process, const struct block *block)
{
	if (!is_windowed(process) || !(block->pooled || is_large(process, block)) ||
	    process->windows.open)
		return 0;
	state_window_drop(process, block_allocator_address(block));
	state_windows_another(process, block_allocator_address(block));
	return 1;
}

/* What is known of a block that is seen now. */
static struct sighting sighting_new(const struct process_state *process, const struct block *block)
{
	struct sighting sighting = {.address = block_allocator_address(block),
				    .window = window_now(process),
				    .flags = block->pooled ? 0 : SIGHTING_LARGE,
				    .made_ns = process->info.end_ns};

	if (!state_window_is_native(process))
		return sighting;
	/* Its record comes after the allocation, and needs no walk in the window. */
	sighting.flags = SIGHTING_NATIVE;
	sighting.kind = EVENT_KIND_OTHER;
	sighting.shown_ns = sighting.seen_ns = process->info.end_ns;
	return sighting;
}

/* Without memory, or for too many stacks, it is not known what part of its blocks one keeps. */
static void made_count(struct trace_windows *windows, const struct block *block)
{
	const struct kind_count like = {
		.kind = block->stack, .bytes = (uint32_t)block_class_bytes(block), .live = 1};

	if (windows->made.count < KINDS_MAX ||
	    id_map_find(&windows->made.index, kind_key(like.kind, like.bytes, 0)) != ID_MAP_NONE)
		kind_counts_add(&windows->made, &like);
}

void state_window_sight(struct process_state *process, const struct block *block)
{
	struct trace_windows *windows = &process->windows;
	struct sighting sighting = sighting_new(process, block);

	if (!is_windowed(process) || block->domain || !(block->pooled || is_large(process, block)))
		return;
	sighting.follows = windows->follows;
	windows->follows = 0;
	windows->seen++;
	if (block->pooled)
		made_count(windows, block);
	state_windows_another(process, sighting.address);
	if (!state_sighting_add(process, &sighting))
		return;
	windows->dropped++;
	state_window_drop(process, sighting.address);
}

void state_window_reused(struct process_state *process, enum event_layer layer,
			 const struct block *block)
{
	if (!is_windowed(process) || layer != state_window_layer(&process->info) || !block->pooled)
		return;
	process->windows.follows =
		state_window_follow(process, block_allocator_address(block), block);
	state_sighting_remove(process, block_allocator_address(block));
}

void state_window_gone(struct process_state *process, const struct block *block)
{
	if (!is_windowed(process) || !(block->pooled || is_large(process, block)))
		return;
	state_window_died(process, block_allocator_address(block), block);
	state_sighting_remove(process, block_allocator_address(block));
}

void state_window_reuse(struct process_state *process, uint64_t object, uint64_t block,
			uint32_t domain, uint32_t stack)
{
	struct trace_windows *windows = &process->windows;
	struct sighting sighting = {.address = object & ~(uint64_t)(EVENT_BLOCK_STEP - 1),
				    .window = window_now(process),
				    .stack = stack,
				    .domain = domain,
				    .flags = SIGHTING_OBJECT,
				    .made_ns = process->info.end_ns};
	const struct block *known;

	if (!is_windowed(process) || !windows->open || domain)
		return;
	windows->seen++;
	/* In a block of this window or of an earlier one: what was in it is not any more. */
	if (block) {
		known = blocks_find(process->blocks[EVENT_LAYER_PYTHON], block, domain);
		if (!known || !known->pooled)
			return;
		sighting = (struct sighting){.address = block_allocator_address(known),
					     .window = window_now(process),
					     .made_ns = process->info.end_ns};
		sighting.follows = state_window_follow(process, sighting.address, known);
		state_windows_another(process, sighting.address);
	}
	if (state_sighting_add(process, &sighting))
		windows->dropped++;
}

/* Two neighbours each become one. */
static void windows_halve(struct trace_windows *windows)
{
	size_t half = windows->count / 2;

	for (size_t i = 0; i < half; i++) {
		const struct trace_window *first = &windows->items[2 * i], *second = first + 1;

		windows->items[i] =
			(struct trace_window){.start_ns = first->start_ns,
					      .end_ns = second->end_ns,
					      .length_ns = first->length_ns + second->length_ns,
					      .idle_ns = first->idle_ns + second->idle_ns};
	}
	windows->count = half;
	for (size_t i = 0; i < windows->sightings.capacity; i++)
		windows->sightings.slots[i].window /= 2;
	for (size_t i = 0; i < windows->deaths.count; i++)
		windows->deaths.items[i].window /= 2;
	frees_halve(&windows->frees);
}

static int window_open(struct trace_windows *windows, uint64_t start_ns)
{
	int err = 0;

	if (windows->count == WINDOWS_MAX)
		windows_halve(windows);
	err = array_reserve_in(windows->account, &windows->items, &windows->capacity,
			       windows->count, 1, sizeof(*windows->items));
	if (err)
		return err;
	windows->items[windows->count++] = (struct trace_window){.start_ns = start_ns};
	windows->open = 1;
	windows->last_count = 0;
	return 0;
}

/*
 * Drops what no walk has shown within the window, and what was allocated after its last moment,
 * when some probes may have gone.
 */
static void unchecked_drop(struct process_state *process, uint64_t end_ns)
{
	struct trace_windows *windows = &process->windows;

	for (size_t i = 0; i < windows->fresh_count; i++) {
		const struct sighting *found =
			sightings_find(&windows->sightings, windows->fresh[i]);

		if (!found || (found->kind && found->made_ns <= end_ns))
			continue;
		windows->unchecked += !found->kind;
		/* Nothing is known of its life. */
		if (found->kind)
			state_sighting_remove(process, windows->fresh[i]);
		state_window_drop(process, windows->fresh[i]);
	}
	windows->last_count = windows->fresh_count;
	windows->fresh_count = 0;
}

int state_window(struct process_state *process, const struct event_window *event)
{
	struct trace_windows *windows = &process->windows;
	struct trace_window *last;

	if (event->start_ns > event->header.time_ns || event->end_ns > event->header.time_ns ||
	    (event->end_ns && event->end_ns < event->start_ns))
		return -EBADMSG;
	/* The table of a finalizing process stays as it is. */
	if (!is_windowed(process) || process->info.end != TRACE_RUNNING)
		return 0;
	if (!event->end_ns)
		return windows->open ? 0 : window_open(windows, event->start_ns);
	if (!windows->open || !windows->count)
		return 0;
	last = &windows->items[windows->count - 1];
	last->end_ns = event->end_ns > last->start_ns ? event->end_ns : last->start_ns;
	last->length_ns = last->end_ns - last->start_ns;
	last->idle_ns = event->busy_ns < last->length_ns ? last->length_ns - event->busy_ns : 0;
	windows->open = 0;
	unchecked_drop(process, last->end_ns);
	return 0;
}

int state_windows_begin(struct process_state *process, uint64_t start_ns)
{
	struct blocks *blocks = windowed_blocks(process);
	struct trace_windows *windows = &process->windows;
	const struct block *block;
	size_t cursor = 0;
	uint64_t since_ns = state_windows_since_ns(process);
	int err =
		windows->open ? 0 : window_open(windows, start_ns > since_ns ? start_ns : since_ns);

	while (!err && (block = blocks_next(blocks, &cursor))) {
		struct sighting sighting = sighting_new(process, block);

		sighting.made_ns = 0;
		if (!(block->pooled || state_window_is_native(process)) || block->domain)
			continue;
		windows->seen++;
		err = state_sighting_add(process, &sighting);
	}
	/* The blocks that are left over cannot be followed: begin with none. */
	return account_is_full(err) ? state_clear(process) : err;
}

int state_windows_large_begin(struct process_state *process)
{
	struct blocks *blocks = process->blocks[EVENT_LAYER_PYTHON];
	const struct block *block;
	size_t cursor = 0;
	int err = 0;

	while (!err && (block = blocks_next(blocks, &cursor))) {
		const struct sighting sighting = {.address = block_allocator_address(block),
						  .window = window_now(process),
						  .flags = SIGHTING_LARGE | SIGHTING_CERTAIN};

		if (is_large(process, block))
			err = state_sighting_add(process, &sighting);
	}
	/* Blocks that cannot be followed must not stay: begin with none. */
	return account_is_full(err) ? state_clear(process) : err;
}

int state_window_in_progress(const struct process_state *process, uint64_t address)
{
	for (size_t i = 0; i < process->thread_count; i++)
		if (!process->threads[i].last_freed && process->threads[i].last_address == address)
			return 1;
	return 0;
}
