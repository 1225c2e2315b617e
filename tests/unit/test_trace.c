/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <unistd.h>

#include "ranges.h"
#include "records.h"
#include "snapshot/snapshot.h"

#define PY38 0x030800f0u

static int setup(void **state)
{
	struct trace *trace;

	if (trace_new(&trace, NULL) || feed_process(trace, PY38))
		return -1;
	*state = trace;
	return 0;
}

static int teardown(void **state)
{
	trace_free(*state);
	return 0;
}

static const struct trace_process *process_of(struct trace *trace)
{
	return trace_process_at(trace, 0);
}

static const char *filename_at(struct trace *trace, uint32_t traceback, uint32_t frame)
{
	struct trace_traceback shown = trace_traceback_at(trace, 0, traceback);

	return strings_get(trace_strings(trace, 0), shown.frames[frame].filename);
}

static uint32_t traceback_of(struct trace *trace, uint64_t address)
{
	const struct block *block =
		blocks_find(trace_blocks(trace, 0, EVENT_LAYER_PYTHON), address, 0);

	assert_non_null(block);
	return block->traceback;
}

static void test_alloc_free(void **state)
{
	struct trace *trace = *state;
	const struct trace_process *process = process_of(trace);

	assert_int_equal(feed_alloc(trace, 16, 100, 0), 0);
	assert_int_equal(feed_alloc(trace, 32, 50, 0), 0);
	assert_int_equal(process->tables[0].live_bytes, 150);
	assert_int_equal(feed_free(trace, 16), 0);
	assert_int_equal(feed_free(trace, 16), 0);
	assert_int_equal(process->tables[0].live_bytes, 50);
	assert_int_equal(process->tables[0].live_blocks, 1);
	assert_int_equal(process->tables[0].peak_bytes, 150);
	assert_int_equal(process->tables[0].frees, 2);
	assert_int_equal(process->tables[0].frees_unknown, 1);
}

/*
 * A table that has all the memory that it may have keeps what it holds, and counts what it does
 * not.
 */
static void test_budget(void **state)
{
	enum { FED = 200000, BUDGET = 2 << 20, AGAIN = 2000 };
	struct trace *trace;
	const struct trace_process *process;
	struct snapshot *snapshot;
	uint64_t kept, again;
	(void)state;

	assert_int_equal(trace_new(&trace, NULL), 0);
	trace_budget(trace, BUDGET);
	assert_int_equal(feed_process(trace, PY38), 0);
	process = process_of(trace);
	for (uint64_t i = 1; i <= FED; i++)
		assert_int_equal(feed_alloc(trace, 16 * i, 10, 0), 0);
	kept = process->tables[0].live_blocks;
	assert_uint_in_range(kept, BUDGET / 100, FED - 1);
	assert_int_equal(process->counters.blocks_dropped, FED - kept);
	assert_int_equal(process->counters.bytes_dropped, 10 * (FED - kept));
	assert_uint_in_range(trace_memory(trace), BUDGET / 2, 2 * BUDGET);
	/*
	 * One that is there, and the places of those that have died (each has its part of the
	 * table).
	 */
	assert_int_equal(feed_alloc(trace, 16, 30, 0), 0);
	assert_int_equal(process->tables[0].live_bytes, 10 * kept + 20);
	for (uint64_t i = 1; i <= AGAIN; i++)
		assert_int_equal(feed_free(trace, 16 * i), 0);
	assert_int_equal(process->tables[0].live_blocks, kept - AGAIN);
	for (uint64_t i = 1; i <= AGAIN; i++)
		assert_int_equal(feed_alloc(trace, 16 * (FED + i), 10, 0), 0);
	again = process->tables[0].live_blocks - (kept - AGAIN);
	assert_uint_in_range(again, AGAIN / 2, AGAIN);
	assert_int_equal(process->counters.blocks_dropped, FED - kept + AGAIN - again);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_int_equal(snapshot->meta.blocks_dropped, process->counters.blocks_dropped);
	snapshot_free(snapshot);
	trace_free(trace);
}

static void test_replaced(void **state)
{
	struct trace *trace = *state;

	assert_int_equal(feed_alloc(trace, 16, 100, 0), 0);
	assert_int_equal(feed_alloc(trace, 16, 7, 0), 0);
	assert_int_equal(process_of(trace)->tables[0].replaced, 1);
	assert_int_equal(process_of(trace)->tables[0].live_bytes, 7);
	assert_int_equal(process_of(trace)->tables[0].live_blocks, 1);
}

static void test_realloc_done(void **state)
{
	struct trace *trace = *state;
	const struct trace_process *process = process_of(trace);

	assert_int_equal(feed_alloc(trace, 16, 100, 0), 0);
	assert_int_equal(feed_take(trace, EVENT_REALLOC, 1, 16), 0);
	assert_int_equal(process->tables[0].live_bytes, 0);
	/* Another thread is given the old address before the realloc returns: no phantom. */
	assert_int_equal(feed_put(trace, EVENT_ALLOC, 2, 16, 30, 0), 0);
	assert_int_equal(process->tables[0].replaced, 0);
	assert_int_equal(feed_put(trace, EVENT_REALLOC_DONE, 1, 64, 200, 0), 0);
	assert_int_equal(process->tables[0].live_bytes, 230);
	assert_int_equal(process->tables[0].reallocs, 1);
	assert_int_equal(process->tables[0].frees_unknown, 0);
	/* Of a block older than the trace. */
	assert_int_equal(feed_take(trace, EVENT_REALLOC, 1, 999), 0);
	assert_int_equal(feed_put(trace, EVENT_REALLOC_DONE, 1, 128, 1, 0), 0);
	assert_int_equal(process->tables[0].frees_unknown, 1);
	assert_int_equal(process->tables[0].live_bytes, 231);
}

static void test_realloc_fail(void **state)
{
	struct trace *trace = *state;
	const struct trace_process *process = process_of(trace);

	assert_int_equal(feed_alloc(trace, 16, 100, 0), 0);
	assert_int_equal(feed_alloc(trace, 32, 50, 0), 0);
	assert_int_equal(feed_take(trace, EVENT_REALLOC, 1, 16), 0);
	assert_int_equal(feed_take(trace, EVENT_REALLOC, 2, 32), 0);
	assert_int_equal(feed_take(trace, EVENT_REALLOC_FAIL, 1, 16), 0);
	assert_int_equal(process->tables[0].live_bytes, 100);
	/* nothing is under way any more */
	assert_int_equal(feed_take(trace, EVENT_REALLOC_FAIL, 1, 16), 0);
	assert_int_equal(process->tables[0].live_bytes, 100);
	/* An older one that never ended is dropped. */
	assert_int_equal(feed_take(trace, EVENT_REALLOC, 2, 16), 0);
	assert_int_equal(feed_take(trace, EVENT_REALLOC_FAIL, 2, 16), 0);
	/* The address lives already: the newer block stays. */
	assert_int_equal(feed_take(trace, EVENT_REALLOC, 2, 16), 0);
	assert_int_equal(feed_alloc(trace, 16, 5, 0), 0);
	assert_int_equal(feed_take(trace, EVENT_REALLOC_FAIL, 2, 16), 0);
	assert_int_equal(process->tables[0].live_bytes, 5);
}

/* What pymalloc passes on to malloc: no bytes or more than 512, and that for good. */
static void test_large(void **state)
{
	struct trace *trace = *state;
	const struct trace_process *process = process_of(trace);

	assert_int_equal(feed_alloc(trace, 16, 512, 0), 0);
	assert_int_equal(process->large_blocks, 0);
	assert_int_equal(feed_alloc(trace, 1024, 513, 0), 0);
	assert_int_equal(feed_alloc(trace, 2048, 0, 0), 0);
	assert_int_equal(process->large_blocks, 2);
	assert_int_equal(feed_take(trace, EVENT_REALLOC, 1, 1024), 0);
	assert_int_equal(process->large_blocks, 1);
	assert_int_equal(feed_put(trace, EVENT_REALLOC_DONE, 1, 1024, 10, 0), 0);
	assert_int_equal(process->large_blocks, 2);
	assert_int_equal(feed_free(trace, 1024), 0);
	assert_int_equal(feed_free(trace, 2048), 0);
	assert_int_equal(feed_free(trace, 16), 0);
	assert_int_equal(process->large_blocks, 0);
}

/*
 * The debugging hooks ask for 24 bytes more than the program: what is large for pymalloc is less so
 * for that.
 */
static void test_hooked(void **state)
{
	struct trace *trace = *state;
	const struct trace_process *process = process_of(trace);
	struct event_alloc event = {.header = header_of(EVENT_ALLOC, sizeof(event)),
				    .address = 0x1010,
				    .bytes = 488,
				    .api = EVENT_API_OBJ | EVENT_API_HOOKED};

	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
	assert_int_equal(process->large_blocks, 0);
	event.address = 0x2010;
	event.bytes = 489;
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
	assert_int_equal(process->large_blocks, 1);
	event.address = 0x3010;
	event.bytes = 0; /* a block all the same */
	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
	assert_int_equal(process->large_blocks, 1);
	assert_int_equal(process->tables[0].live_bytes, 488 + 489);
	assert_int_equal(process->tables[0].live_blocks, 3);
}

/*
 * A size that is only known as rounded is counted as long as its block lives, and its trace is
 * another one.
 */
static void test_rounded(void **state)
{
	struct trace *trace = *state;
	const struct trace_process *process = process_of(trace);
	struct event_alloc event = {.header = header_of(EVENT_ALLOC, sizeof(event)),
				    .address = 16,
				    .bytes = 48,
				    .api = EVENT_API_OBJ | EVENT_API_ROUNDED};
	struct snapshot *snapshot;

	assert_int_equal(trace_feed(trace, &event, sizeof(event)), 0);
	assert_int_equal(feed_alloc(trace, 32, 40, 0), 0);
	assert_int_equal(process->rounded_blocks, 1);
	assert_int_equal(feed_alloc(trace, 96, 48, 0), 0);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_int_equal(snapshot->meta.rounded_blocks, 1);
	assert_int_equal(snapshot->trace_count, 3);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(snapshot->traces[i].bytes, i ? 48 : 40);
		assert_int_equal(snapshot->traces[i].count, 1);
		assert_int_equal(snapshot->traces[i].flags, i == 2 ? SNAPSHOT_ROUNDED : 0);
	}
	snapshot_free(snapshot);
	assert_int_equal(feed_free(trace, 16), 0);
	assert_int_equal(process->rounded_blocks, 0);
}

/*
 * A dead object that lives again: its block, at one of three distances before it, changes its owner
 * only.
 */
static void test_reuse(void **state)
{
	struct trace *trace = *state;

	assert_int_equal(feed_alloc(trace, 0x1000, 64, 1), 0);
	assert_int_equal(feed_alloc(trace, 0x2000, 16, 1), 0);
	assert_int_equal(feed_put(trace, EVENT_REUSE, TGID, 0x1010, 0, 2), 0);
	/* beyond the block's end */
	assert_int_equal(feed_put(trace, EVENT_REUSE, TGID, 0x2010, 0, 2), 0);
	assert_int_equal(feed_put(trace, EVENT_REUSE, TGID, 8, 0, 2), 0);
	assert_int_not_equal(traceback_of(trace, 0x1000), traceback_of(trace, 0x2000));
	assert_int_equal(process_of(trace)->counters.reuses, 1);
	assert_int_equal(process_of(trace)->tables[0].live_bytes, 80);
	assert_int_equal(process_of(trace)->tables[0].live_blocks, 2);
}

/*
 * A pool that had blocks of another size before: what is left of these in the table is not what
 * lives again.
 */
static void test_reuse_in_pool(void **state)
{
	const uint64_t pool = 0x7f0000001000, first = pool + 48;
	struct trace *trace = *state;
	uint32_t old;

	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(feed_alloc(trace, first + i * 64, 60, 1), 0);
	for (uint32_t i = 0; i < 5; i++)
		assert_int_equal(feed_alloc(trace, first + i * 48, 40, 1), 0);
	/* It shrinks in its place: the pool stays what it is. */
	assert_int_equal(feed_take(trace, EVENT_REALLOC, TGID, first), 0);
	assert_int_equal(feed_put(trace, EVENT_REALLOC_DONE, TGID, first, 30, 1), 0);
	old = traceback_of(trace, first);
	assert_int_equal(feed_put(trace, EVENT_REUSE, TGID, first + 64, 0, 2), 0);
	assert_int_equal(traceback_of(trace, first + 64), old);
	assert_int_not_equal(traceback_of(trace, first + 48), old);
	assert_int_equal(trace_block_containing(trace, 0, EVENT_LAYER_PYTHON, first + 72)->address,
			 first + 48);
	/* No pool has blocks that large, whoever says so. */
	assert_int_equal(feed_alloc(trace, first, 1ull << 32, 1), 0);
	assert_non_null(trace_block_containing(trace, 0, EVENT_LAYER_PYTHON, first + 72));
}

static void test_hostile_sizes(void **state)
{
	struct trace *trace = *state;
	const struct trace_process *process = process_of(trace);

	assert_int_equal(feed_alloc(trace, 16, UINT64_MAX, 0), -EBADMSG);
	assert_int_equal(feed_alloc(trace, 0, 8, 0), -EBADMSG);
	assert_int_equal(feed_alloc(trace, 16, (1ull << 59) - 1, 0), 0);
	assert_int_equal(feed_alloc(trace, 32, 1, 0), -EBADMSG);
	assert_int_equal(process->counters.records_malformed, 3);
	assert_int_equal(process->tables[0].live_bytes, (1ull << 59) - 1);
	assert_int_equal(feed_free(trace, 16), 0);
	assert_int_equal(process->tables[0].live_bytes, 0);
}

/* Whatever the order in which stack, code and lines come, a block ends with the same traceback. */
static void test_late_descriptions(void **state)
{
	static const uint8_t lnotab[] = {0, 1, 2, 1};
	struct trace *trace = *state;
	const struct trace_process *process = process_of(trace);
	uint32_t traceback;

	assert_int_equal(feed_alloc(trace, 16, 1, 77), 0);
	assert_int_equal(feed_alloc(trace, 32, 1, 77), 0);
	assert_int_equal(process->counters.stacks_unknown, 2);
	traceback = traceback_of(trace, 16);
	assert_int_equal(traceback, traceback_of(trace, 32));
	assert_int_not_equal(traceback, 0);
	assert_string_equal(filename_at(trace, traceback, 0), "<unknown>");
	assert_int_equal(feed_stack(trace, 77, 5, 2), 0);
	assert_int_equal(process->counters.stacks_unknown, 0);
	assert_int_equal(trace_traceback_at(trace, 0, traceback).nframe, 2);
	assert_string_equal(filename_at(trace, traceback, 0), "<unknown>");
	assert_int_equal(feed_lines(trace, 5, 0, lnotab, 2), 0);
	assert_int_equal(feed_code(trace, 5, "a.py", "f", 10, 0, sizeof(lnotab)), 0);
	assert_string_equal(filename_at(trace, traceback, 0), "a.py");
	assert_string_equal(filename_at(trace, traceback, 1), "<unknown>");
	/* Half of a line table is no line table. */
	assert_int_equal(trace_traceback_at(trace, 0, traceback).frames[0].line, 0);
	assert_int_equal(feed_lines(trace, 5, 3, lnotab + 3, 1), 0); /* beyond a gap: dropped */
	assert_int_equal(trace_traceback_at(trace, 0, traceback).frames[0].line, 0);
	assert_int_equal(feed_lines(trace, 5, 2, lnotab + 2, 2), 0);
	assert_int_equal(trace_traceback_at(trace, 0, traceback).frames[0].line, 11);
	/* Sent again. */
	assert_int_equal(feed_stack(trace, 77, 5, 2), 0);
	assert_int_equal(feed_code(trace, 5, "a.py", "f", 10, 0, sizeof(lnotab)), 0);
	assert_int_equal(feed_lines(trace, 5, 0, lnotab, sizeof(lnotab)), 0);
	assert_int_equal(trace_traceback_at(trace, 0, traceback).frames[0].line, 11);
	assert_int_equal(process->counters.records_malformed, 0);
}

/* The line table of a version that is not known is not read as another version's. */
static void test_lines_of_unknown_version(void **state)
{
	static const uint8_t lines[] = {0, 1, 2, 1};
	static const uint32_t versions[] = {PY38, 0x03630000};
	static const uint32_t expected[] = {11, 0};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct trace *trace;

		assert_int_equal(trace_new(&trace, NULL), 0);
		assert_int_equal(feed_process(trace, versions[i]), 0);
		assert_int_equal(feed_alloc(trace, 16, 1, 77), 0);
		assert_int_equal(feed_stack(trace, 77, 5, 2), 0);
		assert_int_equal(feed_lines(trace, 5, 0, lines, sizeof(lines)), 0);
		assert_int_equal(feed_code(trace, 5, "a.py", "f", 10, 0, sizeof(lines)), 0);
		assert_int_equal(
			trace_traceback_at(trace, 0, traceback_of(trace, 16)).frames[0].line,
			expected[i]);
		trace_free(trace);
	}
}

static void code_text_check(struct trace *trace, uint64_t id, struct text text,
			    const char *expected)
{
	struct text none = {"", 0, 1};

	assert_int_equal(feed_code_text(trace, id, text, none, 1, 0, 0), 0);
	assert_int_equal(feed_stack(trace, id, id, 1), 0);
	assert_int_equal(feed_alloc(trace, id * 16, 1, id), 0);
	assert_string_equal(filename_at(trace, traceback_of(trace, id * 16), 0), expected);
}

static void test_text(void **state)
{
	static const uint16_t ucs2[] = {'a', 0x20ac, 0xd83d};
	static const uint32_t ucs4[] = {0x1f40d, 0, 0x110000};
	struct trace *trace = *state;
	struct text none = {"", 0, 1};

	code_text_check(trace, 1, (struct text){"caf\xe9", 4, 1}, "caf\xc3\xa9");
	code_text_check(trace, 2, (struct text){ucs2, sizeof(ucs2), 2},
			"a\xe2\x82\xac\xed\xa0\xbd");
	code_text_check(trace, 3, (struct text){ucs4, sizeof(ucs4), 4},
			"\xf0\x9f\x90\x8d\xef\xbf\xbd\xef\xbf\xbd");
	assert_int_equal(feed_code_text(trace, 4, (struct text){"abc", 3, 2}, none, 1, 0, 0),
			 -EBADMSG);
	assert_int_equal(feed_code_text(trace, 4, (struct text){"abc", 3, 3}, none, 1, 0, 0),
			 -EBADMSG);
}

static void code_fill(void *context, uint32_t tgid, uint64_t code_id, uint64_t address,
		      uint32_t missing)
{
	struct trace *trace = *(struct trace **)context;

	assert_int_equal(tgid, TGID);
	assert_int_equal(address, code_id * 0x1000);
	assert_int_equal(missing, EVENT_MISS_FILENAME);
	assert_int_equal(feed_code(trace, code_id, "read.py", "g", 3, 0, 0), 0);
}

static void test_missing(void **state)
{
	struct trace *trace;
	struct trace_hooks hooks = {.code_missing = code_fill, .context = &trace};
	(void)state;

	assert_int_equal(trace_new(&trace, &hooks), 0);
	assert_int_equal(feed_process(trace, PY38), 0);
	assert_int_equal(feed_code(trace, 9, "", "f", 3, EVENT_MISS_FILENAME, 0), 0);
	assert_int_equal(feed_stack(trace, 1, 9, 1), 0);
	assert_int_equal(feed_alloc(trace, 16, 1, 1), 0);
	assert_string_equal(filename_at(trace, traceback_of(trace, 16), 0), "read.py");
	/* Sent again with a part missing: what is known stays. */
	assert_int_equal(feed_code(trace, 9, "", "f", 3, EVENT_MISS_FILENAME, 0), 0);
	assert_string_equal(filename_at(trace, traceback_of(trace, 16), 0), "read.py");
	trace_free(trace);
}

static void test_snapshot(void **state)
{
	struct trace *trace = *state;
	struct snapshot *snapshot;

	/*
	 * Two stacks through two code objects that look the same, an unknown one and the empty one.
	 */
	assert_int_equal(feed_code(trace, 1, "a.py", "f", 10, 0, 0), 0);
	assert_int_equal(feed_code(trace, 2, "a.py", "f", 10, 0, 0), 0);
	assert_int_equal(feed_stack(trace, 101, 1, 1), 0);
	assert_int_equal(feed_stack(trace, 102, 2, 1), 0);
	assert_int_equal(feed_stack(trace, 103, 50, 1), 0);
	assert_int_equal(feed_alloc(trace, 16, 8, 101), 0);
	assert_int_equal(feed_alloc(trace, 32, 8, 102), 0);
	assert_int_equal(feed_alloc(trace, 48, 9, 102), 0);
	assert_int_equal(feed_alloc(trace, 64, 1, 103), 0);
	assert_int_equal(feed_alloc(trace, 80, 1, 0), 0);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_int_equal(snapshot->traceback_count, 2);
	assert_int_equal(snapshot->trace_count, 3);
	assert_int_equal(snapshot->traces[0].count, 2); /* both <unknown> */
	assert_int_equal(snapshot->traces[1].bytes, 8);
	assert_int_equal(snapshot->traces[1].count, 2);
	assert_int_equal(snapshot->traces[2].bytes, 9);
	const struct snapshot_frame *frame =
		&snapshot->frames[snapshot->tracebacks[snapshot->traces[2].traceback].first];
	assert_string_equal(strings_get(snapshot->strings, frame->filename), "a.py");
	assert_int_equal(frame->line, 10);
	assert_int_equal(snapshot->meta.peak_bytes, 27);
	assert_string_equal(snapshot->meta.moment, "running");
	assert_string_equal(snapshot->meta.mode, "exact");
	assert_string_equal(snapshot->meta.name, "python3");
	snapshot_free(snapshot);
	assert_int_equal(trace_snapshot(trace, 1, 0, &snapshot), -ENOENT);
}

static void test_frames_unknown(void **state)
{
	struct trace *trace = *state;
	struct snapshot *snapshot;

	assert_int_equal(feed_stack(trace, 1, 50, 3), 0);
	assert_int_equal(feed_code(trace, 51, "a.py", "f", 1, 0, 0), 0);
	assert_int_equal(feed_alloc(trace, 16, 8, 1), 0);
	for (int i = 0; i < 2; i++) { /* taking one twice does not count twice */
		assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
		assert_int_equal(snapshot->meta.frames_unknown, 2);
		snapshot_free(snapshot);
	}
}

/*
 * One that goes on has been traced until losses were told last; one that has ended, until it did.
 */
/* Why a block stands at <unknown> is told of each that does, and of no other. */
static void test_unknown(void **state)
{
	static const uint64_t wanted[SNAPSHOT_UNKNOWNS] = {[UNKNOWN_NO_FRAME] = 2 + 1,
							   [UNKNOWN_NO_STACK] = 4,
							   [UNKNOWN_NO_CODE] = 8 + 16,
							   [UNKNOWN_NO_NAME] = 32,
							   [UNKNOWN_NO_FILE] = 128};
	struct trace *trace = *state;
	const uint64_t native = 0x1234;
	struct snapshot *snapshot;

	assert_int_equal(feed_stack(trace, 71, 0, 0), 0);
	assert_int_equal(feed_stack(trace, 73, 0, 1), 0); /* code 0: could not be read */
	assert_int_equal(feed_stack(trace, 74, 9, 1), 0);
	assert_int_equal(feed_stack(trace, 75, 10, 1), 0);
	assert_int_equal(feed_stack(trace, 76, 11, 2), 0);
	assert_int_equal(feed_native_stack(trace, 77, &native, 1, 0), 0);
	assert_int_equal(feed_code(trace, 10, "", "f", 3, EVENT_MISS_FILENAME, 0), 0);
	assert_int_equal(feed_code(trace, 11, "a.py", "f", 3, EVENT_MISS_LINES, 0), 0);
	assert_int_equal(feed_alloc(trace, 16, 1, 0), 0);
	assert_int_equal(feed_alloc(trace, 32, 2, 71), 0);
	for (uint64_t i = 0; i < 6; i++)
		assert_int_equal(feed_alloc(trace, 48 + 16 * i, 4u << i, 72 + i), 0);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	for (size_t i = 0; i < SNAPSHOT_UNKNOWNS; i++) {
		assert_int_equal(snapshot->meta.unknown[i].bytes, wanted[i]);
		assert_int_equal(snapshot->meta.unknown[i].blocks, __builtin_popcountll(wanted[i]));
	}
	for (size_t i = 0; i < snapshot->trace_count; i++) {
		const struct snapshot_traceback *traceback =
			&snapshot->tracebacks[snapshot->traces[i].traceback];
		const char *name =
			strings_get(snapshot->strings, snapshot->frames[traceback->first].filename);

		assert_int_equal(!strcmp(name, "<unknown>"), snapshot->traces[i].bytes != 64);
	}
	snapshot_free(snapshot);
}

static void test_duration(void **state)
{
	struct trace *trace = *state;
	struct event_loss loss = {.header = header_of(EVENT_LOSS, sizeof(loss))};
	struct snapshot *snapshot;

	loss.header.time_ns += 5000;
	assert_int_equal(trace_feed(trace, &loss, sizeof(loss)), 0);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_int_equal(snapshot->meta.duration_ns, 5000);
	snapshot_free(snapshot);
	assert_int_equal(feed_process_event(trace, EVENT_EXIT), 0);
	assert_int_equal(trace_snapshot(trace, 0, 1, &snapshot), 0);
	assert_int_equal(snapshot->meta.duration_ns, 0);
	snapshot_free(snapshot);
}

static void test_final_and_end(void **state)
{
	struct trace *trace = *state;
	struct event_loss loss = {.header = header_of(EVENT_LOSS, sizeof(loss))};
	struct snapshot *snapshot;

	assert_int_equal(feed_alloc(trace, 16, 8, 0), 0);
	assert_int_equal(feed_process_event(trace, EVENT_FINALIZE), 0);
	assert_int_equal(feed_free(trace, 16), 0);
	assert_int_equal(feed_process_event(trace, EVENT_EXIT), 0);
	loss.counts[LOSS_FREE] = 3;
	loss.counts[LOSS_ALLOC_BYTES] = 1000;
	assert_int_equal(trace_feed(trace, &loss, sizeof(loss)), 0);
	assert_int_equal(process_of(trace)->end, TRACE_EXITED);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(trace_snapshot(trace, 0, 1, &snapshot), 0);
		assert_string_equal(snapshot->meta.moment, "finalizing");
		assert_int_equal(snapshot->trace_count, 1);
		assert_int_equal(snapshot->traces[0].bytes, 8);
		assert_int_equal(snapshot_lost_events(snapshot), 3); /* told only after the end */
		snapshot_free(snapshot);
	}
	/* Of what has ended that alone is kept. */
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_string_equal(snapshot->meta.moment, "finalizing");
	assert_int_equal(snapshot->trace_count, 1);
	snapshot_free(snapshot);
	/* After the end: ignored, until a process of that id comes under trace again. */
	assert_int_equal(feed_alloc(trace, 16, 8, 0), 0);
	assert_int_equal(process_of(trace)->tables[0].live_blocks, 0);
	assert_int_equal(feed_process(trace, PY38), 0);
	assert_int_equal(trace_process_count(trace), 2);
	assert_int_equal(feed_alloc(trace, 16, 8, 0), 0);
	assert_int_equal(process_of(trace)->tables[0].live_blocks, 0);
	assert_int_equal(trace_process_at(trace, 1)->tables[0].live_blocks, 1);
}

static void test_stack_without_frames(void **state)
{
	struct trace *trace = *state;
	struct trace_traceback shown;

	assert_int_equal(feed_stack(trace, 1, 0, 0), 0);
	assert_int_equal(feed_alloc(trace, 16, 8, 1), 0);
	assert_int_equal(process_of(trace)->counters.stacks_unknown, 0);
	shown = trace_traceback_at(trace, 0, traceback_of(trace, 16));
	assert_int_equal(shown.nframe, 1);
	assert_int_equal(shown.total, 1);
	assert_string_equal(filename_at(trace, traceback_of(trace, 16), 0), "<unknown>");
}

static void test_malformed(void **state)
{
	struct trace *trace = *state;
	const struct trace_process *process = process_of(trace);
	struct event_alloc alloc = {
		.header = header_of(EVENT_ALLOC, sizeof(alloc)), .address = 16, .bytes = 1};
	union {
		struct event_stack stack;
		unsigned char room[64];
	} stack = {.stack = {.header = header_of(EVENT_STACK, 64), .stack_id = 1, .nframe = 2}};

	assert_int_equal(trace_feed(trace, &alloc, 16), -EBADMSG);
	assert_int_equal(trace_orphans(trace), 1);
	assert_int_equal(trace_feed(trace, &alloc, sizeof(alloc) - 8), -EBADMSG);
	alloc.header.size -= 8;
	assert_int_equal(trace_feed(trace, &alloc, sizeof(alloc) - 8), -EBADMSG);
	alloc.header = header_of(99, sizeof(alloc));
	assert_int_equal(trace_feed(trace, &alloc, sizeof(alloc)), -EBADMSG);
	assert_int_equal(trace_feed(trace, &stack, 64), -EBADMSG); /* room for one frame */
	stack.stack.nframe = EVENT_MAX_FRAMES + 1;
	assert_int_equal(trace_feed(trace, &stack, 64), -EBADMSG);
	assert_int_equal(feed_lines(trace, 1, 1u << 20, "x", 1), -EBADMSG);
	assert_int_equal(feed_code(trace, 1, "a", "b", 1, 0, (1u << 20) + 1), -EBADMSG);
	assert_int_equal(process->counters.records_malformed, 7);
	alloc.header = header_of(EVENT_ALLOC, sizeof(alloc));
	alloc.header.tgid = TGID + 1;
	assert_int_equal(trace_feed(trace, &alloc, sizeof(alloc)), -EBADMSG);
	assert_int_equal(trace_orphans(trace), 2);
	assert_int_equal(process->tables[0].live_blocks, 0);
}

static void test_reset_peak(void **state)
{
	struct trace *trace = *state;

	assert_int_equal(feed_alloc(trace, 16, 100, 0), 0);
	assert_int_equal(feed_alloc(trace, 32, 50, 0), 0);
	assert_int_equal(feed_free(trace, 16), 0);
	assert_int_equal(feed_mark(trace, EVENT_RESET_PEAK), 0);
	assert_int_equal(process_of(trace)->tables[0].live_bytes, 50);
	assert_int_equal(process_of(trace)->tables[0].peak_bytes, 50);
	assert_int_equal(feed_alloc(trace, 16, 7, 0), 0);
	assert_int_equal(process_of(trace)->tables[0].peak_bytes, 57);
}

/*
 * As CPython: a block that is forgotten may be freed, resized or used again; one that is new counts
 * as ever.
 */
static void test_clear(void **state)
{
	struct trace *trace = *state;
	const struct trace_process *process = process_of(trace);
	struct snapshot *snapshot;

	assert_int_equal(feed_put(trace, EVENT_ALLOC, TGID, 16, 100, 5), 0);
	assert_int_equal(feed_alloc(trace, 32, 5000, 0), 0);
	assert_int_equal(feed_alloc(trace, 48, 8, 0), 0);
	assert_int_equal(feed_free(trace, 64), 0);
	assert_int_equal(feed_take(trace, EVENT_REALLOC, 1, 48), 0);
	assert_int_equal(feed_take(trace, EVENT_REALLOC, 2, 16), 0);
	assert_int_equal(process->counters.stacks_unknown, 1);
	assert_int_equal(feed_mark(trace, EVENT_CLEAR), 0);
	assert_int_equal(process->tables[0].live_blocks, 0);
	assert_int_equal(process->tables[0].live_bytes, 0);
	assert_int_equal(process->large_blocks, 0);
	assert_int_equal(process->tables[0].peak_bytes, 0);
	assert_int_equal(process->tables[0].frees_unknown, 0);
	assert_int_equal(process->counters.stacks_unknown, 0);
	assert_int_equal(blocks_count(trace_blocks(trace, 0, EVENT_LAYER_PYTHON)), 0);
	assert_int_equal(feed_take(trace, EVENT_REALLOC_FAIL, 1, 48), 0);
	/* it was forgotten while it was set aside */
	assert_int_equal(process->tables[0].live_blocks, 0);
	assert_int_equal(feed_put(trace, EVENT_REALLOC_DONE, 2, 16, 300, 5), 0);
	assert_int_equal(feed_free(trace, 32), 0);
	assert_int_equal(process->tables[0].frees_unknown, 2);
	assert_int_equal(process->tables[0].live_bytes, 300);
	/* What a stack id means is sent only once, before or after. */
	assert_int_equal(feed_code(trace, 9, "/a.py", "f", 1, 0, 0), 0);
	assert_int_equal(feed_stack(trace, 5, 9, 1), 0);
	assert_string_equal(filename_at(trace, traceback_of(trace, 16), 0), "/a.py");
	assert_int_equal(process->counters.stacks_unknown, 0);
	assert_int_equal(feed_mark(trace, EVENT_CLEAR), 0);
	assert_int_equal(feed_alloc(trace, 80, 1, 5), 0);
	assert_string_equal(filename_at(trace, traceback_of(trace, 80), 0), "/a.py");
	/* The state kept for the end is forgotten, too. */
	assert_int_equal(feed_process_event(trace, EVENT_FINALIZE), 0);
	assert_int_equal(feed_mark(trace, EVENT_CLEAR), 0);
	assert_int_equal(trace_snapshot(trace, 0, 1, &snapshot), 0);
	assert_int_equal(snapshot->trace_count, 0);
	snapshot_free(snapshot);
}

static void test_meta(void **state)
{
	struct trace *trace = *state;
	struct snapshot_meta meta;
	struct snapshot *snapshot;

	assert_int_equal(feed_alloc(trace, 16, 100, 0), 0);
	assert_int_equal(feed_free(trace, 16), 0);
	assert_int_equal(trace_meta(trace, 1, &meta), -ENOENT);
	assert_int_equal(trace_meta(trace, 0, &meta), 0);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_memory_equal(&meta, &snapshot->meta, sizeof(meta));
	assert_int_equal(meta.peak_bytes, 100);
	assert_string_equal(meta.moment, "running");
	snapshot_free(snapshot);
}

static int feed_instruction(struct trace *trace, uint64_t stack_id, uint64_t code_id, int lasti)
{
	unsigned char data[sizeof(struct event_stack) + sizeof(struct event_frame)] = {0};
	struct event_stack *event = (void *)data;

	event->header = header_of(EVENT_STACK, sizeof(data));
	event->stack_id = stack_id;
	event->nframe = event->total = 1;
	event->frames[0].code_id = code_id;
	event->frames[0].lasti = lasti;
	return trace_feed(trace, event, sizeof(data));
}

/*
 * A block of each line of one code object, whose line table is as long as one may be. It takes
 * minutes where every frame reads the table from its start.
 */
static void test_long_lines(void **state)
{
	enum { BYTES = 1 << 20, LINES = 250000, LINES_APART = 2 };
	struct trace *trace = *state;
	struct snapshot *snapshot;
	uint8_t *lines = malloc(BYTES);

	alarm(60);
	for (size_t at = 0; at < BYTES; at += 2) {
		lines[at] = 2;
		lines[at + 1] = 1;
	}
	assert_int_equal(feed_code(trace, 1, "long.py", "f", 1, 0, BYTES), 0);
	assert_int_equal(feed_lines(trace, 1, 0, lines, BYTES), 0);
	for (int line = 1; line <= LINES; line++) {
		assert_int_equal(feed_instruction(trace, (uint64_t)line, 1, 2 * LINES_APART * line),
				 0);
		assert_int_equal(feed_alloc(trace, 16 * (uint64_t)line, 8, (uint64_t)line), 0);
	}
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_int_equal(snapshot->traceback_count, LINES);
	for (int line = 1; line <= LINES; line++)
		assert_int_equal(snapshot->frames[snapshot->tracebacks[line - 1].first].line,
				 1 + LINES_APART * line);
	alarm(0);
	snapshot_free(snapshot);
	free(lines);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_alloc_free),
		TEST(test_budget),
		TEST(test_alloc_free),
		TEST(test_replaced),
		TEST(test_realloc_done),
		TEST(test_realloc_fail),
		TEST(test_reuse),
		TEST(test_reuse_in_pool),
		TEST(test_large),
		TEST(test_hooked),
		TEST(test_rounded),
		TEST(test_hostile_sizes),
		TEST(test_late_descriptions),
		cmocka_unit_test(test_lines_of_unknown_version),
		TEST(test_text),
		cmocka_unit_test(test_missing),
		TEST(test_snapshot),
		TEST(test_frames_unknown),
		TEST(test_unknown),
		TEST(test_duration),
		TEST(test_final_and_end),
		TEST(test_stack_without_frames),
		TEST(test_malformed),
		TEST(test_reset_peak),
		TEST(test_clear),
		TEST(test_meta),
		TEST(test_long_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
