/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of probes, and what walks and looks show of one pool, as records. After cmocka.h. */
#pragma once

#include <stdlib.h>

#include "census_records.h"
#include "trace/state.h"

#define TYPE  77u /* a kind */
#define PRINT 5u

/* 16 KiB pools of 3.10 and later. */
#define POOL_AT (0x7f0000000040ull / 16384 * 16384)

static inline int setup(void **state)
{
	return setup_mode(state, EVENT_MODE_WINDOWS | EVENT_MODE_LARGE);
}

static inline void open_at(struct trace *trace, uint64_t start_ns)
{
	assert_int_equal(window_feed(trace, start_ns, 0), 0);
}

static inline void close_at(struct trace *trace, uint64_t end_ns)
{
	assert_int_equal(window_feed(trace, end_ns - 1, end_ns), 0);
}

struct kinds {
	struct event_census_kinds event;
	struct event_census_kind kinds[BLOCKS];
};

/* What a walk shows: nothing is live but what is set later. */
static inline struct kinds kinds_of(uint64_t id)
{
	struct kinds kinds = {.event = {.header = header_of(EVENT_CENSUS_KINDS, sizeof(kinds)),
					.id = id,
					.address = POOL,
					.block_bytes = BLOCK,
					.count = BLOCKS}};

	return kinds;
}

static inline int kinds_feed(struct trace *trace, const struct kinds *kinds)
{
	return trace_feed(trace, kinds, sizeof(*kinds));
}

/* A look at the pool, which shows objects of a kind in these blocks. */
static inline void look(struct trace *trace, const int *live, uint32_t kind, uint32_t print)
{
	struct kinds kinds = kinds_of(0);

	for (; *live >= 0; live++)
		kinds.event.kinds[*live] = (struct event_census_kind){kind, print};
	assert_int_equal(kinds_feed(trace, &kinds), 0);
}

/* A later allocation of the thread, elsewhere: the ones before are complete. */
static inline void move_on(struct trace *trace)
{
	put_by(trace, TGID, 0x7e0000000000ull, 600, EVENT_API_LARGE);
}

static inline size_t sighted(struct trace *trace, enum trace_sighted which)
{
	uint64_t *pools;
	size_t count;

	assert_int_equal(trace_sighted_pools(trace, 0, which, &pools, &count), 0);
	if (count)
		assert_int_equal(pools[0], POOL_AT);
	free(pools);
	return count;
}
