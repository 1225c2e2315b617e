/* SPDX-License-Identifier: Apache-2.0 */
/* The live view without a terminal: answers of a session in, rows out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <curses.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "watch/view.h"

#define SECOND 1000000000ull
#define STACKS 4u

static void put(struct buffer *out, const void *data, size_t bytes)
{
	assert_int_equal(buffer_append(out, data, bytes), 0);
}

static void string_put(struct buffer *out, const char *text)
{
	uint64_t bytes = strlen(text);

	put(out, &bytes, sizeof(bytes));
	put(out, text, bytes);
	put(out, "\0\0\0\0\0\0\0", -bytes % 8);
}

/* An answer to "sums" of one process; size 0 leaves a stack out, unless it has allocated. */
static void sums_put(struct buffer *out, uint64_t time_ns, uint32_t pid, const double sizes[STACKS],
		     const double allocated[STACKS])
{
	struct sums_header header = {
		.magic = SUMS_MAGIC, .time_ns = time_ns, .processes = 1, .cost = -1};
	struct sums_process process = {
		.pid = pid, .start_ns = 7, .stacks = STACKS, .name = "web", .container = "c1"};

	out->size = 0;
	put(out, &header, sizeof(header));
	for (uint32_t i = 0; i < STACKS; i++)
		process.entries += sizes[i] + allocated[i] > 0;
	put(out, &process, sizeof(process));
	for (uint32_t i = 0; i < STACKS; i++) {
		struct sums_entry entry = {.stack = i,
					   .size = sizes[i],
					   .count = sizes[i] > 0 ? i + 1 : 0,
					   .allocated = allocated[i]};

		if (sizes[i] + allocated[i] > 0)
			put(out, &entry, sizeof(entry));
	}
}

/*
 * An answer to "stacks": the empty one, two of line a.py:1, one of b.py:2 called by a.py:1. Strings
 * 0 to 4.
 */
static void stacks_put(struct buffer *out, uint32_t pid, const char *file)
{
	static const struct stacks_frame frames[] = {{.filename = 0, .function = 0},
						     {.filename = 1, .function = 3, .line = 1},
						     {.filename = 1, .function = 3, .line = 1},
						     {.filename = 2, .function = 4, .line = 2},
						     {.filename = 1, .function = 3, .line = 1}};
	struct stacks_header header = {.magic = SUMS_MAGIC,
				       .pid = pid,
				       .start_ns = 7,
				       .count = STACKS,
				       .string_count = 5,
				       .strings = 5};

	out->size = 0;
	put(out, &header, sizeof(header));
	for (uint32_t i = 0; i < STACKS; i++) {
		struct stacks_entry entry = {.nframe = i == 3 ? 2 : 1, .total = 2};

		put(out, &entry, sizeof(entry));
		put(out, &frames[i], entry.nframe * sizeof(frames[0]));
	}
	string_put(out, "<unknown>");
	string_put(out, file);
	string_put(out, "b\033.py");
	string_put(out, "f");
	string_put(out, "g");
}

struct world {
	struct watch_model model;
	struct watch_view view;
	struct buffer data;
	uint32_t rows[8];
};

static void sums(struct world *world, unsigned int second, const double sizes[STACKS])
{
	sums_put(&world->data, second * SECOND, 10, sizes, (double[STACKS]){0});
	assert_int_equal(watch_model_sums(&world->model, world->data.data, world->data.size), 0);
}

static int world_new(void **state)
{
	struct world *world = calloc(1, sizeof(*world));

	assert_int_equal(watch_model_begin(&world->model), 0);
	world->view.groups.keys.seed = world->model.pids.seed;
	sums(world, 1, (double[STACKS]){0, 100, 200, 50});
	stacks_put(&world->data, 10, "a.py");
	assert_int_equal(watch_model_stacks(&world->model, world->data.data, world->data.size), 0);
	*state = world;
	return 0;
}

static int world_free(void **state)
{
	struct world *world = *state;

	watch_groups_free(&world->view.groups);
	watch_model_end(&world->model);
	buffer_free(&world->data);
	free(world);
	return 0;
}

/* "LABEL SIZE COUNT GROWTH DIFF" of a row. */
static void assert_row(struct world *world, size_t want, int at, const char *expected)
{
	int count = watch_groups_rows(&world->view.groups, &world->model, want, world->rows);
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	assert_true(at < count);
	const struct watch_group *group = &world->view.groups.items[world->rows[at]];
	watch_group_label(&world->view.groups, &world->model, group, out);
	fprintf(out, " %.0f %.0f %.0f %.0f", group->size, group->count, group->growth,
		group->size - group->mark_size);
	fclose(out);
	assert_string_equal(text, expected);
	free(text);
}

static void assert_header(struct world *world, const char *expected)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	watch_header(&world->view, &world->model, world->model.now.time_ns, out);
	fclose(out);
	assert_non_null(strstr(text, expected));
	free(text);
}

static enum watch_action press(struct world *world, int key)
{
	int count = watch_groups_rows(&world->view.groups, &world->model, 8, world->rows);

	world->view.page = 8;
	return watch_view_key(&world->view, &world->model, key, world->rows, (size_t)count);
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

/* An answer with the changes alone, of stack 1; number 0: as of a session that has told nothing. */
static int changes(struct world *world, unsigned int second, double size)
{
	struct sums_process *process;

	sums_put(&world->data, second * SECOND, 10, (double[STACKS]){0, size, 0, 0},
		 (double[STACKS]){0, 1, 0, 0});
	process = (void *)(world->data.data + sizeof(struct sums_header));
	process->flags = SUMS_CHANGES;
	return watch_model_sums(&world->model, world->data.data, world->data.size);
}

static void changes_leave_the_rest(void **state)
{
	struct world *world = *state;
	const float *history;

	/* It has not said since when. */
	assert_int_equal(changes(world, 2, 150), -EBADMSG);
	sums(world, 2, (double[STACKS]){0, 100, 200, 50});
	press(world, 'm');
	world->model.since = 1;
	assert_int_equal(changes(world, 3, 150), 0);
	world->model.since = 1;
	assert_int_equal(changes(world, 4, 160), 0);
	assert_row(world, 8, 0, "a.py:1 360 5 20 60");
	assert_row(world, 8, 1, "b\\x1b.py:2 50 4 0 0");
	history = watch_groups_history(&world->view.groups,
				       &world->view.groups.items[world->rows[1]]);
	assert_true(history[WATCH_HISTORY - 1] == 50 && history[WATCH_HISTORY - 2] == 50);
	assert_true(watch_model_total(&world->model).size == 410);
	/* Nothing is left, which is a change, too. */
	world->model.since = 1;
	assert_int_equal(changes(world, 5, 0), 0);
	assert_row(world, 8, 0, "a.py:1 200 3 -25 -100");
	/* Another process, or after another request, there is nothing that could have changed. */
	world->model.since = 1;
	watch_model_restart(&world->model, 0);
	assert_int_equal(world->model.since, 0);
	assert_int_equal(changes(world, 6, 1), -EBADMSG);
}

/* An answer with those stacks of now that are not as in before; NULL: with all. */
static void answer(struct world *world, unsigned int second, const struct sums_entry now[STACKS],
		   const struct sums_entry *before)
{
	struct sums_header header = {.magic = SUMS_MAGIC,
				     .time_ns = second * SECOND,
				     .processes = 1,
				     .cost = -1,
				     .number = second};
	struct sums_process process = {.pid = 10,
				       .start_ns = 7,
				       .stacks = STACKS,
				       .flags = before ? SUMS_CHANGES : 0,
				       .name = "web"};
	struct buffer *out = &world->data;

	out->size = 0;
	for (uint32_t i = 0; i < STACKS; i++)
		process.entries += !before || memcmp(&now[i], &before[i], sizeof(now[i])) != 0;
	put(out, &header, sizeof(header));
	put(out, &process, sizeof(process));
	for (uint32_t i = 0; i < STACKS; i++)
		if (!before || memcmp(&now[i], &before[i], sizeof(now[i])) != 0)
			put(out, &now[i], sizeof(now[i]));
	assert_int_equal(watch_model_sums(&world->model, out->data, out->size), 0);
}

static int line_compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* All rows with all their figures, by label: equal ones have an order of each model. */
static char *rows_text(struct world *world)
{
	int count = watch_groups_rows(&world->view.groups, &world->model, 8, world->rows);
	struct watch_total total = watch_model_total(&world->model);
	char lines[8][512], *text = NULL;
	size_t bytes = 0;
	FILE *out;

	for (int i = 0; i < count; i++) {
		const struct watch_group *group = &world->view.groups.items[world->rows[i]];
		const float *history = watch_groups_history(&world->view.groups, group);

		out = fmemopen(lines[i], sizeof(lines[i]), "w");
		watch_group_label(&world->view.groups, &world->model, group, out);
		fprintf(out, " %.0f %.0f %.3f %.3f %.0f %.0f:", group->size, group->count,
			group->growth, group->allocated, group->mark_size, group->mark_count);
		for (uint32_t k = 0; k < WATCH_HISTORY; k++)
			fprintf(out, " %.0f", (double)history[k]);
		fclose(out);
	}
	qsort(lines, (size_t)count, sizeof(lines[0]), line_compare);
	out = open_memstream(&text, &bytes);
	fprintf(out, "%.0f %.0f %.0f %.3f\n", total.size, total.count, total.mark_size,
		total.allocated);
	for (int i = 0; i < count; i++)
		fprintf(out, "%s\n", lines[i]);
	fclose(out);
	return text;
}

/* A view that is told changes shows what one shows that is told everything each time. */
static void changes_come_to_everything(void **state)
{
	static const char keys[] = "12341sssssmu";
	struct world *world = *state, *other;
	struct sums_entry now[STACKS] = {{.stack = 0}, {.stack = 1}, {.stack = 2}, {.stack = 3}};
	struct sums_entry before[STACKS];
	uint32_t random = 7;

	assert_int_equal(world_new((void **)&other), 0);
	answer(world, 2, now, NULL);
	answer(other, 2, now, NULL);
	for (unsigned int second = 3; second < 2000; second++) {
		memcpy(before, now, sizeof(now));
		random = random * 1664525 + 1013904223;
		/* stretches without a change are longer than the history, too */
		for (uint32_t i = 0; i < STACKS && random >> 26 < 20 && second % 200 > 40; i++) {
			if (!(random >> (8 + i) & 1))
				continue;
			now[i].count = random >> (16 + i) & 3;
			now[i].size = now[i].count * (random >> 12 & 4095);
			now[i].allocated += now[i].size;
		}
		answer(world, second, now, before);
		answer(other, second, now, NULL);
		if (random >> 12 & 1) {
			char *text = rows_text(world), *expected = rows_text(other);

			assert_string_equal(text, expected);
			free(text);
			free(expected);
		}
		if (!(random >> 10 & 7)) {
			char key = keys[(random >> 20) % (sizeof(keys) - 1)];

			press(world, key);
			press(other, key);
		}
		if (!(random >> 5 & 63)) {
			/* names are read again */
			stacks_put(&world->data, 10, "a.py");
			assert_int_equal(watch_model_stacks(&world->model, world->data.data,
							    world->data.size),
					 0);
		}
	}
	world_free((void **)&other);
}

/* An answer by thread: two threads at stack 1, one of them at stack 3, too; only 21 has a name. */
static void threads_put(struct buffer *out, uint64_t time_ns, double size)
{
	const struct sums_entry entries[] = {
		{.stack = 1, .owner = 21, .size = size, .count = 1},
		{.stack = 1, .owner = 22, .size = 30, .count = 2},
		{.stack = 3, .owner = 21, .size = 5, .count = 1},
		{.stack = 3, .owner = 21, .size = 6, .count = 1}, /* of another domain */
	};
	const struct sums_thread name = {.tid = 21, .name = "worker\x1b"};
	struct sums_header header = {
		.magic = SUMS_MAGIC, .time_ns = time_ns, .processes = 1, .cost = -1};
	struct sums_process process = {.pid = 10,
				       .start_ns = 7,
				       .stacks = STACKS,
				       .entries = 4,
				       .threads = 1,
				       .flags = SUMS_THREADS,
				       .name = "web"};

	out->size = 0;
	put(out, &header, sizeof(header));
	put(out, &process, sizeof(process));
	put(out, entries, sizeof(entries));
	put(out, &name, sizeof(name));
}

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

static void filter_is_typed(void **state)
{
	struct world *world = *state;

	press(world, '/');
	press(world, 'A');
	press(world, 'x');
	press(world, KEY_BACKSPACE);
	press(world, '.');
	assert_int_equal(world->view.prompting, 1);
	press(world, '\n');
	assert_row(world, 8, 0, "a.py:1 300 5 0 300");
	assert_int_equal(world->view.groups.rows, 1);
	press(world, '/');
	for (int i = 0; i < 300; i++)
		press(world, 'q');
	assert_int_equal(press(world, 27), WATCH_DRAW);
	assert_string_equal(world->view.groups.filter, "A.");
	assert_int_equal(press(world, 'q'), WATCH_QUIT);
}

static void rows_open(void **state)
{
	struct world *world = *state;
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	press(world, KEY_DOWN);
	world->view.top = 1; /* scrolled: the row under the cursor is opened all the same */
	assert_int_equal(press(world, '\n'), WATCH_OPEN);
	watch_detail(&world->view, &world->model, NULL, out);
	fclose(out);
	assert_string_equal(text, "b\\x1b.py:2\n\n1 traceback:\n\n50 B in 4 blocks\n"
				  "  b\\x1b.py:2 in g\n  a.py:1 in f\n");
	free(text);
	assert_int_equal(press(world, 27), WATCH_OPEN);
	assert_int_equal(world->view.opened, 0);
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

/* A session may have as many stacks as WATCH_STACKS; here that would only take time. */
static void stacks_bound(struct buffer *data)
{
	struct sums_process *process = (void *)(data->data + sizeof(struct sums_header));

	if (process->stacks <= WATCH_STACKS && process->stacks > 1000)
		process->stacks = 1000;
}

/* Nothing that is cut or changed is believed beyond its bounds. */
static void hostile_answers(void **state)
{
	struct world *world = *state;
	struct buffer good = {0}, bad = {0};
	uint32_t seed = 1;

	/* sizes that a bar of the sparkline could not be computed from */
	for (int i = 0; i < 4; i++) {
		const double wrong[] = {-1, 1e300, INFINITY, NAN};
		const size_t at = sizeof(struct sums_header) + sizeof(struct sums_process) +
				  offsetof(struct sums_entry, size);

		sums_put(&good, 9 * SECOND, 10, (double[STACKS]){1, 2, 3, 4}, (double[STACKS]){0});
		memcpy(good.data + at, &wrong[i], sizeof(wrong[i]));
		assert_int_equal(watch_model_sums(&world->model, good.data, good.size), -EBADMSG);
	}
	for (int kind = 0; kind < 3; kind++) {
		int stacks = kind == 1;

		good.size = 0;
		if (kind == 2)
			press(world, '7');
		if (stacks)
			stacks_put(&good, 10, "a.py");
		else if (kind == 2)
			threads_put(&good, 9 * SECOND, 1);
		else
			sums_put(&good, 9 * SECOND, 10, (double[STACKS]){1, 2, 3, 4},
				 (double[STACKS]){0});
		for (size_t bytes = 0; bytes < good.size; bytes++) {
			void *cut = malloc(bytes);

			memcpy(cut, good.data, bytes);
			int err = stacks ? watch_model_stacks(&world->model, cut, bytes)
					 : watch_model_sums(&world->model, cut, bytes);
			/* strings that are known already are not read again */
			assert_true(err == -EBADMSG || (stacks && !err));
			free(cut);
		}
		for (int i = 0; i < 2000; i++) {
			bad.size = 0;
			put(&bad, good.data, good.size);
			for (int j = 0; j < 3; j++) {
				seed = seed * 1103515245 + 12345;
				bad.data[seed / 65536 % bad.size] = (unsigned char)(seed >> 8);
			}
			if (!stacks)
				stacks_bound(&bad);
			if (stacks)
				watch_model_stacks(&world->model, bad.data, bad.size);
			else
				watch_model_sums(&world->model, bad.data, bad.size);
			if (i % 100 == 0)
				assert_true(watch_groups_rows(&world->view.groups, &world->model, 8,
							      world->rows) >= 0);
		}
	}
	buffer_free(&good);
	buffer_free(&bad);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_new, world_free)
	const struct CMUnitTest tests[] = {
		TEST(rows_are_groups_by_size),
		TEST(growth_and_marks),
		TEST(changes_leave_the_rest),
		TEST(changes_come_to_everything),
		TEST(history_is_bounded),
		TEST(filter_is_typed),
		TEST(rows_open),
		TEST(names_come_late),
		TEST(hostile_answers),
		TEST(allocations_have_a_rate),
		TEST(threads_are_rows),
		TEST(tasks_are_rows),
		TEST(ended_threads_are_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
