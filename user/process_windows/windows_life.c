/* SPDX-License-Identifier: Apache-2.0 */
/* The life of what a process has for windows: accounts, copies for children, clearing. */
#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "process_tables/process_tables.h"

void state_windows_account(struct trace_windows *windows, struct account *account)
{
	windows->account = windows->sightings.account = windows->pools.account = account;
	windows->deaths.account = account;
	windows->frees.account = windows->frees.index.account = account;
	windows->heap.index.account = windows->walk.index.account = account;
	windows->made.index.account = account;
	windows->takers.index.account = account;
	windows->taken.index.account = windows->taken_walk.index.account = account;
	windows->identities.account = windows->identities.index.account = account;
	windows->chunks.account = account;
}

void state_windows_free(struct trace_windows *windows)
{
	sightings_free(&windows->sightings);
	deaths_free(&windows->deaths);
	frees_free(&windows->frees);
	identities_free(&windows->identities);
	id_map_free(&windows->pools);
	chunk_table_free(&windows->chunks);
	kind_counts_free(&windows->heap);
	kind_counts_free(&windows->walk);
	kind_counts_free(&windows->made);
	pool_takers_free(&windows->takers);
	taken_counts_free(&windows->taken);
	taken_counts_free(&windows->taken_walk);
	array_release(windows->account, &windows->items, &windows->capacity,
		      sizeof(*windows->items));
	array_release(windows->account, &windows->fresh, &windows->fresh_capacity,
		      sizeof(*windows->fresh));
	array_release(windows->account, &windows->cohorts_ns, &windows->cohorts_capacity,
		      sizeof(*windows->cohorts_ns));
	windows->count = windows->fresh_count = windows->last_count = windows->cohort = 0;
}

uint64_t state_windows_since_ns(const struct process_state *process)
{
	uint64_t start_ns = process->info.start_ns, cleared_ns = process->windows.cleared_ns;

	return cleared_ns > start_ns ? cleared_ns : start_ns;
}

void state_windows_clear(struct process_state *process, uint64_t time_ns)
{
	struct trace_windows *windows = &process->windows;
	int open = windows->open;

	windows->cleared_ns = time_ns;
	state_windows_free(windows);
	state_windows_account(windows, process->account);
	windows->seen = windows->changed = windows->unchecked = windows->dropped = 0;
	windows->chunks_old = 0;
	windows->open = 0;
	if (!open)
		return;
	if (array_reserve_in(windows->account, &windows->items, &windows->capacity, 0, 1,
			     sizeof(*windows->items)))
		return;
	windows->items[0] = (struct trace_window){.start_ns = time_ns};
	windows->count = windows->open = 1;
}

/* What a walk has counted is not copied: the child's heap is walked soon. */
int state_windows_copy(struct trace_windows *out, const struct trace_windows *from)
{
	int err = sightings_copy(&out->sightings, &from->sightings);

	if (!err)
		err = id_map_copy(&out->pools, &from->pools);
	if (!err)
		err = chunk_table_copy(&out->chunks, &from->chunks);
	if (!err)
		err = array_copy_in(out->account, &out->items, &out->capacity, from->items,
				    from->count, sizeof(*out->items));
	if (!err)
		err = array_copy_in(out->account, &out->fresh, &out->fresh_capacity, from->fresh,
				    from->fresh_count, sizeof(*out->fresh));
	if (err)
		return err;
	out->fresh_count = from->fresh_count;
	out->chunks_old = from->chunks_old;
	out->count = from->count;
	out->open = from->open;
	return 0;
}

int state_window_is_chunk(const struct process_state *process, const struct sighting *sighting,
			  const struct block *block)
{
	if (sighting->flags & SIGHTING_NATIVE)
		return 1;
	return sighting->flags & SIGHTING_LARGE && !(sighting->flags & SIGHTING_CERTAIN) &&
	       process->windows.chunks.known && block_allocator_bytes(block) > EVENT_SMALL_BYTES;
}

/* The size of the chunk that a block was seen in, or has by its own size. */
static uint32_t units_of(const struct process_state *process, const struct sighting *sighting,
			 const struct block *block)
{
	const struct chunk *chunk;

	if (sighting->flags & SIGHTING_NATIVE)
		return sighting->print ? sighting->print : chunk_units(block->bytes);
	chunk = chunk_table_find(&process->windows.chunks, sighting->address);
	return chunk && chunk_fits(chunk->units, block_allocator_bytes(block))
		       ? chunk->units
		       : chunk_units(block_allocator_bytes(block));
}

void state_window_place(const struct process_state *process, const struct sighting *sighting,
			const struct block *block, uint32_t *kind, uint32_t *class_bytes)
{
	uint32_t units;

	if (state_window_is_chunk(process, sighting, block)) {
		units = units_of(process, sighting, block);
		*kind = chunk_kind(units);
		*class_bytes = chunk_class(units);
		return;
	}
	*kind = sighting->kind;
	*class_bytes = (uint32_t)block_class_bytes(block);
}

/*
 * At some moment between the last look that has shown a block and now. Looks within its window do
 * not tell when it was alive after that.
 */
static uint64_t died_at(const struct trace_windows *windows, const struct sighting *sighting,
			uint64_t now_ns)
{
	uint64_t from_ns = sighting->seen_ns;

	if (sighting->window < windows->count && from_ns < windows->items[sighting->window].end_ns)
		from_ns = windows->items[sighting->window].end_ns;
	return from_ns < now_ns ? from_ns + (now_ns - from_ns) / 2 : from_ns;
}

static struct death death_of(const struct process_state *process, const struct sighting *sighting,
			     const struct block *block)
{
	const struct trace_windows *windows = &process->windows;
	struct death death = {.stack = block->stack,
			      .window = sighting->window,
			      .flags = state_block_flags(block),
			      .bytes = (uint32_t)block->bytes,
			      .print = sighting->print,
			      .made_ns = sighting->made_ns,
			      .shown_ns = sighting->shown_ns,
			      .died_ns = died_at(windows, sighting, process->info.end_ns)};

	state_window_place(process, sighting, block, &death.kind, &death.class_bytes);
	return death;
}

/*
 * A block of malloc's was freed in a window. How long one would have lived after its window that
 * was freed in the same is not known, so it is none of the deaths.
 */
static void window_freed(struct process_state *process, const struct sighting *sighting,
			 const struct block *block, struct death *death)
{
	struct trace_windows *windows = &process->windows;
	uint32_t units = units_of(process, sighting, block);
	const struct life life = {.stack = death->stack,
				  .kind = death->kind,
				  .class_bytes = death->class_bytes,
				  .window = death->window,
				  .lived_ns = process->info.end_ns > sighting->shown_ns
						      ? process->info.end_ns - sighting->shown_ns
						      : 0};

	if (sighting->window + 1 == windows->count) {
		frees_life(&windows->frees, &life, sighting->address, units);
		return;
	}
	death->reused_ns = process->info.end_ns;
	frees_death(&windows->frees, deaths_add(&windows->deaths, death), death->window,
		    sighting->address, units);
}

void state_window_died(struct process_state *process, uint64_t address, const struct block *block)
{
	struct trace_windows *windows = &process->windows;
	const struct sighting *sighting = sightings_find(&windows->sightings, address);

	if (!sighting || !sighting->kind || sighting->flags & SIGHTING_OBJECT || block->domain ||
	    block->bytes > UINT32_MAX)
		return;
	if (sighting->flags & SIGHTING_LARGE && !state_window_is_chunk(process, sighting, block))
		return;
	struct death death = death_of(process, sighting, block);
	if (windows->open && sighting->flags & SIGHTING_NATIVE)
		window_freed(process, sighting, block, &death);
	else
		deaths_add(&windows->deaths, &death);
}

uint32_t state_window_follow(struct process_state *process, uint64_t address,
			     const struct block *block)
{
	struct trace_windows *windows = &process->windows;
	const struct sighting *sighting = sightings_find(&windows->sightings, address);
	uint32_t place;

	if (!windows->open || !sighting || sighting->flags || block->domain ||
	    block->bytes > UINT32_MAX)
		return 0;
	/* No look came between the two: the one before is what looks may take the new one for. */
	if (!sighting->kind)
		return sighting->follows;
	struct death death = death_of(process, sighting, block);
	death.reused_ns = process->info.end_ns;
	place = deaths_add(&windows->deaths, &death);
	return place != DEATHS_NONE ? place + 1 : 0;
}

/* Looks within its window, which may be after its last moment, do not count as later ones. */
void state_window_seen(const struct process_state *process, struct sighting *sighting)
{
	const struct trace_windows *windows = &process->windows;

	if (windows->open && sighting->window + 1 == windows->count)
		sighting->seen_ns = windows->items[sighting->window].start_ns;
	else
		sighting->seen_ns = process->info.end_ns;
}

void state_window_shown(struct process_state *process, struct sighting *sighting)
{
	const struct deaths *deaths = &process->windows.deaths;
	struct death *death;

	if (sighting->follows && sighting->follows <= deaths->count) {
		death = &deaths->items[sighting->follows - 1];
		death->hidden = death->reused_ns && death->kind == sighting->kind &&
				death->print == sighting->print;
	}
	sighting->follows = 0;
	sighting->shown_ns = process->info.end_ns;
	state_window_seen(process, sighting);
}
