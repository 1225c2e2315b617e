/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/heap/census.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proc/freeze.h"
#include "proc/threads.h"
#include "runtime/cpython/heap.h"
#include "runtime/heap/heap_kinds.h"
#include "runtime/heap/heap_types.h"
#include "util/clock.h"
#include "util/error.h"

/* Pools between two drains of the ring buffer: a few milliseconds. */
#define REFRESH_POOLS 512
/* Sizes are emitted for the first 64 pools, then for 64 of every second one, of every fourth, … */
#define SIZED_POOLS 64

struct census_walk {
	const struct census_opts *opts;
	struct event_header header;
	uint64_t id, pools, large;
	struct heap_sizes *sizes; /* NULL: not requested, or types cannot be read */
	/* NULL: likewise; the record has HEAP_KINDS_BYTES bytes */
	struct heap_kinds *kinds;
	struct event_census_kinds *kinds_out;
	uint64_t sized, sized_every;
	int err;
};

static int sizes_record(const struct heap_pool *pool, struct census_walk *walk)
{
	_Alignas(struct event_census_sizes) uint8_t
		capacity[sizeof(struct event_census_sizes) + EVENT_POOL_BLOCKS * sizeof(uint16_t)];
	struct event_census_sizes *record = (void *)capacity;
	size_t bytes = (pool->count + 3) / 4 * 4 * sizeof(record->bytes[0]), known = 0;

	memset(capacity, 0, sizeof(*record) + bytes);
	record->header = walk->header;
	record->header.type = EVENT_CENSUS_SIZES;
	record->header.size = sizeof(*record) + bytes;
	record->id = walk->id;
	record->address = pool->address;
	record->block_bytes = pool->block_bytes;
	record->count = pool->count;
	for (uint32_t i = 0; i < pool->count; i++) {
		if (!heap_pool_live(pool, i))
			continue;
		record->bytes[i] = (uint16_t)heap_sizes_of(
			walk->sizes, pool->content + (size_t)i * pool->block_bytes,
			pool->block_bytes);
		known += record->bytes[i] != 0;
	}
	if (++walk->sized % SIZED_POOLS == 0)
		walk->sized_every *= 2;
	return known ? walk->opts->record(walk->opts->context, record, record->header.size) : 0;
}

static int kinds_record(const struct heap_pool *pool, struct census_walk *walk)
{
	walk->kinds_out->header = walk->header;
	heap_kinds_record(walk->kinds, pool, walk->id, walk->kinds_out);
	return walk->opts->record(walk->opts->context, walk->kinds_out,
				  walk->kinds_out->header.size);
}

static void kinds_begin(struct census_walk *walk, const struct python_runtime *runtime)
{
	walk->kinds_out = calloc(1, HEAP_KINDS_BYTES);
	if (walk->kinds_out)
		heap_kinds_new(&walk->kinds, runtime);
}

/*
 * Blocks of 8 bytes, which exist without the GIL, are kept like those of an unreadable pool: what a
 * walk says of blocks is in steps of 16.
 */
static struct heap_pool pool_in_steps(const struct heap_pool *pool)
{
	struct heap_pool kept = *pool;
	uint64_t end = pool->address + pool->count * pool->block_bytes;

	if (pool->block_bytes % EVENT_BLOCK_STEP == 0)
		return kept;
	kept.block_bytes = 0;
	kept.content = NULL;
	kept.address = pool->address / EVENT_BLOCK_STEP * EVENT_BLOCK_STEP;
	kept.count = (uint32_t)((end - kept.address + EVENT_BLOCK_STEP - 1) / EVENT_BLOCK_STEP);
	return kept;
}

/* Large blocks of mimalloc: as with pymalloc, only their number is told. */
static void large_count(struct census_walk *walk, const struct heap_pool *pool)
{
	for (uint32_t i = 0; i < pool->count; i++)
		walk->large += (unsigned int)heap_pool_live(pool, i);
}

static int pool_record(const struct heap_pool *found, void *context)
{
	struct heap_pool in_steps = pool_in_steps(found), *pool = &in_steps;
	struct census_walk *walk = context;
	_Alignas(struct event_census_pool)
		uint8_t capacity[sizeof(struct event_census_pool) + EVENT_POOL_BLOCKS / 8];
	struct event_census_pool *record = (void *)capacity;
	size_t words = (pool->count + 63) / 64;

	if (pool->block_bytes > EVENT_SMALL_BYTES) {
		large_count(walk, pool);
		return 0;
	}
	memset(capacity, 0, sizeof(*record) + words * sizeof(record->live[0]));
	record->header = walk->header;
	record->header.type = EVENT_CENSUS_POOL;
	record->header.size = sizeof(*record) + words * sizeof(record->live[0]);
	record->id = walk->id;
	record->address = pool->address;
	record->block_bytes = (uint32_t)pool->block_bytes;
	record->count = pool->count;
	for (uint32_t i = 0; pool->block_bytes && i < pool->count; i++)
		record->live[i / 64] |= (uint64_t)heap_pool_live(pool, i) << i % 64;
	walk->err = walk->opts->record(walk->opts->context, record, record->header.size);
	if (!walk->err && walk->sizes && pool->content && walk->pools % walk->sized_every == 0)
		walk->err = sizes_record(pool, walk);
	if (!walk->err && walk->kinds)
		walk->err = kinds_record(pool, walk);
	if (++walk->pools % REFRESH_POOLS == 0)
		walk->opts->refresh(walk->opts->context);
	return walk->err;
}

static int thread_record(pid_t tid, void *context)
{
	struct census_walk *walk = context;
	struct event_mark record = {.header = walk->header};

	record.header.type = EVENT_CENSUS_THREAD;
	record.header.size = sizeof(record);
	record.header.tid = tid;
	return walk->opts->record(walk->opts->context, &record, sizeof(record));
}

static int walk_take(const struct python_runtime *runtime, const struct census_opts *opts,
		     struct event_census *record)
{
	struct census_walk walk = {
		.opts = opts, .header = record->header, .id = record->id, .sized_every = 1};
	struct heap_walk heap = {0};

	int err = opts->record(opts->context, record, sizeof(*record))
			  ?: threads_visit(runtime->pid, thread_record, &walk);
	if (err)
		return err;
	/* If types cannot be read, no sizes are emitted. */
	if (opts->types)
		heap_sizes_new(&walk.sizes, runtime);
	if (opts->kinds)
		kinds_begin(&walk, runtime);
	err = heap_read_pools(runtime, pool_record, &walk, &heap);
	heap_sizes_free(walk.sizes);
	heap_kinds_free(walk.kinds);
	free(walk.kinds_out);
	/* The library has just been loaded: there is no heap yet. */
	if (err == -EAGAIN)
		err = 0;
	if (!err)
		err = walk.err;
	if (heap.arenas_lost)
		record->failed = EVENT_CENSUS_PARTIAL;
	record->large_blocks = heap.raw_blocks + walk.large;
	record->pools_unreadable = heap.pools_unreadable;
	record->elapsed_ns = heap.elapsed_ns;
	return err;
}

int census_take(const struct python_runtime *runtime, const struct census_opts *opts)
{
	struct event_census record = {
		.header = {.type = EVENT_CENSUS,
			   .size = sizeof(record),
			   .tgid = runtime->pid,
			   .tid = runtime->pid},
		.baseline = opts->baseline,
	};
	struct freeze *freeze = NULL;

	error_clear();
	int err = opts->freeze ? freeze_begin(&freeze, runtime->pid) : 0;
	if (err)
		return err;
	opts->refresh(opts->context);
	record.header.time_ns = clock_ns(CLOCK_MONOTONIC);
	record.id = record.header.time_ns & ~EVENT_CENSUS_INSIDE;
	err = walk_take(runtime, opts, &record);
	record.frozen_ns = freeze_end(freeze);
	opts->refresh(opts->context);
	record.header.type = EVENT_CENSUS_DONE;
	record.header.time_ns = clock_ns(CLOCK_MONOTONIC);
	if (err)
		record.failed = EVENT_CENSUS_GIVEN_UP;
	int failed = opts->record(opts->context, &record, sizeof(record));
	return err ?: failed;
}
