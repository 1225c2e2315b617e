/* SPDX-License-Identifier: Apache-2.0 */
#include "session/census.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "process/freeze.h"
#include "process/threads.h"
#include "python/heap.h"
#include "python/heap_types.h"

/* Pools between two looks at the ring buffer: a few milliseconds. */
#define REFRESH_POOLS 512
/* Of so many pools what is in them is told; then of every second one, of every fourth, … */
#define SIZED_POOLS 64

struct reading {
	const struct census_opts *opts;
	struct event_header header;
	uint64_t id, pools;
	struct heap_sizes *sizes; /* NULL: not asked for, or no object can be told */
	uint64_t sized, sized_every;
	int err;
};

static int sizes_record(const struct heap_pool *pool, struct reading *reading)
{
	_Alignas(struct event_census_sizes) uint8_t
		room[sizeof(struct event_census_sizes) + EVENT_POOL_BLOCKS * sizeof(uint16_t)];
	struct event_census_sizes *record = (void *)room;
	size_t bytes = (pool->count + 3) / 4 * 4 * sizeof(record->bytes[0]), told = 0;

	memset(room, 0, sizeof(*record) + bytes);
	record->header = reading->header;
	record->header.type = EVENT_CENSUS_SIZES;
	record->header.size = sizeof(*record) + bytes;
	record->id = reading->id;
	record->address = pool->address;
	record->block_bytes = pool->block_bytes;
	record->count = pool->count;
	for (uint32_t i = 0; i < pool->count; i++) {
		if (pool->free[i])
			continue;
		record->bytes[i] = (uint16_t)heap_sizes_of(
			reading->sizes, pool->content + (size_t)i * pool->block_bytes,
			pool->block_bytes);
		told += record->bytes[i] != 0;
	}
	if (++reading->sized % SIZED_POOLS == 0)
		reading->sized_every *= 2;
	return told ? reading->opts->record(reading->opts->context, record, record->header.size)
		    : 0;
}

static int pool_record(const struct heap_pool *pool, void *context)
{
	struct reading *reading = context;
	_Alignas(struct event_census_pool)
		uint8_t room[sizeof(struct event_census_pool) + EVENT_POOL_BLOCKS / 8];
	struct event_census_pool *record = (void *)room;
	size_t words = (pool->count + 63) / 64;

	memset(room, 0, sizeof(*record) + words * sizeof(record->live[0]));
	record->header = reading->header;
	record->header.type = EVENT_CENSUS_POOL;
	record->header.size = sizeof(*record) + words * sizeof(record->live[0]);
	record->id = reading->id;
	record->address = pool->address;
	record->block_bytes = pool->block_bytes;
	record->count = pool->count;
	for (uint32_t i = 0; i < pool->count; i++)
		record->live[i / 64] |= (uint64_t)!pool->free[i] << i % 64;
	reading->err = reading->opts->record(reading->opts->context, record, record->header.size);
	if (!reading->err && reading->sizes && pool->content &&
	    reading->pools % reading->sized_every == 0)
		reading->err = sizes_record(pool, reading);
	if (++reading->pools % REFRESH_POOLS == 0)
		reading->opts->refresh(reading->opts->context);
	return reading->err;
}

static int thread_record(pid_t tid, void *context)
{
	struct reading *reading = context;
	struct event_mark record = {.header = reading->header};

	record.header.type = EVENT_CENSUS_THREAD;
	record.header.size = sizeof(record);
	record.header.tid = tid;
	return reading->opts->record(reading->opts->context, &record, sizeof(record));
}

static int reading_take(const struct python_runtime *runtime, const struct census_opts *opts,
			struct event_census *record)
{
	struct reading reading = {
		.opts = opts, .header = record->header, .id = record->id, .sized_every = 1};
	struct heap_reading heap = {0};
	int err;

	err = opts->record(opts->context, record, sizeof(*record));
	if (!err)
		err = threads_visit(runtime->pid, thread_record, &reading);
	if (err)
		return err;
	/* Where types cannot be told nothing is said of them. */
	if (opts->types)
		heap_sizes_new(&reading.sizes, runtime);
	err = heap_read_pools(runtime, pool_record, &reading, &heap);
	heap_sizes_free(reading.sizes);
	/* A library that was loaded this moment: there is no heap, and so nothing on it. */
	if (err == -EAGAIN)
		err = 0;
	if (!err)
		err = reading.err;
	if (heap.arenas_lost)
		record->failed = EVENT_CENSUS_PARTIAL;
	record->large_blocks = heap.raw_blocks;
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
	int err;

	error_clear();
	err = opts->freeze ? freeze_begin(&freeze, runtime->pid) : 0;
	if (err)
		return err;
	opts->refresh(opts->context);
	record.header.time_ns = clock_ns(CLOCK_MONOTONIC);
	record.id = record.header.time_ns & ~EVENT_CENSUS_INSIDE;
	err = reading_take(runtime, opts, &record);
	record.frozen_ns = freeze_end(freeze);
	opts->refresh(opts->context);
	record.header.type = EVENT_CENSUS_DONE;
	record.header.time_ns = clock_ns(CLOCK_MONOTONIC);
	if (err)
		record.failed = EVENT_CENSUS_GIVEN_UP;
	int failed = opts->record(opts->context, &record, sizeof(record));
	return err ? err : failed;
}
