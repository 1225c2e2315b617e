/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows of the native layer: one line makes blocks and drops them at once, another one keeps
 * blocks of the same size, and malloc gives it the addresses of those. Walks cannot tell them
 * apart.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "census_records.h"

#define HEAP    0x55550000010ull
#define DROPPED 100u /* bytes, and the stack */
#define KEPT    101u
#define UNITS   7u /* of the chunks of both */
#define MS      1000000ull
#define LENGTH  (20 * MS) /* of a window, in each second */
#define WINDOWS 40u
#define DROPS   5u  /* blocks in each millisecond of a window that are dropped */
#define DARK    98u /* blocks between two windows that are kept */

struct program {
	struct trace *trace;
	uint64_t now_ns;
	unsigned int used; /* addresses */
};

static int setup(void **state)
{
	return setup_mode(state, EVENT_MODE_WINDOWS | EVENT_MODE_LARGE | EVENT_MODE_NATIVE);
}

static uint64_t address_of(unsigned int i)
{
	return HEAP + i * 0x100ull;
}

static void allocate(const struct program *program, unsigned int i, uint32_t bytes)
{
	struct event_alloc event = {.header = header_of(EVENT_ALLOC, sizeof(event)),
				    .address = address_of(i),
				    .bytes = bytes,
				    .stack_id = bytes,
				    .api = EVENT_API_NATIVE};

	event.header.time_ns = program->now_ns;
	assert_int_equal(trace_feed(program->trace, &event, sizeof(event)), 0);
}

static void release(const struct program *program, unsigned int i)
{
	struct event_free event = {.header = header_of(EVENT_FREE, sizeof(event)),
				   .address = address_of(i),
				   .api = EVENT_API_NATIVE};

	event.header.time_ns = program->now_ns;
	assert_int_equal(trace_feed(program->trace, &event, sizeof(event)), 0);
}

/* All addresses used so far are allocated. */
static void heap_walk(const struct program *program)
{
	struct {
		struct event_census_chunks event;
		struct event_chunk chunks[EVENT_CHUNKS_MAX];
	} record;

	for (unsigned int from = 0; from < program->used; from += record.event.count) {
		unsigned int left = program->used - from;

		record.event = (struct event_census_chunks){
			.flags = (from ? 0 : EVENT_CHUNKS_FIRST),
			.count = left < EVENT_CHUNKS_MAX ? left : EVENT_CHUNKS_MAX};
		if (from + record.event.count == program->used)
			record.event.flags |= EVENT_CHUNKS_LAST;
		record.event.header = header_of(
			EVENT_CENSUS_CHUNKS,
			sizeof(record.event) + record.event.count * sizeof(record.chunks[0]));
		record.event.header.time_ns = program->now_ns;
		for (unsigned int i = 0; i < record.event.count; i++)
			record.chunks[i] = (struct event_chunk){address_of(from + i), UNITS, 0};
		assert_int_equal(trace_feed(program->trace, &record, record.event.header.size), 0);
	}
}

/*
 * Of the dropped blocks the last one is alive when the window ends. When it has been freed, its
 * address is given to a block that stays.
 */
static void window_run(struct program *program)
{
	uint64_t start_ns = program->now_ns;
	unsigned int slot = program->used++;

	window(program->trace, start_ns, 0);
	for (unsigned int i = 0; i < LENGTH / MS * DROPS; i++) {
		program->now_ns += MS / DROPS / 2;
		allocate(program, slot, DROPPED);
		program->now_ns += MS / DROPS / 2;
		release(program, slot);
		if (i % (LENGTH / MS * DROPS / 2) == 1)
			allocate(program, program->used++, KEPT);
	}
	allocate(program, slot, DROPPED);
	window(program->trace, start_ns, program->now_ns);
}

static void shares_of(struct trace *trace, double *dropped, double *kept)
{
	struct snapshot *snapshot;

	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	*dropped = *kept = 0;
	for (size_t i = 0; i < snapshot->trace_count; i++)
		*(snapshot->traces[i].bytes == DROPPED ? dropped : kept) +=
			(double)snapshot->traces[i].count;
	snapshot_free(snapshot);
}

static void test_dropped(void **state)
{
	struct program program = {.trace = *state, .now_ns = S};
	double dropped, kept;

	program.used = 1;
	heap_walk(&program);
	for (unsigned int i = 0; i < WINDOWS; i++) {
		program.now_ns = (i + 2) * S;
		window_run(&program);
		program.used += DARK;
		program.now_ns += S / 4;
		heap_walk(&program);
		program.now_ns += S / 4;
		heap_walk(&program);
	}
	shares_of(program.trace, &dropped, &kept);
	print_message("%.0f blocks at the line that drops them, %.0f at the other one\n", dropped,
		      kept);
	assert_true(dropped < 0.02 * kept);
	assert_true(kept > 0.97 * (program.used - 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_dropped, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
