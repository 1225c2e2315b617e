/* SPDX-License-Identifier: Apache-2.0 */
/* Records of a heap walk, fed into a trace. */
#pragma once

#include "records.h"
#include "report/report.h"
#include "snapshot/snapshot.h"

#define POOL   0x7f0000000040ull
#define BLOCK  48u
#define BLOCKS 300u /* more than four words of bitmap */
#define S      1000000000ull

/* The block's address in the pool. */
static inline uint64_t at(unsigned int number)
{
	return POOL + (uint64_t)number * BLOCK;
}

static inline int setup_python(void **state, uint32_t version, uint32_t mode)
{
	struct trace *trace;
	struct event_target event = {.header = header_of(EVENT_PROCESS, sizeof(event)),
				     .python_version = version,
				     .nframe = 16,
				     .mode = mode,
				     .name = "python3"};

	if (trace_new(&trace, NULL) || trace_feed(trace, &event, sizeof(event)))
		return -1;
	*state = trace;
	return 0;
}

static inline int setup_mode(void **state, uint32_t mode)
{
	return setup_python(state, 0x030d00f0, mode);
}

static inline int setup_census(void **state)
{
	return setup_mode(state, EVENT_MODE_CENSUS);
}

static inline int teardown(void **state)
{
	trace_free(*state);
	return 0;
}

static inline void put_by(struct trace *trace, uint32_t tid, uint64_t address, uint64_t bytes,
			  uint32_t api)
{
	struct event_alloc event = {.header = header_of(EVENT_ALLOC, sizeof(event)),
				    .address = address,
				    .bytes = bytes,
				    .api = api};

	event.header.tid = tid;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

static inline void put(struct trace *trace, unsigned int number)
{
	assert_int_equal(feed_alloc(trace, at(number), BLOCK - 1, 0), 0);
}

static inline void begin(struct trace *trace, uint64_t id)
{
	struct event_census event = {.header = header_of(EVENT_CENSUS, sizeof(event)), .id = id};

	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

struct pool_event {
	struct event_census_pool event;
	uint64_t bits[EVENT_POOL_BLOCKS / 64];
};

static inline struct pool_event pool_of(uint64_t id, uint64_t address, uint32_t block_bytes,
					uint32_t count)
{
	size_t size = sizeof(struct event_census_pool) + (count + 63) / 64 * 8;

	return (struct pool_event){.event = {.header = header_of(EVENT_CENSUS_POOL, size),
					     .id = id,
					     .address = address,
					     .block_bytes = block_bytes,
					     .count = count}};
}

static inline int pool_feed(struct trace *trace, const struct pool_event *pool)
{
	return trace_feed(trace, pool, pool->event.header.size);
}

/* Feeds a pool of BLOCKS blocks. live lists the live ones and ends with a negative number. */
static inline void pool(struct trace *trace, uint64_t id, const int *live)
{
	struct pool_event event = pool_of(id, POOL, BLOCK, BLOCKS);

	for (; *live >= 0; live++)
		event.bits[*live / 64] |= 1ull << *live % 64;
	assert_int_equal(pool_feed(trace, &event), 0);
}

#define LIVE(...) ((const int[]){__VA_ARGS__, -1})

static inline struct event_census end_of(uint64_t id)
{
	struct event_census event = {.header = header_of(EVENT_CENSUS_DONE, sizeof(event)),
				     .id = id};

	event.header.time_ns = 2 * S;
	return event;
}

static inline void done(struct trace *trace, uint64_t id)
{
	struct event_census event = end_of(id);

	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

static inline void done_so(struct trace *trace, uint64_t id, uint32_t baseline, uint32_t failed)
{
	struct event_census event = end_of(id);

	event.baseline = baseline;
	event.failed = failed;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

/* Feeds a complete heap walk. */
static inline void walk(struct trace *trace, uint64_t id, const int *live)
{
	begin(trace, id);
	pool(trace, id, live);
	done(trace, id);
}

static inline void baseline(struct trace *trace, uint64_t id, const int *live)
{
	begin(trace, id);
	pool(trace, id, live);
	done_so(trace, id, 1, 0);
}

static inline const struct trace_process *process_of(struct trace *trace)
{
	return trace_process_at(trace, 0);
}

static inline int knows(struct trace *trace, unsigned int number)
{
	return blocks_find(trace_blocks(trace, 0, EVENT_LAYER_PYTHON), at(number), 0) != NULL;
}

static inline void expect(struct trace *trace, uint64_t seen, uint64_t old, uint64_t unseen,
			  uint64_t dead)
{
	const struct snapshot_coverage *counts = &process_of(trace)->coverage;

	assert_int_equal(counts->seen_blocks, seen);
	assert_int_equal(counts->seen_bytes, seen * BLOCK);
	assert_int_equal(counts->old_blocks, old);
	assert_int_equal(counts->old_bytes, old * BLOCK);
	assert_int_equal(counts->new_blocks, seen + unseen);
	assert_int_equal(counts->live_blocks, seen + old + unseen);
	assert_int_equal(counts->live_bytes, (seen + old + unseen) * BLOCK);
	assert_int_equal(counts->dead_blocks, dead);
}

/* A window begins, or with end_ns ends. */
static inline int window_feed(struct trace *trace, uint64_t start_ns, uint64_t end_ns)
{
	struct event_window event = {.header = header_of(EVENT_WINDOW, sizeof(event)),
				     .start_ns = start_ns,
				     .end_ns = end_ns,
				     .busy_ns = UINT64_MAX};

	event.header.time_ns = end_ns ? end_ns : start_ns;
	return trace_feed(trace, &event, sizeof(event));
}

static inline void window(struct trace *trace, uint64_t start_ns, uint64_t end_ns)
{
	assert_int_equal(window_feed(trace, start_ns, end_ns), 0);
}

static inline uint64_t large_seen(struct trace *trace, uint64_t id, uint64_t large_blocks)
{
	struct event_census end = end_of(id);

	end.large_blocks = large_blocks;
	assert_int_equal(trace_feed(trace, &end, sizeof(end)), 0);
	return process_of(trace)->coverage.large_seen;
}
