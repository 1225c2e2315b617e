/* SPDX-License-Identifier: Apache-2.0 */
/* What is alive by asyncio task, from records to reports, by way of a snapshot's file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "records.h"
#include "snapshot_files.h"
#include "trace/blocks/block_owners.h"
#include "util/array.h"

#define PY 0x030e00f0u

static const struct report_opts by_task = {.by = GROUP_TASK};

static int trace_set(void **state)
{
	struct trace *trace;

	assert_int_equal(trace_new(&trace, NULL), 0);
	assert_int_equal(feed_process_of(trace, PY, TGID, 0, EVENT_MODE_EXACT | EVENT_MODE_TASKS),
			 0);
	assert_int_equal(feed_code(trace, 1, "line.py", "f", 1, 0, 0), 0);
	assert_int_equal(feed_stack(trace, 1, 1, 1), 0);
	*state = trace;
	return 0;
}

static int trace_end(void **state)
{
	trace_free(*state);
	return 0;
}

static int task_feed(struct trace *trace, uint32_t tid, uint16_t how, uint64_t number,
		     const void *name, uint16_t kind, uint32_t bytes)
{
	struct event_task event = {.header = header_of(EVENT_TASK, sizeof(event)),
				   .number = number,
				   .bytes = bytes,
				   .how = how,
				   .kind = kind};

	event.header.tid = tid;
	if (name)
		memcpy(event.name, name, bytes < EVENT_TASK_BYTES ? bytes : EVENT_TASK_BYTES);
	return trace_feed(trace, &event, sizeof(event));
}

static void name_feed(struct trace *trace, uint32_t tid, const char *name)
{
	assert_int_equal(
		task_feed(trace, tid, EVENT_TASK_NAMED, 0, name, 1, (uint32_t)strlen(name)), 0);
}

static void put(struct trace *trace, uint32_t tid, uint64_t address)
{
	assert_int_equal(feed_put(trace, EVENT_ALLOC, tid, address, 10, 1), 0);
}

/* Written to a file and read from it. */
static void check(struct trace *trace, const struct report_opts *opts, const char *expected)
{
	struct snapshot *snapshot, *back;

	assert_int_equal(trace_snapshot_all(trace, 0, &snapshot), 0);
	back = snapshot_through_file(snapshot);
	check_report(back, opts, expected);
	snapshot_free(back);
	snapshot_free(snapshot);
}

static void own_blocks(void **state)
{
	const struct report_opts by_thread = {.by = GROUP_THREAD};
	struct trace *trace = *state;

	put(trace, 1, 0x1000);
	name_feed(trace, 1, "a,b");
	put(trace, 1, 0x2000);
	put(trace, 2, 0x3000); /* another thread */
	put(trace, 1, 0x4000);
	name_feed(trace, 2, "a,b"); /* of one name: one row */
	put(trace, 2, 0x5000);
	put(trace, 2, 0x5100);
	assert_int_equal(task_feed(trace, 1, EVENT_TASK_NUMBERED, 7, NULL, 0, 0), 0);
	put(trace, 1, 0x6000);
	name_feed(trace, 1, "Task-7"); /* somebody has asked for its name */
	put(trace, 1, 0x7000);
	put(trace, 1, 0x7100);
	assert_int_equal(task_feed(trace, 1, EVENT_TASK_NUMBERED, 1ull << 40, NULL, 0, 0), 0);
	put(trace, 1, 0x8000);
	assert_int_equal(task_feed(trace, 1, EVENT_TASK_NONE, 0, NULL, 0, 0), 0);
	put(trace, 1, 0x9000);
	put(trace, 1, 0xa000);
	assert_int_equal(feed_free(trace, 0xa000), 0);
	check(trace, &by_task,
	      "pid,task,size,count\r\n1000,\"a,b\",40,4\r\n1000,,30,3\r\n1000,Task-7,30,3\r\n"
	      "1000,Task-1099511627776,10,1\r\n");
	check(trace, &by_thread, "tid,pid,thread,size,count\r\n1,1000,,80,8\r\n2,1000,,30,3\r\n");
}

/* Values are told by way of tasks. Their label in a file has the variable's own name. */
static void may_be_values(void **state)
{
	const struct report_opts by_value = {.by = GROUP_LABEL, .label = "context shop.id"};
	struct snapshot *snapshot, *back;
	struct trace *trace = *state;

	put(trace, 1, 0x1000);
	name_feed(trace, 1, "a");
	put(trace, 1, 0x2000);
	put(trace, 1, 0x3000);
	assert_int_equal(trace_snapshot_all(trace, 0, &snapshot), 0);
	strcpy(snapshot->meta.label, by_value.label);
	back = snapshot_through_file(snapshot);
	check_report(back, &by_value, "pid,value,size,count\r\n1000,a,20,2\r\n1000,,10,1\r\n");
	assert_int_equal(report_csv(back, &by_task, stdout), -EINVAL);
	snapshot_free(back);
	snapshot_free(snapshot);
}

/* An object from a free list is the task's that takes it; a realloc that fails changes nothing. */
static void take_and_keep(void **state)
{
	struct event_alloc reuse = {.header = header_of(EVENT_REUSE, sizeof(reuse)),
				    .address = 0x1000,
				    .stack_id = 1,
				    .api = EVENT_API_OBJ};
	struct trace *trace = *state;

	name_feed(trace, TGID, "one");
	put(trace, TGID, 0x1000);
	put(trace, TGID, 0x2000);
	put(trace, TGID, 0x3000);
	name_feed(trace, TGID, "two");
	assert_int_equal(trace_feed(trace, &reuse, sizeof(reuse)), 0);
	assert_int_equal(feed_take(trace, EVENT_REALLOC, TGID, 0x2000), 0);
	assert_int_equal(feed_take(trace, EVENT_REALLOC_FAIL, TGID, 0x2000), 0);
	assert_int_equal(feed_take(trace, EVENT_REALLOC, TGID, 0x3000), 0);
	assert_int_equal(feed_put(trace, EVENT_REALLOC_DONE, TGID, 0x3000, 20, 1), 0);
	check(trace, &by_task, "pid,task,size,count\r\n1000,two,30,2\r\n1000,one,10,1\r\n");
}

/* Names of every width, too long, empty, with what no name should have. */
static void have_any_name(void **state)
{
	static const uint16_t wide[70] = {0x540d, 0x202e};
	static const uint32_t widest[] = {0x1f40d, 0x110000, 0};
	uint8_t latin[EVENT_TASK_BYTES];
	struct trace *trace = *state;

	memset(latin, 0xe9, sizeof(latin));
	assert_int_equal(task_feed(trace, 1, EVENT_TASK_NAMED, 0, wide, 2, sizeof(wide)), 0);
	put(trace, 1, 0x1000);
	assert_int_equal(task_feed(trace, 1, EVENT_TASK_NAMED, 0, widest, 4, sizeof(widest)), 0);
	put(trace, 1, 0x2000);
	put(trace, 1, 0x2100);
	assert_int_equal(task_feed(trace, 1, EVENT_TASK_NAMED, 0, latin, 1, sizeof(latin)), 0);
	for (uint64_t i = 0; i < 3; i++)
		put(trace, 1, 0x3000 + 0x100 * i);
	name_feed(trace, 1, "");
	for (uint64_t i = 0; i < 4; i++)
		put(trace, 1, 0x4000 + 0x100 * i);
	assert_int_equal(task_feed(trace, 1, EVENT_TASK_UNKNOWN, 0, NULL, 0, 0), 0);
	for (uint64_t i = 0; i < 5; i++)
		put(trace, 1, 0x5000 + 0x100 * i);

	char expected[4096] = "pid,task,size,count\r\n1000,<unknown>,50,5\r\n"
			      "1000,\"\"\"\"\"\",40,4\r\n1000,";
	for (size_t i = 0; i < sizeof(latin); i++)
		strcat(expected, "é");
	strcat(expected, ",30,3\r\n1000,🐍��,20,2\r\n1000,名\u202e");
	for (size_t i = 2; i < EVENT_TASK_BYTES / 2; i++)
		strcat(expected, "�");
	strcat(expected, "…,10,1\r\n");
	check(trace, &by_task, expected);
}

static void bad_records_are_refused(void **state)
{
	struct trace *trace = *state;

	assert_int_equal(task_feed(trace, 1, EVENT_TASK_HASHED + 1, 0, NULL, 1, 0), -EBADMSG);
	assert_int_equal(task_feed(trace, 1, EVENT_TASK_NAMED, 0, NULL, 0, 4), -EBADMSG);
	assert_int_equal(task_feed(trace, 1, EVENT_TASK_NAMED, 0, NULL, 3, 3), -EBADMSG);
	assert_int_equal(task_feed(trace, 1, EVENT_TASK_NAMED, 0, NULL, 4, 6), -EBADMSG);
	assert_int_equal(task_feed(trace, 1, EVENT_TASK_NAMED, 0, NULL, 4, UINT32_MAX), -EBADMSG);
	assert_int_equal(task_feed(trace, 1, EVENT_TASK_NAMED, 0, NULL, 1, UINT32_MAX), 0);
	put(trace, 1, 0x1000);
}

/* More tasks than are kept: those of which no block is left make room. */
static void come_and_go(void **state)
{
	struct trace *trace = *state;
	const uint32_t count = 5 * OWNERS_FEW;

	for (uint32_t i = 1; i <= count; i++) {
		assert_int_equal(task_feed(trace, 1, EVENT_TASK_NUMBERED, i, NULL, 0, 0), 0);
		put(trace, 1, 0x1000ull + 64 * i);
		if (i > 2 && i < count)
			assert_int_equal(feed_free(trace, 0x1000ull + 64 * i), 0);
	}
	char expected[256];

	snprintf(expected, sizeof(expected),
		 "pid,task,size,count\r\n1000,Task-1,10,1\r\n1000,Task-2,10,1\r\n"
		 "1000,Task-%u,10,1\r\n",
		 count);
	check(trace, &by_task, expected);
}

/* A forked child's inherited blocks are its parent's tasks', and its own are those of its tasks. */
static void are_inherited(void **state)
{
	struct trace *trace = *state;
	struct event_alloc event = {.header = header_of(EVENT_ALLOC, sizeof(event)),
				    .address = 0x3000,
				    .bytes = 10,
				    .api = EVENT_API_OBJ};

	name_feed(trace, TGID, "old");
	put(trace, TGID, 0x1000);
	put(trace, TGID, 0x2000);
	assert_int_equal(
		feed_process_of(trace, PY, 1001, TGID, EVENT_MODE_EXACT | EVENT_MODE_TASKS), 0);
	event.header.tgid = event.header.tid = 1001;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
	check(trace, &by_task,
	      "pid,task,size,count\r\n1000,old,20,2\r\n1001,old,20,2\r\n1001,,10,1\r\n");
}

/* Of a process that does not tell its tasks, and of its children, each block is <not told>. */
static void are_not_reported(void **state)
{
	const uint32_t mode = EVENT_MODE_EXACT | EVENT_MODE_TASKS | EVENT_MODE_TASKS_UNREPORTED;
	struct trace *trace = *state;

	name_feed(trace, TGID, "old");
	put(trace, TGID, 0x1000);
	for (uint32_t tgid = 1001; tgid < 1003; tgid++) {
		struct event_alloc event = {.header = header_of(EVENT_ALLOC, sizeof(event)),
					    .address = 0x3000 + tgid,
					    .bytes = 7,
					    .api = EVENT_API_OBJ};

		event.header.tgid = event.header.tid = tgid;
		assert_int_equal(feed_process_of(trace, PY, tgid, tgid == 1001 ? 0 : 1001, mode),
				 0);
		assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
	}
	check(trace, &by_task,
	      "pid,task,size,count\r\n1002,<not told>,14,2\r\n1000,old,10,1\r\n"
	      "1001,<not told>,7,1\r\n");
}

/* Where one of several processes was traced without tasks, they are not known. */
static void are_known_of_all_or_none(void **state)
{
	struct trace *trace = *state;
	struct snapshot *snapshot;

	assert_int_equal(feed_process_of(trace, PY, 1001, 0, EVENT_MODE_EXACT), 0);
	assert_int_equal(trace_snapshot_all(trace, 0, &snapshot), 0);
	assert_int_equal(report_csv(snapshot, &by_task, stdout), -EINVAL);
	snapshot_free(snapshot);
}

static void value_feed(struct trace *trace, uint64_t address, struct event_task event)
{
	event.header = (struct event_header)header_of(EVENT_TASK, sizeof(event));
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
	put(trace, TGID, address);
}

/* Of variables: numbers of all sizes and forms. */
static void are_values(void **state)
{
	static const char expected[] = "pid,task,size,count\r\n"
				       "1000,#00000000000000ff,10,1\r\n"
				       "1000,-1,10,1\r\n"
				       "1000,-170141183460469231731687303715884105728,10,1\r\n"
				       "1000,-9223372036854775808,10,1\r\n"
				       "1000,-ff,10,1\r\n"
				       "1000,00000000-0000-0001-0000-000000000002,10,1\r\n"
				       "1000,00000000000000010000000000000002,10,1\r\n"
				       "1000,0007,10,1\r\n"
				       "1000,340282366920938463463374607431768211455,10,1\r\n"
				       "1000,Ellipsis,10,1\r\n";
	const uint64_t one = 1, half = 1ull << 63, most = UINT64_MAX;
	struct event_task wide = {.how = EVENT_TASK_WIDE, .number = 2, .kind = 32};
	struct trace *trace = *state;

	value_feed(trace, 0x1000, (struct event_task){.how = EVENT_TASK_INT, .number = most});
	value_feed(trace, 0x2000, (struct event_task){.how = EVENT_TASK_INT, .number = half});
	value_feed(trace, 0x3000,
		   (struct event_task){.how = EVENT_TASK_INT, .number = 7, .kind = 4});
	value_feed(trace, 0x4000,
		   (struct event_task){.how = EVENT_TASK_INT, .number = -255ull, .kind = 1});
	value_feed(trace, 0x5000, (struct event_task){.how = EVENT_TASK_BOOL, .number = 3});
	value_feed(trace, 0x6000, (struct event_task){.how = EVENT_TASK_HASHED, .number = 255});
	memcpy(wide.name, &one, sizeof(one));
	value_feed(trace, 0x7000, wide);
	wide.how = EVENT_TASK_UUID;
	value_feed(trace, 0x8000, wide);
	wide = (struct event_task){.how = EVENT_TASK_WIDE, .number = most};
	memcpy(wide.name, &most, sizeof(most));
	value_feed(trace, 0x9000, wide);
	wide = (struct event_task){.how = EVENT_TASK_WIDE, .bytes = 1};
	memcpy(wide.name, &half, sizeof(half));
	value_feed(trace, 0xa000, wide);
	check(trace, &by_task, expected);
}

/* A record has only as much of a name as there is. */
static void are_as_long_as_their_names(void **state)
{
	static const struct {
		struct event_task event;
		uint32_t name_bytes;
		int err;
	} cases[] = {
		{{.how = EVENT_TASK_INT, .number = 7}, 0, 0},
		{{.how = EVENT_TASK_NAMED, .kind = 1, .bytes = 3, .name = "abc"}, 8, 0},
		{{.how = EVENT_TASK_NAMED, .kind = 1, .bytes = 9, .name = "abcdefghi"},
		 8,
		 -EBADMSG},
		{{.how = EVENT_TASK_RAW, .bytes = 1000, .name = "abc"}, 120, -EBADMSG},
		{{.how = EVENT_TASK_WIDE, .number = 5}, 8, 0},
		{{.how = EVENT_TASK_UUID, .number = 5}, 0, -EBADMSG},
	};
	struct trace *trace = *state;
	struct event_task event;
	uint32_t size;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		event = cases[i].event;
		size = EVENT_TASK_MIN + cases[i].name_bytes;
		event.header = (struct event_header)header_of(EVENT_TASK, size);
		assert_int_equal(trace_feed(trace, &event, size), cases[i].err);
		if (!cases[i].err)
			put(trace, TGID, 0x1000 * (i + 1));
	}
	check(trace, &by_task,
	      "pid,task,size,count\r\n1000,5,10,1\r\n1000,7,10,1\r\n"
	      "1000,abc,10,1\r\n");
	/* Not even a header's worth of it. */
	event.header = (struct event_header)header_of(EVENT_TASK, EVENT_TASK_MIN - 8);
	assert_int_equal(trace_feed(trace, &event, EVENT_TASK_MIN - 8), -EBADMSG);
}

/* As many digits as a capture may ask for. */
static void have_bounded_digits(void **state)
{
	struct trace *trace = *state;
	struct snapshot *snapshot;

	value_feed(trace, 0x1000,
		   (struct event_task){.how = EVENT_TASK_INT, .number = 1, .kind = 65535});
	assert_int_equal(trace_snapshot_all(trace, 0, &snapshot), 0);
	snapshot_free(snapshot);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, trace_set, trace_end)
	const struct CMUnitTest tests[] = {
		TEST(own_blocks),
		TEST(may_be_values),
		TEST(take_and_keep),
		TEST(have_any_name),
		TEST(bad_records_are_refused),
		TEST(come_and_go),
		TEST(are_inherited),
		TEST(are_not_reported),
		TEST(are_known_of_all_or_none),
		TEST(are_values),
		TEST(have_bounded_digits),
		TEST(are_as_long_as_their_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
