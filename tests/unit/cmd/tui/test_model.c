/* SPDX-License-Identifier: Apache-2.0 */
/* The live view without a terminal: answers of a session in, rows out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "watch_world.h"

static void assert_header(struct world *world, const char *expected)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	watch_header(&world->view, &world->model, world->model.now.time_ns, out);
	fclose(out);
	if (!strstr(text, expected))
		fail_msg("%s is not in:\n%s", expected, text);
	free(text);
}

static void rows_are_groups_by_size(void **state)
{
	struct world *world = *state;

	assert_row(world, 8, 0, "a.py:1 300 5 0 300");
	assert_row(world, 8, 1, "b\\x1b.py:2 50 4 0 50");
	assert_row(world, 1, 0, "a.py:1 300 5 0 300");
	assert_header(world, "by line, sorted by size, 2 rows of 350 B\n");
	assert_int_equal(press(world, '2'), WATCH_DRAW);
	assert_row(world, 8, 0, "a.py in f 300 5 0 300");
	press(world, '4');
	assert_row(world, 8, 1, "b\\x1b.py:2 in g and 1 caller 50 4 0 50");
	press(world, '5');
	assert_row(world, 8, 0, "web (PID 10, container c1) 350 9 0 350");
	press(world, '6');
	assert_row(world, 8, 0, "c1 350 9 0 350");
}

/* An answer of a Python whose collector has collected so often. */
static void collected(struct world *world, unsigned int second, uint64_t done, uint32_t flags)
{
	struct sums_process *process;

	sums_put(&world->data, second * SECOND, 10, (double[STACKS]){0, 1, 0, 0},
		 (double[STACKS]){0});
	process = (void *)(world->data.data + sizeof(struct sums_header));
	process->python_version = 0x030d0000;
	if (done)
		process->collections = (struct collections){
			.time_ns = second * SECOND,
			.flags = flags,
			.collectors = 1,
			.count = {1, 2, 3},
			.threshold = {700, 10, 11},
			.sums = {{done, 20, 1}, {10 * done, 0, 5}, {0}, {done * 10000000, 0, 0}},
		};
	assert_int_equal(watch_model_sums(&world->model, world->data.data, world->data.size), 0);
}

static void collectors_are_told(void **state)
{
	struct world *world = *state;

	collected(world, 2, 0, 0);
	assert_header(world, "\ngc: its state was not found\nby line");
	collected(world, 3, 1000, 0);
	assert_header(world, "\ngc on; 1,021 and 10,005 so far, counts 1/700 2/10 3/11\n");
	collected(world, 5, 1004, COLLECTIONS_RUNNING);
	assert_header(world, "\ngc on, runs now: 120 collections/min, 1,200 objects freed/min; "
			     "1,025 and 10,045 so far");
	collected(world, 7, 1008, COLLECTIONS_TIMED | COLLECTIONS_MORE);
	assert_header(world, ", 2 % of the time; 1,029 and 10,085 so far");
	assert_header(world, "3/11, not of all interpreters\n");
}

static void growth_and_marks(void **state)
{
	struct world *world = *state;

	press(world, 'm');
	sums(world, 3, (double[STACKS]){0, 100, 0, 250});
	assert_row(world, 8, 0, "b\\x1b.py:2 250 4 100 200");
	assert_row(world, 8, 1, "a.py:1 100 2 -100 -200");
	/* a row that holds nothing any more is shown because of the mark */
	sums(world, 4, (double[STACKS]){0, 0, 0, 250});
	assert_row(world, 8, 1, "a.py:1 0 0 -100 -300");
	for (int i = 0; i < 4; i++)
		press(world, 's');
	assert_int_equal(world->view.groups.sort, WATCH_DIFF);
	assert_row(world, 8, 0, "a.py:1 0 0 -100 -300");
	press(world, 'u');
	assert_int_equal(world->view.groups.sort, WATCH_SIZE);
	assert_row(world, 8, 0, "b\\x1b.py:2 250 4 67 250");
	assert_header(world, "by line, sorted by size, 1 row of 250 B\n");
}

static void allocated(struct world *world, unsigned int second, double live, double thrown_away)
{
	sums_put(&world->data, second * SECOND, 10, (double[STACKS]){0, live, 0, 0},
		 (double[STACKS]){0, live, 0, thrown_away});
	assert_int_equal(watch_model_sums(&world->model, world->data.data, world->data.size), 0);
}

/* What was allocated before the view began has no rate; lines that hold nothing are on demand. */
static void allocations_have_a_rate(void **state)
{
	struct world *world = *state;

	allocated(world, 2, 1000, 5000);
	allocated(world, 4, 1100, 7000);
	for (int i = 0; i < 3; i++)
		press(world, 's');
	assert_int_equal(world->view.groups.sort, WATCH_ALLOCATED);
	/* since second 1: 1100 and 7000 bytes in 3 s, as the first answer had allocated 0 */
	assert_row(world, 8, 0, "b\\x1b.py:2 0 0 -17 0");
	assert_true(world->view.groups.items[world->rows[0]].allocated > 2333 &&
		    world->view.groups.items[world->rows[0]].allocated < 2334);
	assert_row(world, 8, 1, "a.py:1 1100 2 267 1100");
	watch_model_restart(&world->model, 0);
	allocated(world, 5, 1100, 9000);
	allocated(world, 6, 1100, 9001);
	assert_row(world, 8, 0, "b\\x1b.py:2 0 0 0 0");
	assert_true(world->view.groups.items[world->rows[0]].allocated <= 1);
	press(world, 's');
	assert_row(world, 8, 0, "a.py:1 1100 2 0 1100");
	assert_int_equal(world->view.groups.rows, 1);
}

/* A rate is as exact after a terabyte as at the beginning. */
static void rates_stay_exact(void **state)
{
	struct world *world = *state;
	const double terabyte = 0x1p40;

	allocated(world, 2, 100, 0);
	for (unsigned int i = 3; i < 40; i++)
		allocated(world, i, 100, terabyte + 3 * i);
	press(world, '3');
	for (int i = 0; i < 3; i++)
		press(world, 's');
	assert_row(world, 8, 0, "b\\x1b.py 0 0 0 0");
	assert_true(fabs(world->view.groups.items[world->rows[0]].allocated - 3) < 1e-9);
	assert_true(fabs(watch_model_total(&world->model).allocated - 3) < 1e-9);
}

/* After more refreshes than are remembered, growth is that of the last ten seconds. */
static void history_is_bounded(void **state)
{
	struct world *world = *state;

	for (unsigned int i = 2; i < 100; i++)
		sums(world, i, (double[STACKS]){0, 100.0 * i, 0, 0});
	assert_row(world, 8, 0, "a.py:1 9900 2 100 9900");
	const struct watch_group *group = &world->view.groups.items[world->rows[0]];
	const float *history = watch_groups_history(&world->view.groups, group);
	assert_true(history[WATCH_HISTORY - 1] == 9900);
	assert_true(history[0] == 9900 - 100 * (WATCH_HISTORY - 1));
	assert_true(watch_model_total(&world->model).size == 9900);
	/* another layer has no history yet */
	watch_model_restart(&world->model, 0);
	sums(world, 100, (double[STACKS]){0, 5, 0, 0});
	assert_row(world, 8, 0, "a.py:1 5 2 0 5");
}

/* Names that come late move a stack to its row; names that never come are asked for less often. */
static void names_come_late(void **state)
{
	struct world *world = *state;
	struct request request;

	sums_put(&world->data, 2 * SECOND, 11, (double[STACKS]){0, 1000, 0, 0},
		 (double[STACKS]){0});
	assert_int_equal(watch_model_sums(&world->model, world->data.data, world->data.size), 0);
	assert_int_equal(world->model.process_count, 1); /* the other one has ended */
	assert_row(world, 8, 0, "(names that are being read) 1000 2 1000 1000");
	assert_int_equal(watch_model_missing(&world->model, 0, &request), 1);
	assert_true(request.kind == REQUEST_STACKS && request.pid == 11 && !request.first);
	assert_int_equal(watch_model_unnamed(&world->model), 1);
	stacks_put(&world->data, 11, "<unknown>");
	assert_int_equal(watch_model_stacks(&world->model, world->data.data, world->data.size), 0);
	assert_row(world, 8, 0, "<unknown>:1 1000 2 1000 1000");
	assert_int_equal(watch_model_missing(&world->model, 5 * SECOND, &request), 1);
	assert_int_equal(request.first, 2); /* the first two never have names */
	assert_int_equal(request.strings, 5);
	assert_int_equal(watch_model_missing(&world->model, 5 * SECOND, &request), 0);
	assert_int_equal(watch_model_missing(&world->model, 6 * SECOND, &request), 0);
	assert_int_equal(watch_model_missing(&world->model, 8 * SECOND, &request), 1);
	/* a process that is gone */
	stacks_put(&world->data, 10, "a.py");
	assert_int_equal(watch_model_stacks(&world->model, world->data.data, world->data.size), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(rows_are_groups_by_size), TEST(collectors_are_told), TEST(growth_and_marks),
		TEST(allocations_have_a_rate), TEST(rates_stay_exact),    TEST(history_is_bounded),
		TEST(names_come_late),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
