/* SPDX-License-Identifier: Apache-2.0 */
/* Traces with a budget, and the records that exhaust it. */
#pragma once

#include "records.h"
#include "snapshot/builder.h"

#define PY     0x030d00f0u
#define LIMIT  (1u << 20)
#define BUDGET (8u << 20)
#define MANY   (1u << 20) /* more of anything than either budget holds */

static inline int try_begin(struct trace *trace, uint32_t tgid, uint32_t parent, uint32_t mode)
{
	return feed_process_of(trace, PY, tgid, parent, mode);
}

static inline void begin(struct trace *trace, uint32_t tgid, uint32_t parent, uint32_t mode)
{
	assert_int_equal(try_begin(trace, tgid, parent, mode), 0);
}

static inline void end(struct trace *trace, uint32_t tgid)
{
	struct event_process event = {.header = header_of(EVENT_EXIT, sizeof(event))};

	event.header.tgid = tgid;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

static inline void put(struct trace *trace, uint32_t tgid, uint64_t number, uint64_t stack_id)
{
	struct event_alloc event = {.header = header_of(EVENT_ALLOC, sizeof(event)),
				    .address = 16 * number,
				    .bytes = 10 + number % 5000,
				    .stack_id = stack_id,
				    .api = EVENT_API_OBJ};

	event.header.tgid = tgid;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

static inline struct trace *trace_begin(uint64_t budget)
{
	struct trace *trace;

	assert_int_equal(trace_new(&trace, NULL), 0);
	trace_budget(trace, budget);
	begin(trace, TGID, 0, EVENT_MODE_CENSUS);
	return trace;
}
