/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that are forked, call exec and end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>

#include "records.h"

#define PY    0x030d00f0u
#define STACK 5u

static int setup(void **state)
{
	struct trace *trace;

	assert_int_equal(trace_new(&trace, NULL), 0);
	*state = trace;
	return feed_process(trace, PY);
}

static int teardown(void **state)
{
	trace_free(*state);
	return 0;
}

static void begin(struct trace *trace, uint32_t tgid, uint32_t parent)
{
	struct event_target event = {.header = header_of(EVENT_PROCESS, sizeof(event)),
				     .python_version = PY,
				     .nframe = 16,
				     .mode = EVENT_MODE_EXACT,
				     .parent = parent,
				     .name = "child"};

	event.header.tgid = event.header.tid = tgid;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

static void end(struct trace *trace, uint32_t tgid, uint32_t type)
{
	struct event_process event = {.header = header_of(type, sizeof(event))};

	event.header.tgid = tgid;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

static void take(struct trace *trace, uint32_t tgid, uint64_t address)
{
	struct event_free event = {.header = header_of(EVENT_FREE, sizeof(event)),
				   .address = address};

	event.header.tgid = tgid;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

static void put(struct trace *trace, uint32_t tgid, uint64_t address, uint64_t bytes)
{
	struct event_alloc event = {.header = header_of(EVENT_ALLOC, sizeof(event)),
				    .address = address,
				    .bytes = bytes,
				    .api = EVENT_API_OBJ};

	event.header.tgid = tgid;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

static const struct trace_process *process_of(struct trace *trace, uint32_t tgid)
{
	size_t index;

	assert_int_equal(trace_process_find(trace, tgid, &index), 0);
	return trace_process_at(trace, index);
}

static const struct trace_table *python_of(struct trace *trace, uint32_t tgid)
{
	return &process_of(trace, tgid)->tables[EVENT_LAYER_PYTHON];
}

/*
 * A child has the parent's blocks with their lines. Later changes in one process do not affect the
 * other.
 */
static void test_fork(void **state)
{
	struct trace *trace = *state;
	struct snapshot *snapshot;

	assert_int_equal(feed_code(trace, 9, "/a.py", "f", 7, 0, 0), 0);
	assert_int_equal(feed_stack(trace, STACK, 9, 1), 0);
	assert_int_equal(feed_alloc(trace, 16, 100, STACK), 0);
	assert_int_equal(feed_alloc(trace, 48, 10, STACK), 0);
	begin(trace, 2000, TGID);
	assert_int_equal(python_of(trace, 2000)->live_bytes, 110);
	assert_int_equal(process_of(trace, 2000)->parent, TGID);
	take(trace, 2000, 16);
	put(trace, 2000, 96, 1);
	assert_int_equal(feed_free(trace, 48), 0);
	assert_int_equal(python_of(trace, TGID)->live_bytes, 100);
	assert_int_equal(python_of(trace, 2000)->live_bytes, 11);
	assert_int_equal(python_of(trace, 2000)->frees_unknown, 0);
	assert_int_equal(trace_snapshot(trace, 1, 1, &snapshot), 0);
	assert_int_equal(snapshot->meta.pid, 2000);
	assert_int_equal(snapshot->trace_count, 2);
	for (size_t i = 0; i < snapshot->trace_count; i++) {
		const struct snapshot_traceback *traceback =
			&snapshot->tracebacks[snapshot->traces[i].traceback];
		const char *file =
			strings_get(snapshot->strings, snapshot->frames[traceback->first].filename);

		assert_string_equal(file, snapshot->traces[i].bytes == 10 ? "/a.py" : "<unknown>");
	}
	snapshot_free(snapshot);
}

static uint32_t flags_of(const struct snapshot *snapshot, uint64_t bytes)
{
	for (size_t i = 0; i < snapshot->trace_count; i++)
		if (snapshot->traces[i].bytes == bytes)
			return snapshot->traces[i].flags;
	return UINT32_MAX;
}

/*
 * A child's copy of its parent's data is inherited until the child allocates it anew: a block, a
 * reused object, or the result of a realloc.
 */
static void test_inherited(void **state)
{
	struct trace *trace = *state;
	struct event_alloc reuse = {.header = header_of(EVENT_REUSE, sizeof(reuse)),
				    .api = EVENT_API_OBJ};
	struct event_free realloc = {.header = header_of(EVENT_REALLOC, sizeof(realloc))};
	struct event_map map = {
		.header = header_of(EVENT_MAP, sizeof(map)), .bytes = 4096, .protection = 1};
	struct snapshot *snapshot;

	for (uint64_t i = 1; i <= 5; i++)
		assert_int_equal(feed_alloc(trace, i * 256, i * 10, 0), 0);
	map.address = 1 << 20;
	assert_int_equal(trace_feed(trace, &map, sizeof(map)), 0);
	begin(trace, 2000, TGID);
	put(trace, 2000, 5000, 15);
	map.header.tgid = 2000;
	map.address = 2 << 20;
	map.bytes = 8192;
	assert_int_equal(trace_feed(trace, &map, sizeof(map)), 0);
	take(trace, 2000, 2 * 256);
	put(trace, 2000, 2 * 256, 20); /* at the same address */
	reuse.header.tgid = realloc.header.tgid = 2000;
	reuse.address = 3 * 256;
	assert_int_equal(trace_feed(trace, &reuse, sizeof(reuse)), 0);
	realloc.address = 4 * 256;
	assert_int_equal(trace_feed(trace, &realloc, sizeof(realloc)), 0);
	realloc.header.type = EVENT_REALLOC_FAIL; /* the block stays unchanged */
	assert_int_equal(trace_feed(trace, &realloc, sizeof(realloc)), 0);
	begin(trace, 3000, 2000);
	assert_int_equal(trace_snapshot(trace, 1, 1, &snapshot), 0);
	assert_int_equal(flags_of(snapshot, 10), SNAPSHOT_INHERITED);
	assert_int_equal(flags_of(snapshot, 15), 0);
	assert_int_equal(flags_of(snapshot, 20), 0);
	assert_int_equal(flags_of(snapshot, 30), 0);
	assert_int_equal(flags_of(snapshot, 40), SNAPSHOT_INHERITED);
	assert_int_equal(snapshot->layers[EVENT_LAYER_MMAP].trace_count, 2);
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(snapshot->layers[EVENT_LAYER_MMAP].traces[i].flags,
				 snapshot->layers[EVENT_LAYER_MMAP].traces[i].bytes == 4096
					 ? SNAPSHOT_INHERITED
					 : 0);
	snapshot_free(snapshot);
	assert_int_equal(trace_snapshot(trace, 0, 1, &snapshot), 0);
	assert_int_equal(flags_of(snapshot, 10), 0);
	snapshot_free(snapshot);
	assert_int_equal(trace_snapshot(trace, 2, 1, &snapshot), 0);
	assert_int_equal(flags_of(snapshot, 15), SNAPSHOT_INHERITED);
	snapshot_free(snapshot);
}

/*
 * A grandchild of a child whose parent has ended; and an ended parent, from which nothing is
 * inherited.
 */
static void test_generations(void **state)
{
	struct trace *trace = *state;

	assert_int_equal(feed_alloc(trace, 16, 100, 0), 0);
	begin(trace, 2000, TGID);
	end(trace, TGID, EVENT_EXIT);
	begin(trace, 3000, 2000);
	assert_int_equal(python_of(trace, 3000)->live_bytes, 100);
	begin(trace, 4000, TGID);
	assert_int_equal(python_of(trace, 4000)->live_bytes, 0);
	begin(trace, 5000, 9999);
	assert_int_equal(python_of(trace, 5000)->live_bytes, 0);
}

/*
 * A child that calls exec is not kept, and the next process reuses its slot. Any other process that
 * calls exec keeps its last table.
 */
static void test_exec(void **state)
{
	struct trace *trace = *state;
	struct snapshot *snapshot;
	size_t index;

	assert_int_equal(feed_alloc(trace, 16, 100, 0), 0);
	begin(trace, 2000, TGID);
	end(trace, 2000, EVENT_EXEC);
	assert_int_equal(trace_process_find(trace, 2000, &index), -ENOENT);
	assert_null(trace_process_at(trace, 1));
	assert_int_equal(trace_snapshot(trace, 1, 1, &snapshot), -ENOENT);
	assert_int_equal(trace_dropped(trace).processes, 0);
	begin(trace, 2000, 0);
	assert_int_equal(python_of(trace, 2000)->live_bytes, 0);
	assert_ptr_equal(trace_process_at(trace, 1), process_of(trace, 2000));
	end(trace, TGID, EVENT_EXEC);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_string_equal(snapshot->meta.moment, "execed");
	assert_int_equal(snapshot->trace_count, 1);
	snapshot_free(snapshot);
}

/* A discarded process is not kept, and late records of it are no error. */
static void test_discard(void **state)
{
	struct trace *trace = *state;
	struct event_mark event = {.header = header_of(EVENT_DISCARD, sizeof(event))};
	struct event_free last = {.header = header_of(EVENT_FREE, sizeof(last)), .address = 16};
	size_t index;

	begin(trace, 2000, 0);
	put(trace, 2000, 16, 100);
	event.header.tgid = last.header.tgid = 2000;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
	assert_int_equal(trace_process_find(trace, 2000, &index), -ENOENT);
	assert_int_equal(trace_feed(trace, &last, sizeof(last)), 0);
	assert_int_equal(trace_dropped(trace).processes, 0);
	last.header.tgid = 3000;
	assert_int_equal(trace_feed(trace, &last, sizeof(last)), -EBADMSG);
	/* The same holds for a process that was never announced. */
	event.header.tgid = 3000;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
	assert_int_equal(trace_feed(trace, &last, sizeof(last)), 0);
	begin(trace, 2000, 0);
	assert_int_equal(python_of(trace, 2000)->live_bytes, 0);
	assert_ptr_equal(trace_process_at(trace, 1), process_of(trace, 2000));
}

/* A process whose exit was missed ends when its PID is reused. */
static void test_number_again(void **state)
{
	struct trace *trace = *state;

	assert_int_equal(feed_alloc(trace, 16, 100, 0), 0);
	begin(trace, TGID, 0);
	assert_int_equal(trace_process_count(trace), 2);
	assert_int_equal(trace_process_at(trace, 0)->end, TRACE_EXITED);
	assert_int_equal(trace_process_at(trace, 1)->tables[EVENT_LAYER_PYTHON].live_bytes, 0);
}

/* Inherited blocks do not protect an ended child from being dropped. */
static void test_ended_children(void **state)
{
	struct trace *trace = *state;
	size_t index;

	assert_int_equal(feed_alloc(trace, 16, 1000000, 0), 0);
	for (uint32_t i = 1; i <= TRACE_ENDED_MAX; i++) {
		begin(trace, 5000 + i, TGID);
		end(trace, 5000 + i, EVENT_EXIT);
	}
	begin(trace, 3000, 0);
	put(trace, 3000, 16, 1);
	end(trace, 3000, EVENT_EXIT);
	assert_int_equal(trace_process_find(trace, 3000, &index), 0);
	assert_int_equal(trace_dropped(trace).processes, 1);
	assert_int_equal(trace_dropped(trace).bytes, 1000000);
}

/*
 * The number of ended processes is bounded; the smallest are dropped, and what they held is
 * reported.
 */
static void test_ended(void **state)
{
	struct trace *trace = *state;
	size_t kept = 0, smallest = SIZE_MAX;

	for (uint32_t i = 1; i <= TRACE_ENDED_MAX + 100; i++) {
		begin(trace, 5000 + i, 0);
		put(trace, 5000 + i, 16, i);
		end(trace, 5000 + i, EVENT_EXIT);
	}
	for (size_t i = 1; i < trace_process_count(trace); i++) {
		if (!trace_process_at(trace, i))
			continue;
		kept++;
		if (trace_process_at(trace, i)->tables[EVENT_LAYER_PYTHON].live_bytes < smallest)
			smallest =
				trace_process_at(trace, i)->tables[EVENT_LAYER_PYTHON].live_bytes;
	}
	assert_int_equal(kept, TRACE_ENDED_MAX);
	assert_int_equal(smallest, 101);
	assert_int_equal(trace_dropped(trace).processes, 100);
	assert_int_equal(trace_dropped(trace).blocks, 100);
	assert_int_equal(trace_dropped(trace).bytes, 5050);
	assert_non_null(trace_process_at(trace, 0)); /* still runs */
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_fork),    TEST(test_inherited),      TEST(test_generations),
		TEST(test_exec),    TEST(test_number_again),   TEST(test_ended),
		TEST(test_discard), TEST(test_ended_children),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
