/* SPDX-License-Identifier: Apache-2.0 */
/* A trace of one process with three lines, and what its snapshots say of them. After cmocka.h. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "records.h"
#include "snapshot/group/group.h"
#include "snapshot_files.h"
#include "snapshots.h"

static inline int feed_mode(struct trace *trace, uint32_t mode, uint64_t sample_bytes)
{
	struct event_mode_change event = {.header = header_of(EVENT_MODE_CHANGE, sizeof(event)),
					  .mode = mode,
					  .sample_bytes = sample_bytes};

	event.header.time_ns = 2;
	return trace_feed(trace, &event, sizeof(event));
}

static inline int trace_set(void **state)
{
	struct trace *trace;

	assert_int_equal(trace_new(&trace, NULL), 0);
	assert_int_equal(feed_process(trace, 0x030d0000), 0);
	for (uint64_t i = 1; i <= 3; i++) {
		char name[] = "line_.py";

		name[4] = (char)('0' + i);
		assert_int_equal(feed_code(trace, i, name, "f", 1, 0, 0), 0);
		assert_int_equal(feed_stack(trace, i, i, 1), 0);
	}
	*state = trace;
	return 0;
}

static inline int trace_end(void **state)
{
	trace_free(*state);
	return 0;
}

/* "FILE allocated BYTES/BLOCKS, SIZE/COUNT alive; …; total BYTES/BLOCKS", by allocated bytes. */
static inline void check(const struct snapshot *snapshot, const char *expected)
{
	const struct statistics_opts how = {.by = GROUP_FILENAME, .sort = SORT_ALLOCATED};
	struct statistics statistics;
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	assert_int_equal(statistics_compute(snapshot, &how, &statistics), 0);
	assert_true(statistics.allocated_known);
	for (size_t i = 0; i < statistics.count; i++) {
		const struct statistic *entry = &statistics.entries[i];

		fprintf(out, "%s %lu/%lu, %lu/%lu alive; ",
			strings_get(snapshot->strings, entry->frame.filename),
			(unsigned long)entry->extra.allocated.size,
			(unsigned long)entry->extra.allocated.count, (unsigned long)entry->size,
			(unsigned long)entry->count);
	}
	fprintf(out, "total %lu/%lu", (unsigned long)statistics.extra.allocated.size,
		(unsigned long)statistics.extra.allocated.count);
	fclose(out);
	statistics_free(&statistics);
	assert_string_equal(text, expected);
	free(text);
}

static inline struct snapshot *taken(struct trace *trace)
{
	struct snapshot *snapshot;

	assert_int_equal(trace_snapshot_all(trace, 0, &snapshot), 0);
	return snapshot;
}

static inline void check_now(struct trace *trace, const char *expected)
{
	struct snapshot *snapshot = taken(trace);

	check(snapshot, expected);
	snapshot_free(snapshot);
}

static inline int is_known(struct trace *trace)
{
	struct snapshot *snapshot = taken(trace);
	int known = snapshot_knows(snapshot, EXTRA_ALLOCATED);

	snapshot_free(snapshot);
	return known;
}

/* At a time since the process began to be traced, by a thread. */
static inline void put_at(struct trace *trace, uint32_t tid, uint64_t ms, uint64_t address,
			  uint64_t stack)
{
	struct event_alloc event = {.header = header_of(EVENT_ALLOC, sizeof(event)),
				    .address = address,
				    .bytes = 10,
				    .stack_id = stack,
				    .api = EVENT_API_OBJ};

	event.header.tid = tid;
	event.header.time_ns = 1 + ms * 1000000;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

static inline void free_at(struct trace *trace, uint32_t tid, uint64_t ms, uint64_t address)
{
	struct event_free event = {.header = header_of(EVENT_FREE, sizeof(event)),
				   .address = address};

	event.header.tid = tid;
	event.header.time_ns = 1 + ms * 1000000;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}
