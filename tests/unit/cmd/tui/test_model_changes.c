/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that have only what has changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "watch_world.h"

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

/* An answer to "stacks": from now on the stack is at that line of a.py. */
static void rename_stack(struct world *world, uint32_t stack, uint32_t line)
{
	const struct stacks_header header = {
		.magic = SUMS_MAGIC, .pid = 10, .start_ns = 7, .first = stack, .count = 1};
	const struct stacks_entry entry = {.nframe = 1, .total = 1};
	const struct stacks_frame frame = {.filename = 1, .function = 3, .line = line};
	struct buffer *out = &world->data;

	out->size = 0;
	put(out, &header, sizeof(header));
	put(out, &entry, sizeof(entry));
	put(out, &frame, sizeof(frame));
	assert_int_equal(watch_model_stacks(&world->model, out->data, out->size), 0);
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
			/* names are read again, and are others */
			rename_stack(world, 1 + second % 3, random >> 13 & 3);
			rename_stack(other, 1 + second % 3, random >> 13 & 3);
			other->model.version++; /* and looks all groups up again */
		}
	}
	world_free((void **)&other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(changes_leave_the_rest),
		TEST(changes_come_to_everything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
