/* SPDX-License-Identifier: Apache-2.0 */
/* Rows by thread and by task. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "watch_world.h"

static void threads_are_rows(void **state)
{
	struct world *world = *state;
	char *text = NULL;
	size_t bytes = 0;
	FILE *out;

	/* who asked by stack is not answered by thread */
	threads_put(&world->data, 2 * SECOND, 100);
	assert_int_equal(watch_model_sums(&world->model, world->data.data, world->data.size),
			 -EBADMSG);
	press(world, 'm');
	assert_int_equal(press(world, '7'), WATCH_ASK);
	assert_int_equal(world->model.by, REQUEST_BY_THREAD);
	assert_int_equal(world->model.mark_ns, 0);
	for (unsigned int i = 0; i < 3; i++) {
		threads_put(&world->data, (2 + i) * SECOND, 100 + 10 * i);
		assert_int_equal(
			watch_model_sums(&world->model, world->data.data, world->data.size), 0);
	}
	assert_row(world, 8, 0, "worker\\x1b (TID 21) 131 3 10 131");
	assert_row(world, 8, 1, "(name not known) (TID 22) 30 2 0 30");
	press(world, '\n');
	out = open_memstream(&text, &bytes);
	watch_detail(&world->view, &world->model, NULL, out);
	fclose(out);
	assert_string_equal(text, "worker\\x1b (TID 21)\n\n2 tracebacks:\n\n120 B in 1 block\n"
				  "  a.py:1 in f\n\n11 B in 2 blocks\n"
				  "  b\\x1b.py:2 in g\n  a.py:1 in f\n");
	free(text);
	press(world, 27);
	/* a session that does not know threads */
	sums(world, 5, (double[STACKS]){0, 7, 0, 0});
	assert_row(world, 8, 0, "(thread not known) 7 2 2 7");
	assert_int_equal(press(world, '1'), WATCH_ASK);
	sums(world, 6, (double[STACKS]){0, 7, 0, 0});
	assert_row(world, 8, 0, "a.py:1 7 2 0 7");
}

/* An answer by task: no task, one with a number, one with a name, one whose name comes later. */
static void tasks_put(struct buffer *out, uint64_t time_ns)
{
	const struct sums_entry entries[] = {
		{.stack = 1, .owner = 0, .size = 40, .count = 1},
		{.stack = 1, .owner = TRACE_TASK_NUMBERED | 7, .size = 30, .count = 2},
		{.stack = 3, .owner = TRACE_TASK_NUMBERED | 7, .size = 5, .count = 1},
		{.stack = 3, .owner = 2, .size = 20, .count = 1},
		{.stack = 3, .owner = 5, .size = 10, .count = 1},
	};
	struct sums_header header = {
		.magic = SUMS_MAGIC, .time_ns = time_ns, .processes = 1, .cost = -1};
	struct sums_process process = {.pid = 10,
				       .start_ns = 7,
				       .stacks = STACKS,
				       .entries = 5,
				       .strings = 6,
				       .flags = SUMS_TASKS | SUMS_TELLS,
				       .name = "web"};

	out->size = 0;
	put(out, &header, sizeof(header));
	put(out, &process, sizeof(process));
	put(out, entries, sizeof(entries));
}

static void tasks_are_rows(void **state)
{
	struct world *world = *state;
	struct sums_process *process;
	struct request request;

	/* No process tells them. */
	assert_int_equal(press(world, '8'), WATCH_DRAW);
	assert_int_equal(world->view.groups.by, WATCH_LINE);
	assert_non_null(strstr(world->view.message, "--by task"));
	press(world, '7');
	press(world, 'g');
	assert_int_equal(world->view.groups.by, WATCH_LINE);
	sums_put(&world->data, 2 * SECOND, 10, (double[STACKS]){1, 2, 3, 4}, (double[STACKS]){0});
	process = (void *)(world->data.data + sizeof(struct sums_header));
	process->flags = SUMS_TELLS;
	assert_int_equal(watch_model_sums(&world->model, world->data.data, world->data.size), 0);
	press(world, '7');
	assert_int_equal(press(world, 'g'), WATCH_ASK);
	assert_int_equal(world->view.groups.by, WATCH_TASK);
	assert_int_equal(world->model.by, REQUEST_BY_TASK);
	tasks_put(&world->data, 3 * SECOND);
	assert_int_equal(watch_model_sums(&world->model, world->data.data, world->data.size), 0);
	assert_row(world, 8, 0, "(no task) 40 1 0 40");
	assert_row(world, 8, 1, "Task-7 35 3 0 35");
	assert_row(world, 8, 2, "b\\x1b.py 20 1 0 20");
	assert_row(world, 8, 3, "(a name that is being read) 10 1 0 10");
	/* A name comes without a stack of its own. */
	assert_int_equal(watch_model_missing(&world->model, 3 * SECOND, &request), 1);
	assert_int_equal(request.first, STACKS);
	assert_int_equal(request.strings, 5);
	const struct stacks_header header = {.magic = SUMS_MAGIC,
					     .pid = 10,
					     .start_ns = 7,
					     .first = STACKS,
					     .string_first = 5,
					     .string_count = 1,
					     .strings = 6};

	world->data.size = 0;
	put(&world->data, &header, sizeof(header));
	string_put(&world->data, "worker\033");
	assert_int_equal(watch_model_stacks(&world->model, world->data.data, world->data.size), 0);
	assert_row(world, 8, 3, "worker\\x1b 10 1 0 10");
	assert_int_equal(watch_model_missing(&world->model, 3 * SECOND, &request), 0);
	/* a session whose process does not know them any more */
	sums(world, 4, (double[STACKS]){0, 7, 0, 0});
	assert_row(world, 8, 0, "(tasks not told) 7 2 -33 7");
}

/* An answer by age: two stacks of one line, one of another; owner 0: its age is not known. */
static void ages_put(struct buffer *out, uint64_t time_ns, uint32_t grown)
{
	const struct sums_entry entries[] = {
		{.stack = 1, .owner = 500 + grown, .size = 60, .count = 6},
		{.stack = 1, .owner = 90000 + grown, .size = 10, .count = 1},
		{.stack = 2, .owner = 7200000 + grown, .size = 40, .count = 4},
		{.stack = 2, .owner = 0, .size = 5, .count = 100},
		{.stack = 3, .owner = 0, .size = 3, .count = 1},
	};
	struct sums_header header = {
		.magic = SUMS_MAGIC, .time_ns = time_ns, .processes = 1, .cost = -1};
	struct sums_process process = {.pid = 10,
				       .start_ns = 7,
				       .stacks = STACKS,
				       .entries = 5,
				       .flags = SUMS_AGES,
				       .name = "web"};

	out->size = 0;
	put(out, &header, sizeof(header));
	put(out, &process, sizeof(process));
	put(out, entries, sizeof(entries));
}

static void ages_are_columns(void **state)
{
	struct world *world = *state;
	const struct watch_group *group;
	char *text = NULL;
	size_t bytes = 0;
	FILE *out;

	assert_int_equal(press(world, 'a'), WATCH_ASK);
	assert_int_equal(world->model.by, REQUEST_BY_AGE);
	assert_int_equal(world->view.groups.by, WATCH_LINE);
	/* Blocks that age change their sums, and the line does not grow by that. */
	for (uint32_t i = 0; i < 3; i++) {
		ages_put(&world->data, (2 + i) * SECOND, 1000 * i);
		assert_int_equal(
			watch_model_sums(&world->model, world->data.data, world->data.size), 0);
	}
	assert_row(world, 8, 0, "a.py:1 115 111 0 115");
	group = &world->view.groups.items[world->rows[0]];
	assert_int_equal(group->oldest, 7202000);
	assert_int_equal(group->median, 2500); /* the sixth of eleven */
	assert_row(world, 8, 1, "b\\x1b.py:2 3 1 0 3");
	group = &world->view.groups.items[world->rows[1]];
	assert_int_equal(group->oldest, 0);
	press(world, '\n');
	out = open_memstream(&text, &bytes);
	watch_detail(&world->view, &world->model, NULL, out);
	fclose(out);
	assert_string_equal(text, "a.py:1\n\n2 tracebacks:\n\n70 B in 7 blocks\n"
				  "  a.py:1 in f\n\n45 B in 104 blocks\n  a.py:1 in f\n");
	free(text);
	press(world, 27);
	/* Other rows have them, too, but not threads. */
	press(world, '5');
	assert_int_equal(world->model.by, REQUEST_BY_AGE);
	assert_int_equal(press(world, '7'), WATCH_ASK);
	assert_int_equal(world->model.by, REQUEST_BY_THREAD);
	assert_int_equal(press(world, '1'), WATCH_ASK);
	assert_int_equal(world->model.by, REQUEST_BY_AGE);
	assert_int_equal(press(world, 'a'), WATCH_ASK);
	assert_int_equal(world->model.by, REQUEST_BY_STACK);
}

/* Names that come later find all sums of their stack. */
static void ages_of_new_names(void **state)
{
	struct world *world = *state;

	press(world, 'a');
	ages_put(&world->data, 2 * SECOND, 0);
	assert_int_equal(watch_model_sums(&world->model, world->data.data, world->data.size), 0);
	assert_row(world, 8, 0, "a.py:1 115 111 0 115");
	stacks_put(&world->data, 10, "c.py");
	assert_int_equal(watch_model_stacks(&world->model, world->data.data, world->data.size), 0);
	assert_row(world, 8, 0, "a.py:1 115 111 0 115");
}

/* Threads that came and went are forgotten, those that hold something are not. */
static void ended_threads_are_forgotten(void **state)
{
	struct world *world = *state;
	struct sums_entry *entry;

	press(world, '7');
	for (uint32_t i = 0; i < 18000; i += 3) {
		threads_put(&world->data, (2 + i) * SECOND, 100);
		entry = (void *)(world->data.data + sizeof(struct sums_header) +
				 sizeof(struct sums_process));
		for (uint32_t j = 1; j < 4; j++)
			entry[j].owner = 100 + i + j;
		assert_int_equal(
			watch_model_sums(&world->model, world->data.data, world->data.size), 0);
	}
	assert_true(world->model.processes[0].sum_count < 4500);
	assert_row(world, 8, 0, "worker\\x1b (TID 21) 100 1 0 100");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(threads_are_rows),
		TEST(tasks_are_rows),
		TEST(ages_are_columns),
		TEST(ages_of_new_names),
		TEST(ended_threads_are_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
