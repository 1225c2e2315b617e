/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is bounded: accounts, the containers that are charged to them, and what a trace does
 * when one is full.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/account.h"
#include "base/address_set.h"
#include "base/array.h"
#include "base/id_map.h"
#include "perfmap/table.h"
#include "ranges.h"
#include "records.h"
#include "sanitized.h"
#include "snapshot/builder.h"
#include "symbols/memo.h"
#include "trace/regions.h"

#define PY     0x030d00f0u
#define LIMIT  (1u << 20)
#define BUDGET (8u << 20)
#define MANY   (1u << 20) /* of anything: more than either has room for */

static void test_charge(void **state)
{
	struct account whole = {.limit = 100}, part = {.parent = &whole, .limit = 60},
		       other = {.parent = &whole};
	(void)state;

	assert_int_equal(account_charge(NULL, SIZE_MAX), 0);
	assert_int_equal(account_charge(&part, 61), -EDQUOT);
	assert_int_equal(account_charge(&part, SIZE_MAX), -EDQUOT);
	assert_int_equal(account_charge(&part, 60), 0);
	assert_int_equal(account_charge(&other, 41), -EDQUOT);
	assert_int_equal(other.used, 0);
	assert_int_equal(account_charge(&other, 40), 0);
	assert_int_equal(whole.used, 100);
	assert_int_equal(account_resize(&part, 60, 61), -EDQUOT);
	assert_int_equal(account_resize(&part, 60, 10), 0);
	assert_int_equal(whole.used, 50);
	account_clear(&other);
	assert_int_equal(whole.used, 10);
	account_uncharge(&part, 10);
	assert_int_equal(whole.used, 0);
}

/* Whoever comes first takes most, and never all. */
static void test_share(void **state)
{
	struct account whole = {.limit = 1000}, first = {.parent = &whole, .share = 4},
		       second = {.parent = &whole, .share = 4};
	(void)state;

	while (!account_charge(&first, 1))
		;
	assert_uint_in_range(first.used, 795, 805);
	while (!account_charge(&second, 1))
		;
	assert_uint_in_range(second.used, 150, 170);
	assert_true(whole.used < 1000);
	/* What one gives back the other may have. */
	account_clear(&first);
	while (!account_charge(&second, 1))
		;
	assert_uint_in_range(second.used, 795, 805);
}

/* What is kept for the small the others do not get; the small may have all that is left. */
static void test_reserve(void **state)
{
	struct account whole = {.limit = 1000, .reserve = 200},
		       large = {.parent = &whole, .share = 4, .floor = 10}, small = large;
	(void)state;

	while (!account_charge(&large, 1))
		;
	assert_uint_in_range(large.used, 635, 645); /* 4/5 of 800 */
	assert_int_equal(account_charge(&small, 11), 0);
	account_clear(&small);
	whole.reserve = 1000;
	assert_int_equal(account_charge(&small, 11), -EDQUOT);
	assert_int_equal(account_charge(&small, 10), 0);
	assert_int_equal(account_charge(&small, 1), -EDQUOT);
	assert_int_equal(account_left(&whole), 1000 - large.used - 10);
	whole.limit = 5;
	assert_int_equal(account_left(&whole), 0);
}

static int filled_array(struct account *account)
{
	uint64_t *items = NULL;
	size_t room = 0, count = 0;
	int err;

	while (!(err = array_reserve_in(account, &items, &room, count, 1, sizeof(*items))))
		count++;
	assert_true(room * sizeof(*items) <= LIMIT);
	array_release(account, &items, &room, sizeof(*items));
	return err;
}

static int filled_map(struct account *account)
{
	struct id_map map = {.account = account}, copy = {.account = account};
	int err = 0;

	for (uint64_t i = 0; i < MANY && !err; i++)
		err = id_map_put(&map, i, (uint32_t)i);
	for (uint64_t i = 0; i < MANY; i += 2)
		id_map_remove(&map, i);
	for (uint64_t i = 0; i < 1000; i++)
		assert_int_equal(id_map_find(&map, i), i % 2 ? i : ID_MAP_NONE);
	if (!id_map_copy(&copy, &map))
		assert_int_equal(id_map_find(&copy, 1), 1);
	id_map_free(&copy);
	id_map_free(&map);
	return err;
}

static int filled_strings(struct account *account)
{
	struct strings *strings, *copy;
	char text[16];
	uint32_t id;
	int err = strings_new_in(&strings, account);

	assert_int_equal(err, 0);
	for (unsigned int i = 0; i < MANY && !err; i++)
		err = strings_intern(strings, text,
				     (size_t)snprintf(text, sizeof(text), "text %u", i), &id);
	assert_int_equal(strings_find(strings, "text 0", &id), 1);
	assert_int_equal(strings_copy(&copy, strings, NULL), 0);
	assert_string_equal(strings_get(copy, id), "text 0");
	strings_free(copy);
	if (!strings_copy(&copy, strings, account))
		strings_free(copy);
	strings_free(strings);
	return err;
}

static int filled_set(struct account *account)
{
	struct address_set set = {.account = account}, copy = {.account = account};
	int err = 0;

	for (uint64_t i = 1; i < MANY && !err; i++)
		err = address_set_add(&set, i << 20);
	assert_true(address_set_has(&set, 1 << 20));
	assert_int_not_equal(address_set_copy(&copy, &set), 0);
	address_set_free(&copy);
	address_set_free(&set);
	return err;
}

static int filled_regions(struct account *account)
{
	struct regions regions = {.account = account};
	int err = 0;

	for (uint64_t i = 1; i < MANY && !err; i++)
		err = regions_set(&regions,
				  &(struct region){.start = i << 13, .end = (i << 13) + 4096});
	assert_non_null(regions_find(&regions, 1 << 13));
	regions_free(&regions);
	return err;
}

static int filled_blocks(struct account *account)
{
	struct blocks *blocks, *copy;
	struct block old;
	int err = blocks_new(&blocks, account);

	for (uint64_t i = 1; i < MANY && err >= 0; i++)
		err = blocks_put(blocks, &(struct block){.address = 16 * i, .bytes = 1}, &old);
	assert_non_null(blocks_find(blocks, 16, 0));
	if (!blocks_copy(&copy, blocks, account))
		blocks_free(copy);
	blocks_free(blocks);
	return err;
}

static int filled_builder(struct account *account)
{
	struct builder builder;
	struct snapshot *snapshot;
	int err = builder_begin_in(&builder, account);

	for (uint32_t i = 0; i < MANY && !err; i++) {
		struct snapshot_trace trace = {.bytes = 1, .count = 1};

		err = builder_traceback(&builder, &(struct snapshot_frame){.line = i}, 1, 1,
					&trace.traceback);
		if (!err)
			err = builder_trace(&builder, &trace);
	}
	snapshot = builder_finish(&builder);
	assert_true(snapshot->trace_count > 1000);
	snapshot_free(snapshot);
	return err;
}

static int filled_perfmap(struct account *account)
{
	const struct perfmap_entry entry = {0};
	struct perfmap_table *table;
	char name[16];
	int err = perfmap_table_new_in(&table, account);

	for (uint64_t i = 1; i < MANY && !err; i++)
		err = perfmap_table_add(
			table, i * 16, 16, name,
			(size_t)snprintf(name, sizeof(name), "f%u", (unsigned int)i), &entry);
	assert_non_null(perfmap_table_find(table, 16));
	perfmap_table_clear(table);
	assert_true(account->used < LIMIT / 8);
	perfmap_table_free(table);
	return err;
}

static int filled_memo(struct account *account)
{
	const struct symbols_frame frame = {.function = "f", .filename = "f.c"};
	struct memo memo = {.account = account};
	int err = 0;

	for (uint64_t i = 1; i < MANY && !err; i++)
		err = memo_add(&memo, 1, i, &frame, 1);
	memo_free(&memo);
	return err;
}

/* Each takes what it may and no more, keeps what it has, and gives it all back. */
static void test_containers(void **state)
{
	static int (*const fill[])(struct account *) = {
		filled_array,  filled_map,     filled_strings, filled_set,  filled_regions,
		filled_blocks, filled_builder, filled_perfmap, filled_memo,
	};
	(void)state;

	for (size_t i = 0; i < sizeof(fill) / sizeof(fill[0]); i++) {
		struct account account = {.limit = LIMIT};

		assert_int_equal(fill[i](&account), -EDQUOT);
		assert_int_equal(account.used, 0);
	}
}

static int try_begin(struct trace *trace, uint32_t tgid, uint32_t parent, uint32_t mode)
{
	struct event_target event = {.header = header_of(EVENT_PROCESS, sizeof(event)),
				     .python_version = PY,
				     .nframe = 16,
				     .mode = mode,
				     .parent = parent,
				     .name = "python3"};

	event.header.tgid = event.header.tid = tgid;
	return trace_feed(trace, &event, sizeof(event));
}

static void begin(struct trace *trace, uint32_t tgid, uint32_t parent, uint32_t mode)
{
	assert_int_equal(try_begin(trace, tgid, parent, mode), 0);
}

static void end(struct trace *trace, uint32_t tgid)
{
	struct event_process event = {.header = header_of(EVENT_EXIT, sizeof(event))};

	event.header.tgid = tgid;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

static void put(struct trace *trace, uint32_t tgid, uint64_t number, uint64_t stack_id)
{
	struct event_alloc event = {.header = header_of(EVENT_ALLOC, sizeof(event)),
				    .address = 16 * number,
				    .bytes = 10 + number % 5000,
				    .stack_id = stack_id,
				    .api = EVENT_API_OBJ};

	event.header.tgid = tgid;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
}

static void flood_blocks(struct trace *trace)
{
	for (uint32_t i = 1; i < MANY; i++)
		put(trace, TGID, i, 0);
}

static void flood_stacks(struct trace *trace)
{
	for (uint32_t i = 1; i < MANY / 4; i++) {
		put(trace, TGID, 1, i);
		assert_int_equal(feed_stack(trace, i, i, 3), 0);
	}
}

static void flood_names(struct trace *trace)
{
	char name[64];

	for (uint32_t i = 1; i < MANY / 4; i++) {
		snprintf(name, sizeof(name), "a_function_with_a_name_that_is_its_own_%u", i);
		assert_int_equal(feed_code(trace, i, name, name + 1, 1, 0, 0), 0);
	}
}

static void flood_lines(struct trace *trace)
{
	static const char piece[2048];

	for (uint32_t i = 1; i < 400; i++) {
		assert_int_equal(feed_code(trace, i, "f.py", "f", 1, 0, 100 * sizeof(piece)), 0);
		for (uint32_t at = 0; at < 100 * sizeof(piece); at += sizeof(piece))
			assert_int_equal(feed_lines(trace, i, at, piece, sizeof(piece)), 0);
	}
}

static void flood_symbols(struct trace *trace)
{
	char name[32];

	for (uint32_t i = 1; i < MANY / 4; i++) {
		const char *text = name;

		snprintf(name, sizeof(name), "native_%u", i);
		assert_int_equal(feed_symbol(trace, i, &text, 1, "a.c"), 0);
	}
}

static void flood_regions(struct trace *trace)
{
	for (uint64_t i = 1; i < MANY / 2; i++) {
		struct event_map event = {.header = header_of(EVENT_MAP, sizeof(event)),
					  .address = i << 13,
					  .bytes = 4096,
					  .protection = 1};

		assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
	}
}

static void flood_threads(struct trace *trace)
{
	for (uint32_t i = 1; i < MANY / 4; i++)
		assert_int_equal(feed_put(trace, EVENT_ALLOC, i, 16, 10, 0), 0);
}

/* A heap that claims to hold the same full pool for ever. */
static void flood_reading(struct trace *trace)
{
	struct event_census census = {.header = header_of(EVENT_CENSUS, sizeof(census)), .id = 2};
	struct {
		struct event_census_pool event;
		uint64_t bits[EVENT_POOL_BLOCKS / 64];
	} pool = {.event = {.id = 2, .block_bytes = 16, .count = 1000}};

	assert_int_equal(trace_feed(trace, &census, sizeof(census)), 0);
	pool.event.header = header_of(EVENT_CENSUS_POOL, sizeof(pool.event) + (1000 + 63) / 64 * 8);
	memset(pool.event.live, 0xff, 1000 / 8);
	for (uint32_t i = 1; i < 4000; i++) {
		pool.event.address = (uint64_t)i << 14;
		assert_int_equal(trace_feed(trace, &pool, pool.event.header.size), 0);
	}
}

static const struct flood {
	const char *what;
	void (*run)(struct trace *trace);
	size_t counter; /* in struct trace_counters; 0: nothing is counted */
} floods[] = {
	{"blocks", flood_blocks, offsetof(struct trace_counters, blocks_dropped)},
	{"stacks", flood_stacks, offsetof(struct trace_counters, stacks_dropped)},
	{"names", flood_names, offsetof(struct trace_counters, codes_dropped)},
	{"lines", flood_lines, offsetof(struct trace_counters, codes_dropped)},
	{"symbols", flood_symbols, offsetof(struct trace_counters, symbols_dropped)},
	{"regions", flood_regions, offsetof(struct trace_counters, regions_dropped)},
	{"reading", flood_reading, offsetof(struct trace_counters, readings_dropped)},
	{"threads", flood_threads, 0},
};

static struct trace *trace_begin(uint64_t budget)
{
	struct trace *trace;

	assert_int_equal(trace_new(&trace, NULL), 0);
	trace_budget(trace, budget);
	begin(trace, TGID, 0, EVENT_MODE_CENSUS);
	return trace;
}

static uint64_t counter_of(const struct trace *trace, const struct flood *flood)
{
	uint64_t count;

	memcpy(&count, (const char *)&trace_process_at(trace, 0)->counters + flood->counter,
	       sizeof(count));
	return count;
}

/*
 * The trace stays within its budget, says what it did not keep, and goes on; a process that ends
 * leaves nothing.
 */
static void test_floods(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(floods) / sizeof(floods[0]); i++) {
		struct trace *trace = trace_begin(BUDGET);
		uint64_t before;
		struct snapshot *snapshot;

		before = trace_memory(trace);
		floods[i].run(trace);
		assert_uint_in_range(trace_memory(trace), before, BUDGET);
		if (floods[i].counter)
			assert_true(counter_of(trace, &floods[i]) > 0);
		assert_int_equal(trace_process_at(trace, 0)->counters.records_malformed, 0);
		assert_int_equal(trace_snapshot_all(trace, 0, &snapshot), 0);
		if (floods[i].run == flood_stacks) /* one block at a time */
			assert_int_equal(snapshot->meta.unknown[UNKNOWN_NO_ROOM].blocks, 1);
		assert_int_equal(snapshot->meta.unknown[UNKNOWN_NO_STACK].blocks, 0);
		snapshot_free(snapshot);
		assert_true(trace_memory(trace) <= BUDGET);
		/* Another process is traced beside it. */
		begin(trace, 2000, 0, EVENT_MODE_EXACT);
		for (uint64_t block = 1; block <= 1000; block++)
			put(trace, 2000, block, block);
		assert_int_equal(trace_process_at(trace, 1)->tables[0].live_blocks, 1000);
		assert_int_equal(trace_process_at(trace, 1)->counters.stacks_dropped, 0);
		assert_int_equal(feed_mark(trace, EVENT_DISCARD), 0);
		assert_true(trace_memory(trace) < BUDGET / 8);
		trace_free(trace);
	}
}

/* What the kernel says of it, of a process that does nothing else. */
static long peak_kilobytes(void (*run)(struct trace *trace), uint64_t budget)
{
	struct rusage usage;
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		struct trace *trace = trace_begin(budget);
		struct snapshot *snapshot;

		run(trace);
		_exit(trace_snapshot_all(trace, 1, &snapshot) != 0);
	}
	assert_int_equal(wait4(pid, &status, 0, &usage), pid);
	assert_int_equal(status, 0);
	return usage.ru_maxrss;
}

static void flood_nothing(struct trace *trace)
{
	(void)trace;
}

/* What is charged is what is held. */
static void test_peak(void **state)
{
	long nothing = peak_kilobytes(flood_nothing, BUDGET);
	(void)state;

	if (SANITIZED) {
		print_message("skipped: the sanitizer keeps what was freed\n");
		skip();
	}
	for (size_t i = 0; i < sizeof(floods) / sizeof(floods[0]); i++) {
		long peak = peak_kilobytes(floods[i].run, BUDGET) - nothing;

		if (peak > 3 * (long)BUDGET / 2 / 1024)
			fail_msg("%s: %ld KiB with a budget of %u", floods[i].what, peak,
				 BUDGET >> 10);
	}
}

/*
 * Children begin with a copy of the table as long as there is room for one, then without, then they
 * are not traced.
 */
static void test_forks(void **state)
{
	enum { BLOCKS = 10000, CHILDREN = 1000 };
	struct trace *trace = trace_begin(BUDGET);
	const struct trace_process *process;
	size_t inherited = 0, begun = 0, index;
	(void)state;

	for (uint64_t i = 1; i <= BLOCKS; i++)
		put(trace, TGID, i, i % 100);
	for (uint32_t i = 1; i <= CHILDREN; i++) {
		if (try_begin(trace, TGID + i, TGID, EVENT_MODE_CENSUS))
			continue;
		begun++;
		assert_int_equal(trace_process_find(trace, TGID + i, &index), 0);
		process = trace_process_at(trace, index);
		inherited += !process->not_inherited;
		assert_int_equal(process->counters.blocks_dropped,
				 process->not_inherited ? BLOCKS : 0);
	}
	assert_true(trace_memory(trace) <= BUDGET);
	assert_uint_in_range(inherited, 2, 50);
	assert_uint_in_range(begun, inherited + 1, CHILDREN - 1);
	assert_int_equal(trace_dropped(trace).processes, CHILDREN - begun);
	assert_int_equal(trace_process_at(trace, 1)->tables[0].live_blocks, BLOCKS);
	/* What one tells that is not traced is nobody's, and malformed is nothing. */
	put(trace, TGID + CHILDREN, 1, 0);
	assert_int_equal(trace_orphans(trace), 0);
	for (uint32_t i = 1; i <= begun; i++)
		end(trace, TGID + i);
	begin(trace, 1, TGID, EVENT_MODE_CENSUS);
	assert_true(trace_memory(trace) <= BUDGET);
	trace_free(trace);
}

/* Those that have ended make room, the smallest first; what they held is told. */
static void test_ended_make_room(void **state)
{
	enum { BLOCKS = 3000, PROCESSES = 400 };
	struct trace *trace = trace_begin(BUDGET);
	struct trace_dropped dropped;
	size_t index;
	(void)state;

	for (uint32_t p = 1; p <= PROCESSES; p++) {
		begin(trace, TGID + p, 0, EVENT_MODE_EXACT);
		for (uint64_t i = 1; i <= BLOCKS + p; i++)
			put(trace, TGID + p, i, 0);
		end(trace, TGID + p);
		assert_true(trace_memory(trace) <= BUDGET);
	}
	dropped = trace_dropped(trace);
	assert_uint_in_range(dropped.processes, 1, PROCESSES - 2);
	assert_true(dropped.bytes > 10 * dropped.blocks);
	assert_int_equal(trace_process_find(trace, TGID + 1, &index), -ENOENT);
	assert_int_equal(trace_process_find(trace, TGID + PROCESSES, &index), 0);
	trace_free(trace);
}

enum { SMALL_BLOCKS = 100, SMALL_STACKS = 20, SMALL_PROCESSES = 500, SMALL_BUDGET = 64 << 20 };

/* A small program from its beginning to its end. */
static void small_run(struct trace *trace, uint32_t tgid)
{
	begin(trace, tgid, 0, EVENT_MODE_EXACT);
	for (uint64_t i = 1; i <= SMALL_BLOCKS; i++)
		put(trace, tgid, i, i % SMALL_STACKS);
	end(trace, tgid);
}

/*
 * Large ones that end, and one that runs and takes all it can get, do not push out the small ones.
 */
static void test_small_ended(void **state)
{
	struct trace *trace = trace_begin(SMALL_BUDGET);
	const struct trace_process *process;
	struct snapshot *snapshot;
	uint32_t larger = 10 * TGID;
	size_t index;
	(void)state;

	for (uint32_t p = 1; p <= SMALL_PROCESSES; p++) {
		for (uint64_t i = 1; i <= 6000; i++)
			put(trace, TGID, p * 6000 + i, 0);
		small_run(trace, TGID + p);
		if (p % 2)
			continue;
		begin(trace, ++larger, 0, EVENT_MODE_EXACT);
		for (uint64_t i = 1; i <= 5000; i++)
			put(trace, larger, i, 0);
		end(trace, larger);
	}
	assert_true(trace_process_at(trace, 0)->counters.blocks_dropped > 0);
	assert_uint_in_range(trace_dropped(trace).processes, 1, larger - 10 * TGID);
	assert_true(trace_memory(trace) <= SMALL_BUDGET);
	for (uint32_t p = 1; p <= SMALL_PROCESSES; p++) {
		assert_int_equal(trace_process_find(trace, TGID + p, &index), 0);
		process = trace_process_at(trace, index);
		assert_int_equal(
			process->counters.blocks_dropped + process->counters.stacks_dropped, 0);
		assert_int_equal(trace_snapshot(trace, index, 1, &snapshot), 0);
		assert_int_equal(snapshot->trace_count, SMALL_BLOCKS);
		snapshot_free(snapshot);
	}
	trace_free(trace);
}

static size_t held(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

/*
 * What is charged for processes that have ended is what they hold: 100 traces of 32 bytes, and what
 * is known of each.
 */
static void test_ended_memory(void **state)
{
	struct trace *trace = trace_begin(SMALL_BUDGET);
	size_t before = held(), charged = trace_memory(trace);
	(void)state;

	for (uint32_t p = 1; p <= SMALL_PROCESSES; p++)
		small_run(trace, TGID + p);
	charged = trace_memory(trace) - charged;
	assert_uint_in_range(charged / SMALL_PROCESSES, 4096, 8192);
	if (!SANITIZED)
		assert_uint_in_range(held() - before, charged / 5 * 4, charged / 5 * 6);
	trace_free(trace);
}

/*
 * Of those that are gone nothing is left, however many there were; the last ones may still have
 * something to say.
 */
static void test_gone(void **state)
{
	enum { FEW = 5000, MOST = 100000 };
	struct trace *trace = trace_begin(SMALL_BUDGET);
	size_t after_few = 0;
	(void)state;

	for (uint32_t p = 1; p <= MOST; p++) {
		struct event_mark discard = {.header = header_of(EVENT_DISCARD, sizeof(discard))};

		discard.header.tgid = TGID + p;
		begin(trace, TGID + p, 0, EVENT_MODE_EXACT);
		assert_int_equal(trace_feed(trace, &discard, sizeof(discard)), 0);
		put(trace, TGID + p, 1, 0);
		put(trace, TGID + 1, 1, 0); /* this one goes on */
		if (p == FEW)
			after_few = trace_memory(trace);
	}
	assert_int_equal(trace_memory(trace), after_few);
	assert_int_equal(trace_orphans(trace), 0);
	trace_free(trace);
}

/* A snapshot too large for what is left holds what fits, and the rest is counted in it. */
static void test_snapshot_left(void **state)
{
	enum { SMALL = 1 << 20 };
	struct trace *trace = trace_begin(SMALL);
	struct snapshot *snapshot;
	uint64_t kept = 0, live;
	(void)state;

	for (uint32_t i = 1; i < MANY / 16; i++) {
		put(trace, TGID, i, i);
		assert_int_equal(feed_stack(trace, i, i, 1), 0);
	}
	for (uint32_t i = 1; i < MANY / 16; i++) {
		char name[32];

		snprintf(name, sizeof(name), "function %u", i);
		assert_int_equal(feed_code(trace, i, "f.py", name, i, EVENT_MISS_LINES, 0), 0);
	}
	live = trace_process_at(trace, 0)->tables[0].live_blocks;
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	for (size_t i = 0; i < snapshot->trace_count; i++)
		kept += snapshot->traces[i].count;
	assert_true(kept > 0);
	assert_int_equal(kept + snapshot->meta.blocks_dropped,
			 live + trace_process_at(trace, 0)->counters.blocks_dropped);
	snapshot_free(snapshot);
	trace_free(trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_charge),        cmocka_unit_test(test_share),
		cmocka_unit_test(test_reserve),       cmocka_unit_test(test_containers),
		cmocka_unit_test(test_floods),        cmocka_unit_test(test_peak),
		cmocka_unit_test(test_forks),         cmocka_unit_test(test_ended_make_room),
		cmocka_unit_test(test_snapshot_left), cmocka_unit_test(test_small_ended),
		cmocka_unit_test(test_ended_memory),  cmocka_unit_test(test_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
