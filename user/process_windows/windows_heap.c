/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What walks of the heap find in the blocks of a process that is traced in windows: how many there
 * are of each kind and size class, and which walk has shown them first (their cohort). An address
 * that shows something else than before holds another block, and so does one that was allocated
 * in a window meanwhile.
 */
#include <string.h>

#include "base/array.h"
#include "process_tables/process_tables.h"

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
	identities_walk(&process->windows.identities);
}

/* The cohort of a block that the walk shows. */
static uint32_t cohort_of(struct process_state *process, struct identity_pool *pool, uint32_t i,
			  uint64_t address, const struct event_census_kind *kind, int fresh)
{
	uint32_t now = state_windows_cohort_now(process);

	/* Without memory for it, or where no walk was before, the address has to tell. */
	if ((!pool || fresh) && address_set_has(&process->census.old, address))
		now = COHORT_OLD;
	return pool ? identity_found(&pool->blocks[i], kind->kind, kind->print, now) : now;
}

void state_window_pool_taken(struct process_state *process, const struct event_alloc *event)
{
	const struct pool_taker taker = {.pool = state_window_pool(process, event->address),
					 .stack = state_stack_index(process, event->stack_id) &
						  BLOCK_STACK_MAX,
					 .cohort = state_windows_cohort_now(process)};

	if (taker.pool)
		pool_takers_put(&process->windows.takers, &taker);
}

/*
 * Was the pool taken about then? A pool that is taken while a walk reads others is shown by the
 * next one.
 */
static int is_of_taker(const struct pool_taker *taker, uint32_t cohort)
{
	return cohort - taker->cohort <= 1;
}

void state_windows_count(struct process_state *process, const struct event_census_kinds *event)
{
	const struct identity_pool shown = {.pool = state_window_pool(process, event->address),
					    .address = event->address,
					    .block_bytes = event->block_bytes,
					    .count = event->count};
	int fresh;
	struct identity_pool *pool = identities_pool(&process->windows.identities, &shown, &fresh);
	const struct pool_taker *taker = pool_takers_find(&process->windows.takers, shown.pool);

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
		if (taker && is_of_taker(taker, like.cohort))
			taken_counts_add(&process->windows.taken_walk, taker, like.kind, like.bytes,
					 like.cohort);
	}
}

/* What is known of the block at an address; NULL: no walk has shown it. */
static uint32_t *block_find(const struct process_state *process, uint64_t address)
{
	return process->info.pool_bytes
		       ? identities_find(&process->windows.identities,
					 state_window_pool(process, address), address)
		       : NULL;
}

void state_windows_look(struct process_state *process, const struct event_census_kinds *event)
{
	for (uint32_t i = 0; i < event->count; i++) {
		uint32_t *block =
			block_find(process, event->address + (uint64_t)i * event->block_bytes);

		if (block && !identity_is(*block, event->kinds[i].kind, event->kinds[i].print))
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

	return block ? identity_cohort(*block)
		     : chunk_table_cohort(&process->windows.chunks, address);
}

/* Joins the older cohorts in pairs, and counts anew. */
static void cohorts_join(struct trace_windows *windows)
{
	uint8_t map[IDENTITY_COHORTS] = {0};
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
	identities_renumber(&windows->identities, map);
	pool_takers_renumber(&windows->takers, map);
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
	const struct identities *identities = &process->windows.identities;

	for (size_t i = 0; i < identities->count; i++) {
		const struct identity_pool *pool = &identities->pools[i];

		for (uint32_t j = 0; j < pool->count; j++)
			if (identity_cohort(pool->blocks[j]) == process->windows.cohort &&
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
		identities_sweep(&windows->identities);
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
