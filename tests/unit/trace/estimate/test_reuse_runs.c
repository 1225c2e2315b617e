/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A minute of a program whose blocks cannot be told apart: one line makes and drops blocks, another
 * keeps blocks of the same size and content, and the allocator gives the address of a dropped block
 * to the next one at once. What windows and looks show of it is fed as records. Does the report
 * know which line keeps the blocks? All random numbers come from seeds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "census_records.h"
#include "sanitized.h"
#include "snapshot/estimate/calibrate.h"
#include "trace/state.h"

#define KIND       77u
#define POOL_BYTES 16384u
#define IN_POOL    300u
#define POOLS      64u
#define BLOCKS_MAX (POOLS * IN_POOL)
#define STEP_NS    10000000ull
#define SECONDS    60u
#define STEPS      (SECONDS * 100u)
#define PERIOD     100u /* steps from one window to the next, on average */
#define WINDOW     4u
#define LOOKS      25u
#define WALKS      500u
#define DROPS      4u /* blocks a step that the first line makes */
#define KEPT_BYTES (BLOCK - 2)
#define DROP_BYTES (BLOCK - 1)

struct program {
	struct trace *trace;
	uint64_t seed, now_ns;
	uint32_t life; /* of dropped blocks, in steps */
	double keeps;  /* blocks a step */
	int reported;  /* contents differ from block to block */
	int in_window;
	uint32_t used; /* addresses in use so far */
	uint32_t free[BLOCKS_MAX], free_count;
	uint32_t prints[BLOCKS_MAX]; /* 0: free */
	uint32_t dropped[STEPS][DROPS];
	uint32_t kept, next;
};

struct figures {
	double estimate, error, truth;
};

static double random_unit(uint64_t *seed)
{
	return (double)(hash_u64(++*seed * 0x9e3779b97f4a7c15ull) >> 11) * 0x1p-53;
}

static uint64_t pool_address(uint32_t pool)
{
	return 0x7f0000000000ull + (uint64_t)pool * POOL_BYTES + EVENT_POOL_HEADER_BYTES;
}

static uint64_t block_address(uint32_t block)
{
	return pool_address(block / IN_POOL) + (uint64_t)(block % IN_POOL) * BLOCK;
}

static void allocation_feed(struct program *program, uint32_t block, uint64_t bytes)
{
	struct event_alloc event = {.header = header_of(EVENT_ALLOC, sizeof(event)),
				    .address = block_address(block),
				    .bytes = bytes,
				    .stack_id = bytes, /* a line of its own */
				    .api = EVENT_API_OBJ};

	event.header.time_ns = program->now_ns;
	assert_int_equal(trace_feed(program->trace, &event, sizeof(event)), 0);
}

static uint32_t allocate(struct program *program, uint64_t bytes)
{
	uint32_t block =
		program->free_count ? program->free[--program->free_count] : program->used++;

	assert_true(block < BLOCKS_MAX);
	program->prints[block] = program->reported ? ++program->next : 1;
	if (program->in_window)
		allocation_feed(program, block, bytes);
	return block;
}

static void step(struct program *program, uint32_t number)
{
	const uint32_t *old =
		number >= program->life ? program->dropped[number - program->life] : NULL;

	for (uint32_t i = 0; old && i < DROPS; i++) {
		program->prints[old[i]] = 0;
		program->free[program->free_count++] = old[i];
	}
	for (uint32_t i = 0; i < DROPS; i++) {
		program->dropped[number][i] = allocate(program, DROP_BYTES);
		if (random_unit(&program->seed) < program->keeps / DROPS) {
			allocate(program, KEPT_BYTES);
			program->kept++;
		}
	}
}

/* A look at a pool, or what a walk shows of it. */
static void pool_look(struct program *program, uint32_t pool, uint64_t id)
{
	struct {
		struct event_census_kinds event;
		struct event_census_kind kinds[IN_POOL];
	} look = {.event = {.header = header_of(EVENT_CENSUS_KINDS, sizeof(look)),
			    .id = id,
			    .address = pool_address(pool),
			    .block_bytes = BLOCK,
			    .count = IN_POOL}};

	look.event.header.time_ns = program->now_ns;
	for (uint32_t i = 0; i < IN_POOL; i++)
		if (program->prints[pool * IN_POOL + i])
			look.event.kinds[i] = (struct event_census_kind){
				KIND, program->prints[pool * IN_POOL + i]};
	assert_int_equal(trace_feed(program->trace, &look, sizeof(look)), 0);
}

static void look_all(struct program *program, int fresh)
{
	uint64_t *pools;
	size_t count;

	assert_int_equal(trace_sighted_pools(program->trace, 0, fresh, &pools, &count), 0);
	for (size_t i = 0; i < count; i++)
		pool_look(program, (uint32_t)((pools[i] - 0x7f0000000000ull) / POOL_BYTES), 0);
	free(pools);
}

static void heap_walk(struct program *program, uint64_t id, int first)
{
	struct event_census begin = {.header = header_of(EVENT_CENSUS, sizeof(begin)), .id = id};
	struct event_census end = {.header = header_of(EVENT_CENSUS_DONE, sizeof(end)),
				   .id = id,
				   .baseline = (uint32_t)first};

	begin.header.time_ns = end.header.time_ns = program->now_ns;
	assert_int_equal(trace_feed(program->trace, &begin, sizeof(begin)), 0);
	for (uint32_t pool = 0; pool * IN_POOL < program->used; pool++) {
		struct pool_event event = pool_of(id, pool_address(pool), BLOCK, IN_POOL);

		event.event.header.time_ns = program->now_ns;
		for (uint32_t i = 0; i < IN_POOL; i++)
			if (program->prints[pool * IN_POOL + i])
				event.bits[i / 64] |= 1ull << i % 64;
		assert_int_equal(pool_feed(program->trace, &event), 0);
		pool_look(program, pool, id);
	}
	assert_int_equal(trace_feed(program->trace, &end, sizeof(end)), 0);
}

static void window_turn(struct program *program, uint64_t start_ns, uint64_t end_ns)
{
	window(program->trace, start_ns, end_ns);
	program->in_window = !end_ns;
}

static struct figures judge(struct program *program)
{
	float deviations[CALIBRATE_DEVIATIONS] = {0};
	struct figures figures = {.truth = program->kept};
	struct snapshot *snapshot;

	assert_int_equal(trace_snapshot(program->trace, 0, 0, &snapshot), 0);
	for (size_t i = 0; i < snapshot->trace_count; i++) {
		const struct snapshot_trace *trace = &snapshot->traces[i];

		if (trace->bytes != KEPT_BYTES)
			continue;
		figures.estimate += (double)trace->count;
		for (uint32_t j = 0; trace->estimate && j < CALIBRATE_DEVIATIONS; j++)
			deviations[j] += snapshot->estimates[trace->estimate - 1].deviations[j];
	}
	figures.error = sqrt(calibrate_variance(deviations));
	snapshot_free(snapshot);
	return figures;
}

static struct figures run(struct program *program)
{
	struct event_target target = {.header = header_of(EVENT_PROCESS, sizeof(target)),
				      .python_version = 0x030d00f0,
				      .nframe = 16,
				      .mode = EVENT_MODE_WINDOWS | EVENT_MODE_LARGE,
				      .name = "python3"};
	uint32_t open = 10 + (uint32_t)(random_unit(&program->seed) * PERIOD);
	uint64_t opened_ns = 0;
	struct figures figures;

	assert_int_equal(trace_new(&program->trace, NULL), 0);
	assert_int_equal(trace_feed(program->trace, &target, sizeof(target)), 0);
	program->now_ns = STEP_NS;
	heap_walk(program, 1, 1);
	for (uint32_t i = 0; i < STEPS; i++) {
		program->now_ns = (i + 1) * STEP_NS;
		if (i == open) {
			opened_ns = program->now_ns;
			window_turn(program, opened_ns, 0);
		}
		step(program, i);
		if (program->in_window && i >= open + 1) {
			/* The thread goes on to allocate: the last block is complete. */
			put_by(program->trace, TGID, 0x7e0000000000ull, 600, EVENT_API_LARGE);
			look_all(program, 1);
		}
		if (program->in_window && i == open + WINDOW - 1) {
			program->now_ns += STEP_NS / 2;
			window_turn(program, opened_ns, program->now_ns);
			open += PERIOD / 2 + (uint32_t)(random_unit(&program->seed) * PERIOD);
		} else if (!program->in_window && i % LOOKS == 0) {
			look_all(program, 0);
		}
		if (!program->in_window && i % WALKS == WALKS - 1)
			heap_walk(program, i, 0);
	}
	if (program->in_window)
		window_turn(program, opened_ns, program->now_ns);
	program->now_ns += STEP_NS;
	heap_walk(program, STEPS + 1, 0);
	figures = judge(program);
	trace_free(program->trace);
	return figures;
}

/* How many of the runs have an interval that contains the truth; the mean of estimate / truth. */
static double runs(uint32_t life, double keeps, int reported, double *ratio)
{
	struct program *program = calloc(1, sizeof(*program));
	double right = 0;
	uint32_t count = SANITIZED ? 5 : 40;

	assert_non_null(program);
	*ratio = 0;
	for (uint32_t i = 0; i < count; i++) {
		*program = (struct program){
			.seed = 1000 * i + 1, .life = life, .keeps = keeps, .reported = reported};
		struct figures figures = run(program);

		right += fabs(figures.estimate - figures.truth) <= 1.96 * figures.error + 1;
		*ratio += figures.estimate / figures.truth / count;
	}
	free(program);
	print_message("blocks that live %u ms, %.1f kept a step: %.0f %% of intervals right, "
		      "estimates %.2f of the truth\n",
		      life * 10, keeps, 100 * right / count, *ratio);
	return right / count;
}

/* Contents tell blocks apart: the same program, without the question. */
static void test_reported(void **state)
{
	double ratio;
	(void)state;

	assert_true(runs(30, 1, 1, &ratio) >= 0.9);
	assert_true(fabs(ratio - 1) < 0.05);
}

static void test_same(void **state)
{
	static const uint32_t lives[] = {2, 10, 30, 100};
	(void)state;

	for (size_t i = 0; i < sizeof(lives) / sizeof(lives[0]); i++) {
		double ratio, right = runs(lives[i], 1, 0, &ratio);

		assert_true(right >= 0.9);
		assert_true(fabs(ratio - 1) < 0.1);
	}
}

/* Of few blocks that are kept among many. */
static void test_same_few(void **state)
{
	double ratio;
	(void)state;

	assert_true(runs(10, 0.2, 0, &ratio) >= 0.9);
	assert_true(fabs(ratio - 1) < 0.15);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reported),
		cmocka_unit_test(test_same),
		cmocka_unit_test(test_same_few),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
