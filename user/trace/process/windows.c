/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "trace/process/process_tables.h"
#include "util/array.h"

/* --- windows life ----------------------------------------------------------------------------- */

/* The life of what a process has for windows: accounts, copies for children, clearing. */

void state_windows_account(struct trace_windows *windows, struct account *account)
{
	windows->account = windows->sampled_blocks.account = windows->pools.account = account;
	windows->deaths.account = account;
	windows->frees.account = windows->frees.index.account = account;
	windows->heap.index.account = windows->walk.index.account = account;
	windows->made.index.account = account;
	windows->openers.index.account = account;
	windows->taken.index.account = windows->taken_walk.index.account = account;
	windows->fingerprints.account = windows->fingerprints.index.account = account;
	windows->chunks.account = account;
}

void state_windows_free(struct trace_windows *windows)
{
	sampled_blocks_free(&windows->sampled_blocks);
	deaths_free(&windows->deaths);
	frees_free(&windows->frees);
	fingerprints_free(&windows->fingerprints);
	id_map_free(&windows->pools);
	chunk_table_free(&windows->chunks);
	kind_counts_free(&windows->heap);
	kind_counts_free(&windows->walk);
	kind_counts_free(&windows->made);
	pool_openers_free(&windows->openers);
	taken_counts_free(&windows->taken);
	taken_counts_free(&windows->taken_walk);
	ARRAY_RELEASE(windows->account, windows, items, capacity);
	ARRAY_RELEASE(windows->account, windows, fresh, fresh_capacity);
	ARRAY_RELEASE(windows->account, windows, cohorts_ns, cohorts_capacity);
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
	int err = sampled_blocks_copy(&out->sampled_blocks, &from->sampled_blocks)
			?: id_map_copy(&out->pools, &from->pools)
			?: chunk_table_copy(&out->chunks, &from->chunks)
			?: ARRAY_COPY(out->account, out, from, items, count, capacity)
			?: ARRAY_COPY(out->account, out, from, fresh, fresh_count, fresh_capacity);

	if (err)
		return err;
	out->fresh_count = from->fresh_count;
	out->chunks_old = from->chunks_old;
	out->count = from->count;
	out->open = from->open;
	return 0;
}

bool state_window_is_chunk(const struct process_state *process,
			   const struct sampled_block *sampled_block, const struct block *block)
{
	if (sampled_block->flags & SAMPLED_BLOCK_NATIVE)
		return 1;
	return sampled_block->flags & SAMPLED_BLOCK_LARGE &&
	       !(sampled_block->flags & SAMPLED_BLOCK_CERTAIN) && process->windows.chunks.known &&
	       block_allocator_bytes(block) > EVENT_SMALL_BYTES;
}

/* The size of the chunk that a block was seen in, or has by its own size. */
static uint32_t units_of(const struct process_state *process,
			 const struct sampled_block *sampled_block, const struct block *block)
{
	const struct chunk *chunk;

	if (sampled_block->flags & SAMPLED_BLOCK_NATIVE)
		return sampled_block->print
			       ?: chunk_table_units(&process->windows.chunks, block->bytes);
	chunk = chunk_table_find(&process->windows.chunks, sampled_block->address);
	return chunk && chunk_fits(chunk->units, block_allocator_bytes(block), 0)
		       ? chunk->units
		       : chunk_units(block_allocator_bytes(block));
}

void state_window_place(const struct process_state *process,
			const struct sampled_block *sampled_block, const struct block *block,
			uint32_t *kind, uint32_t *class_bytes)
{
	uint32_t units;

	if (state_window_is_chunk(process, sampled_block, block)) {
		units = units_of(process, sampled_block, block);
		*kind = chunk_kind(units);
		*class_bytes = chunk_class(units);
		return;
	}
	*kind = sampled_block->kind;
	*class_bytes = (uint32_t)block_class_bytes(block);
}

/*
 * At some moment between the last recheck that has shown a block and now. Rechecks within its
 * window do not tell when it was alive after that.
 */
static uint64_t died_at(const struct trace_windows *windows,
			const struct sampled_block *sampled_block, uint64_t now_ns)
{
	uint64_t from_ns = sampled_block->seen_ns;

	if (sampled_block->window < windows->count &&
	    from_ns < windows->items[sampled_block->window].end_ns)
		from_ns = windows->items[sampled_block->window].end_ns;
	return from_ns < now_ns ? from_ns + (now_ns - from_ns) / 2 : from_ns;
}

static struct death death_of(const struct process_state *process,
			     const struct sampled_block *sampled_block, const struct block *block)
{
	const struct trace_windows *windows = &process->windows;
	struct death death = {.stack = block->stack,
			      .owner = block->owner,
			      .window = sampled_block->window,
			      .flags = state_block_flags(block),
			      .bytes = (uint32_t)block->bytes,
			      .print = sampled_block->print,
			      .made_ns = sampled_block->made_ns,
			      .shown_ns = sampled_block->shown_ns,
			      .died_ns = died_at(windows, sampled_block, process->info.end_ns)};

	state_window_place(process, sampled_block, block, &death.kind, &death.class_bytes);
	return death;
}

/*
 * A block of malloc's was freed in a window. How long one would have lived after its window that
 * was freed in the same is not known, so it is none of the deaths.
 */
static void window_freed(struct process_state *process, const struct sampled_block *sampled_block,
			 const struct block *block, struct death *death)
{
	struct trace_windows *windows = &process->windows;
	uint32_t units = units_of(process, sampled_block, block);
	const struct life life = {.stack = death->stack,
				  .kind = death->kind,
				  .class_bytes = death->class_bytes,
				  .window = death->window,
				  .lived_ns =
					  process->info.end_ns > sampled_block->shown_ns
						  ? process->info.end_ns - sampled_block->shown_ns
						  : 0};

	if (sampled_block->window + 1 == windows->count) {
		frees_life(&windows->frees, &life, sampled_block->address, units);
		return;
	}
	death->reused_ns = process->info.end_ns;
	frees_death(&windows->frees, deaths_add(&windows->deaths, death), death->window,
		    sampled_block->address, units);
}

/* The block that was seen at an address has died since a walk has shown it last. */
static void state_window_died(struct process_state *process, uint64_t address,
			      const struct block *block)
{
	struct trace_windows *windows = &process->windows;
	const struct sampled_block *sampled_block =
		sampled_blocks_find(&windows->sampled_blocks, address);

	if (!sampled_block || !sampled_block->kind || sampled_block->flags & SAMPLED_BLOCK_OBJECT ||
	    block->domain || block->bytes > UINT32_MAX)
		return;
	if (sampled_block->flags & SAMPLED_BLOCK_LARGE &&
	    !state_window_is_chunk(process, sampled_block, block))
		return;
	struct death death = death_of(process, sampled_block, block);
	if (windows->open && sampled_block->flags & SAMPLED_BLOCK_NATIVE)
		window_freed(process, sampled_block, block, &death);
	else
		deaths_add(&windows->deaths, &death);
}

/* The same, for an address: what the new block has as sampled_block.follows. */
static uint32_t state_window_follow(struct process_state *process, uint64_t address,
				    const struct block *block)
{
	struct trace_windows *windows = &process->windows;
	const struct sampled_block *sampled_block =
		sampled_blocks_find(&windows->sampled_blocks, address);
	uint32_t place;

	if (!windows->open || !sampled_block || sampled_block->flags || block->domain ||
	    block->bytes > UINT32_MAX)
		return 0;
	/* No look came between the two: the one before is what looks may take the new one for. */
	if (!sampled_block->kind)
		return sampled_block->follows;
	struct death death = death_of(process, sampled_block, block);
	death.reused_ns = process->info.end_ns;
	place = deaths_add(&windows->deaths, &death);
	return place != DEATHS_NONE ? place + 1 : 0;
}

/* Looks within its window, which may be after its last moment, do not count as later ones. */
static void window_seen(const struct process_state *process, struct sampled_block *sampled_block)
{
	const struct trace_windows *windows = &process->windows;

	if (windows->open && sampled_block->window + 1 == windows->count)
		sampled_block->seen_ns = windows->items[sampled_block->window].start_ns;
	else
		sampled_block->seen_ns = process->info.end_ns;
}

void state_window_shown(struct process_state *process, struct sampled_block *sampled_block)
{
	const struct deaths *deaths = &process->windows.deaths;
	struct death *death;

	if (sampled_block->follows && sampled_block->follows <= deaths->count) {
		death = &deaths->items[sampled_block->follows - 1];
		death->hidden = death->reused_ns && death->kind == sampled_block->kind &&
				death->print == sampled_block->print;
	}
	sampled_block->follows = 0;
	sampled_block->shown_ns = process->info.end_ns;
	window_seen(process, sampled_block);
}

void state_window_rechecked(struct process_state *process, struct sampled_block *sampled_block,
			    int gone, const struct event_census_kind *kind)
{
	int changed = sampled_block->kind &&
		      (sampled_block->kind != kind->kind || sampled_block->print != kind->print);

	if (gone || changed) {
		process->windows.changed += !gone;
		state_window_drop(process, sampled_block->address);
	} else if (!sampled_block->kind) {
		sampled_block->kind = kind->kind;
		sampled_block->print = kind->print;
		state_window_shown(process, sampled_block);
	} else {
		window_seen(process, sampled_block);
	}
}

/* --- windows heap ----------------------------------------------------------------------------- */

/*
 * What walks of the heap find in the blocks of a process that is traced in windows: how many there
 * are of each kind and size class, and which walk has shown them first (their cohort). An address
 * that shows something else than before holds another block, and so does one that was allocated
 * in a window meanwhile.
 */

/* So many of the newest cohorts are not joined. */
#define COHORT_RECENT 16u

uint32_t state_windows_cohort_now(struct process_state *process)
{
	struct trace_windows *windows = &process->windows;

	if (windows->cohort)
		return windows->cohort;
	windows->cohort = COHORT_FIRST;
	/* Without memory for their times, all blocks are of one cohort. */
	if (!array_reserve_in(windows->account, &windows->cohorts_ns, &windows->cohorts_capacity, 0,
			      COHORT_MAX + 1, sizeof(*windows->cohorts_ns)))
		windows->cohorts_ns[COHORT_FIRST] = state_windows_since_ns(process);
	return windows->cohort;
}

void state_windows_walk(struct process_state *process)
{
	kind_counts_free(&process->windows.walk);
	taken_counts_free(&process->windows.taken_walk);
	fingerprints_walk(&process->windows.fingerprints);
}

/* The cohort of a block that the walk shows. */
static uint32_t cohort_of(struct process_state *process, struct fingerprint_pool *pool, uint32_t i,
			  uint64_t address, const struct event_census_kind *kind, int fresh)
{
	uint32_t now = state_windows_cohort_now(process);

	/* Without memory for it, or where no walk was before, the address has to tell. */
	if ((!pool || fresh) && address_set_has(&process->census.old, address))
		now = COHORT_OLD;
	return pool ? fingerprint_found(&pool->blocks[i], kind->kind, kind->print, now) : now;
}

void state_window_pool_taken(struct process_state *process, const struct event_alloc *event)
{
	const struct pool_opener opener = {
		.pool = state_window_pool(process, event->address),
		.stack = state_stack_index(process, event->stack_id) & BLOCK_STACK_MAX,
		.owner = state_windows_by_owner(&process->info)
				 ? state_owner(process, event->header.tid)
				 : OWNER_NONE,
		.cohort = state_windows_cohort_now(process)};

	if (opener.pool)
		pool_openers_put(&process->windows.openers, &opener);
}

/*
 * Was the pool taken about then? A pool that is taken while a walk reads others is shown by the
 * next one.
 */
static bool is_of_opener(const struct pool_opener *opener, uint32_t cohort)
{
	return cohort - opener->cohort <= 1;
}

void state_windows_count(struct process_state *process, const struct event_census_kinds *event)
{
	const struct fingerprint_pool shown = {.pool = state_window_pool(process, event->address),
					       .address = event->address,
					       .block_bytes = event->block_bytes,
					       .count = event->count};
	int fresh;
	struct fingerprint_pool *pool =
		fingerprints_pool(&process->windows.fingerprints, &shown, &fresh);
	const struct pool_opener *opener = pool_openers_find(&process->windows.openers, shown.pool);

	for (uint32_t i = 0; i < event->count; i++) {
		const struct event_census_kind *kind = &event->kinds[i];
		struct kind_count like = {
			.kind = kind->kind, .bytes = event->block_bytes, .live = 1};

		if (kind->kind == EVENT_KIND_FREE) {
			if (pool)
				pool->blocks[i] = 0;
			continue;
		}
		like.cohort =
			cohort_of(process, pool, i,
				  event->address + (uint64_t)i * event->block_bytes, kind, fresh);
		if (kind_counts_add(&process->windows.walk, &like))
			return;
		if (opener && is_of_opener(opener, like.cohort))
			taken_counts_add(&process->windows.taken_walk, opener, like.kind,
					 like.bytes, like.cohort);
	}
}

/* What is known of the block at an address; NULL: no walk has shown it. */
static uint32_t *block_find(const struct process_state *process, uint64_t address)
{
	return process->info.pool_bytes
		       ? fingerprints_find(&process->windows.fingerprints,
					   state_window_pool(process, address), address)
		       : NULL;
}

void state_windows_recheck(struct process_state *process, const struct event_census_kinds *event)
{
	for (uint32_t i = 0; i < event->count; i++) {
		uint32_t *block =
			block_find(process, event->address + (uint64_t)i * event->block_bytes);

		if (block && !fingerprint_is(*block, event->kinds[i].kind, event->kinds[i].print))
			*block = 0;
	}
}

void state_windows_another(struct process_state *process, uint64_t address)
{
	uint32_t *block = block_find(process, address);

	chunk_table_another(&process->windows.chunks, address);
	if (block)
		*block = 0;
}

uint32_t state_windows_cohort(const struct process_state *process, uint64_t address)
{
	const uint32_t *block = block_find(process, address);

	return block ? fingerprint_cohort(*block)
		     : chunk_table_cohort(&process->windows.chunks, address);
}

/* Joins the older cohorts in pairs, and counts anew. */
static void cohorts_join(struct trace_windows *windows)
{
	uint8_t map[FINGERPRINT_COHORTS] = {0};
	struct kind_counts joined = {.index.account = windows->account};
	uint32_t to = COHORT_FIRST, pairs_end = COHORT_MAX - COHORT_RECENT;

	map[COHORT_OLD] = COHORT_OLD;
	for (uint32_t from = COHORT_FIRST; from <= windows->cohort; from++) {
		int second = from < pairs_end && (from - COHORT_FIRST) % 2;

		if (second)
			map[from] = (uint8_t)(to - 1);
		else
			windows->cohorts_ns[to] = windows->cohorts_ns[from],
			map[from] = (uint8_t)to++;
	}
	windows->cohort = to - 1;
	fingerprints_renumber(&windows->fingerprints, map);
	pool_openers_renumber(&windows->openers, map);
	taken_counts_renumber(&windows->taken, map);
	chunk_table_renumber(&windows->chunks, map);
	for (size_t i = 0; i < windows->heap.count; i++) {
		struct kind_count like = windows->heap.items[i];

		like.cohort = map[like.cohort];
		kind_counts_add(&joined, &like);
	}
	kind_counts_free(&windows->heap);
	windows->heap = joined;
}

/* The baseline walk has found which blocks are older than the trace. */
static void old_set(struct process_state *process)
{
	const struct fingerprints *fingerprints = &process->windows.fingerprints;

	for (size_t i = 0; i < fingerprints->count; i++) {
		const struct fingerprint_pool *pool = &fingerprints->pools[i];

		for (uint32_t j = 0; j < pool->count; j++)
			if (fingerprint_cohort(pool->blocks[j]) == process->windows.cohort &&
			    address_set_has(&process->census.old,
					    pool->address + (uint64_t)j * pool->block_bytes))
				pool->blocks[j] += COHORT_OLD - process->windows.cohort;
	}
}

void state_windows_walked(struct process_state *process, int complete, int baseline,
			  uint64_t time_ns)
{
	struct trace_windows *windows = &process->windows;

	if (windows->walk.count && complete)
		fingerprints_sweep(&windows->fingerprints);
	if (windows->walk.count && baseline)
		old_set(process);
	/* A walk without kinds, such as BPF's own, leaves those of the walk before. */
	if (!baseline && (windows->walk.count || state_window_is_native(process)) &&
	    chunk_table_count(&windows->chunks, &windows->walk))
		kind_counts_free(&windows->walk);
	if (windows->walk.count && !baseline) {
		struct kind_counts old = windows->heap;
		struct taken_counts taken = windows->taken;

		windows->heap = windows->walk;
		windows->walk = old;
		windows->taken = windows->taken_walk;
		windows->taken_walk = taken;
		if (windows->cohorts_ns)
			windows->cohorts_ns[++windows->cohort] = time_ns;
	}
	kind_counts_free(&windows->walk);
	taken_counts_free(&windows->taken_walk);
	if (windows->cohort == COHORT_MAX)
		cohorts_join(windows);
}

/* --- windows ---------------------------------------------------------------------------------- */

static bool is_windowed(const struct process_state *process)
{
	return process->info.mode == EVENT_MODE_WINDOWS;
}

uint64_t state_window_pool(const struct process_state *process, uint64_t address)
{
	uint64_t bytes = process->info.pool_bytes;

	return bytes ? address / bytes * bytes : 0;
}

/* Is it a block of malloc's that is traced in windows only? */
static bool is_large(const struct process_state *process, const struct block *block)
{
	return (process->info.large_windowed || state_window_is_native(process)) &&
	       !block->pooled && !block->domain;
}

bool state_window_has(const struct process_state *process, const struct block *block)
{
	return block->pooled || is_large(process, block);
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
				       const struct sampled_block *sampled_block)
{
	return sampled_block->flags & SAMPLED_BLOCK_OBJECT
		       ? NULL
		       : state_window_block_at(process, sampled_block->address);
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

int state_sampled_block_add(struct process_state *process,
			    const struct sampled_block *sampled_block)
{
	struct sampled_blocks *sampled_blocks = &process->windows.sampled_blocks;
	struct trace_windows *windows = &process->windows;
	int known = sampled_blocks_find(sampled_blocks, sampled_block->address) != NULL;
	int is_pooled = !(sampled_block->flags & (SAMPLED_BLOCK_LARGE | SAMPLED_BLOCK_NATIVE));
	int is_known = (sampled_block->kind && !(sampled_block->flags & SAMPLED_BLOCK_NATIVE)) ||
		       sampled_block->flags & SAMPLED_BLOCK_CERTAIN;
	int err = is_known ? 0
			   : ARRAY_RESERVE(windows->account, windows, fresh, fresh_count,
					   fresh_capacity, 1);

	if (!err)
		err = sampled_blocks_put(sampled_blocks, sampled_block);
	if (!err && !known && is_pooled)
		err = pool_count(process, sampled_block->address, 1);
	if (err && !known)
		sampled_blocks_remove(sampled_blocks, sampled_block->address);
	if (!err && !is_known)
		windows->fresh[windows->fresh_count++] = sampled_block->address;
	return err;
}

void state_sampled_block_remove(struct process_state *process, uint64_t address)
{
	const struct sampled_block *known =
		sampled_blocks_find(&process->windows.sampled_blocks, address);
	int is_pooled = known && !(known->flags & (SAMPLED_BLOCK_LARGE | SAMPLED_BLOCK_NATIVE));

	if (sampled_blocks_remove(&process->windows.sampled_blocks, address) && is_pooled)
		pool_count(process, address, -1);
}

void state_window_drop(struct process_state *process, uint64_t address)
{
	const struct block *known = state_window_block_at(process, address);
	struct block old;

	if (known)
		state_window_died(process, address, known);
	state_sampled_block_remove(process, address);
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
static struct sampled_block sampled_block_new(const struct process_state *process,
					      const struct block *block)
{
	struct sampled_block sampled_block = {.address = block_allocator_address(block),
					      .window = window_now(process),
					      .flags = block->pooled ? 0 : SAMPLED_BLOCK_LARGE,
					      .made_ns = process->info.end_ns};

	if (!state_window_is_native(process))
		return sampled_block;
	/* Its record comes after the allocation, and needs no walk in the window. */
	sampled_block.flags = SAMPLED_BLOCK_NATIVE;
	sampled_block.kind = EVENT_KIND_OTHER;
	sampled_block.shown_ns = sampled_block.seen_ns = process->info.end_ns;
	return sampled_block;
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
	struct sampled_block sampled_block = sampled_block_new(process, block);

	if (!is_windowed(process) || block->domain || !(block->pooled || is_large(process, block)))
		return;
	sampled_block.follows = windows->follows;
	windows->follows = 0;
	windows->seen++;
	if (block->pooled)
		made_count(windows, block);
	state_windows_another(process, sampled_block.address);
	if (!state_sampled_block_add(process, &sampled_block))
		return;
	windows->dropped++;
	state_window_drop(process, sampled_block.address);
}

void state_window_reused(struct process_state *process, enum event_layer layer,
			 const struct block *block)
{
	if (!is_windowed(process) || layer != state_window_layer(&process->info) || !block->pooled)
		return;
	process->windows.follows =
		state_window_follow(process, block_allocator_address(block), block);
	state_sampled_block_remove(process, block_allocator_address(block));
}

void state_window_gone(struct process_state *process, const struct block *block)
{
	if (!is_windowed(process) || !(block->pooled || is_large(process, block)))
		return;
	state_window_died(process, block_allocator_address(block), block);
	state_sampled_block_remove(process, block_allocator_address(block));
}

void state_window_reuse(struct process_state *process, const struct event_alloc *event,
			uint64_t block)
{
	struct trace_windows *windows = &process->windows;
	uint32_t domain = event->domain;
	struct sampled_block sampled_block = {.address = event->address &
							 ~(uint64_t)(EVENT_BLOCK_STEP - 1),
					      .window = window_now(process),
					      .stack = state_stack_index(process, event->stack_id),
					      .owner = state_owner(process, event->header.tid),
					      .domain = domain,
					      .flags = SAMPLED_BLOCK_OBJECT,
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
		sampled_block = (struct sampled_block){.address = block_allocator_address(known),
						       .window = window_now(process),
						       .made_ns = process->info.end_ns};
		sampled_block.follows = state_window_follow(process, sampled_block.address, known);
		state_windows_another(process, sampled_block.address);
	}
	if (state_sampled_block_add(process, &sampled_block))
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
	for (size_t i = 0; i < windows->sampled_blocks.capacity; i++)
		windows->sampled_blocks.slots[i].window /= 2;
	for (size_t i = 0; i < windows->deaths.count; i++)
		windows->deaths.items[i].window /= 2;
	frees_halve(&windows->frees);
}

static int window_open(struct trace_windows *windows, uint64_t start_ns)
{
	int err = 0;

	if (windows->count == WINDOWS_MAX)
		windows_halve(windows);
	err = ARRAY_RESERVE(windows->account, windows, items, count, capacity, 1);
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
		const struct sampled_block *found =
			sampled_blocks_find(&windows->sampled_blocks, windows->fresh[i]);

		if (!found || (found->kind && found->made_ns <= end_ns))
			continue;
		windows->unchecked += !found->kind;
		/* Nothing is known of its life. */
		if (found->kind)
			state_sampled_block_remove(process, windows->fresh[i]);
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
	state_window_allocs_end(process, last);
	unchecked_drop(process, last->end_ns);
	return 0;
}

int state_windows_begin(struct process_state *process, uint64_t start_ns)
{
	struct blocks *blocks = windowed_blocks(process);
	struct trace_windows *windows = &process->windows;
	const struct block *block;
	uint64_t since_ns = state_windows_since_ns(process);
	int err =
		windows->open ? 0 : window_open(windows, start_ns > since_ns ? start_ns : since_ns);

	state_window_allocs_begin(process, process->info.end_ns);
	for (size_t cursor = 0; !err && (block = blocks_next(blocks, &cursor));) {
		struct sampled_block sampled_block = sampled_block_new(process, block);

		sampled_block.made_ns = 0;
		if (!(block->pooled || state_window_is_native(process)) || block->domain)
			continue;
		windows->seen++;
		err = state_sampled_block_add(process, &sampled_block);
	}
	/* The blocks that are left over cannot be followed: begin with none. */
	return account_is_full(err) ? state_clear(process) : err;
}

int state_windows_large_begin(struct process_state *process)
{
	struct blocks *blocks = process->blocks[EVENT_LAYER_PYTHON];
	const struct block *block;
	int err = 0;

	for (size_t cursor = 0; !err && (block = blocks_next(blocks, &cursor));) {
		const struct sampled_block sampled_block = {
			.address = block_allocator_address(block),
			.window = window_now(process),
			.flags = SAMPLED_BLOCK_LARGE | SAMPLED_BLOCK_CERTAIN};

		if (is_large(process, block))
			err = state_sampled_block_add(process, &sampled_block);
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
