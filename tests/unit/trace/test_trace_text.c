/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks, code objects and lines: descriptions that arrive late, are missing or unknown. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <unistd.h>

#include "records.h"
#include "snapshot/snapshot.h"
#include "trace/process/process_tables.h"
#include "traces.h"

/* A block ends with the same traceback, in whatever order stack, code and lines arrive. */
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
	/* An incomplete line table is not used. */
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

/* The line table of an unknown version is not decoded as another version's. */
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

/* As many bytes as a record can have, of which each becomes three. */
static void test_text_of_nuls(void **state)
{
	static const char nuls[TRACE_TEXT_MAX];
	static char expected[3 * sizeof(nuls) + 1];

	for (size_t i = 0; i < sizeof(nuls); i++)
		memcpy(expected + 3 * i, "\xef\xbf\xbd", 3);
	code_text_check(*state, 1, (struct text){nuls, sizeof(nuls), 1}, expected);
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
	/* Sent again with a part missing: known parts are kept. */
	assert_int_equal(feed_code(trace, 9, "", "f", 3, EVENT_MISS_FILENAME, 0), 0);
	assert_string_equal(filename_at(trace, traceback_of(trace, 16), 0), "read.py");
	trace_free(trace);
}

static void test_frames_unknown(void **state)
{
	struct trace *trace = *state;
	struct snapshot *snapshot;

	assert_int_equal(feed_stack(trace, 1, 50, 3), 0);
	assert_int_equal(feed_code(trace, 51, "a.py", "f", 1, 0, 0), 0);
	assert_int_equal(feed_alloc(trace, 16, 8, 1), 0);
	for (int i = 0; i < 2; i++) { /* a second snapshot does not count twice */
		assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
		assert_int_equal(snapshot->meta.frames_unknown, 2);
		snapshot_free(snapshot);
	}
}

/* The reason of <unknown> is reported for each block charged to it, and for no other. */
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
 * One block for each line of a code object with the longest line table allowed. It takes minutes if
 * every frame reads the table from its start.
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
		TEST(test_late_descriptions),
		cmocka_unit_test(test_lines_of_unknown_version),
		TEST(test_text),
		TEST(test_text_of_nuls),
		cmocka_unit_test(test_missing),
		TEST(test_frames_unknown),
		TEST(test_unknown),
		TEST(test_long_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
