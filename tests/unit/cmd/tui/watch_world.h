/* SPDX-License-Identifier: Apache-2.0 */
/* A live view without a terminal: answers of a session of one process with four stacks. */
#ifndef TEST_WATCH_WORLD_H
#define TEST_WATCH_WORLD_H

#include <stdlib.h>
#include <string.h>

#include "cmd/tui/view.h"
#include "util/buffer.h"

#define SECOND     1000000000ull
#define STACKS     4u
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_new, world_free)

static inline void put(struct buffer *out, const void *data, size_t bytes)
{
	assert_int_equal(buffer_append(out, data, bytes), 0);
}

static inline void string_put(struct buffer *out, const char *text)
{
	uint64_t bytes = strlen(text);

	put(out, &bytes, sizeof(bytes));
	put(out, text, bytes);
	put(out, "\0\0\0\0\0\0\0", -bytes % 8);
}

/* An answer to "sums" of one process; size 0 leaves a stack out, unless it has allocated. */
static inline void sums_put(struct buffer *out, uint64_t time_ns, uint32_t pid,
			    const double sizes[STACKS], const double allocated[STACKS])
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
static inline void stacks_put(struct buffer *out, uint32_t pid, const char *file)
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

/* An answer by thread: two threads at stack 1, one of them at stack 3, too; only 21 has a name. */
static inline void threads_put(struct buffer *out, uint64_t time_ns, double size)
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

struct world {
	struct watch_model model;
	struct watch_view view;
	struct buffer data;
	uint32_t rows[8];
};

static inline void sums(struct world *world, unsigned int second, const double sizes[STACKS])
{
	sums_put(&world->data, second * SECOND, 10, sizes, (double[STACKS]){0});
	assert_int_equal(watch_model_sums(&world->model, world->data.data, world->data.size), 0);
}

static inline int world_new(void **state)
{
	struct world *world = calloc(1, sizeof(*world));

	assert_int_equal(watch_model_begin(&world->model), 0);
	world->view.groups.keys.seed = world->model.pids.seed;
	world->view.ages = (struct ages)AGES_ALL;
	sums(world, 1, (double[STACKS]){0, 100, 200, 50});
	stacks_put(&world->data, 10, "a.py");
	assert_int_equal(watch_model_stacks(&world->model, world->data.data, world->data.size), 0);
	*state = world;
	return 0;
}

static inline int world_free(void **state)
{
	struct world *world = *state;

	watch_groups_free(&world->view.groups);
	watch_model_end(&world->model);
	buffer_free(&world->data);
	free(world);
	return 0;
}

/* "LABEL SIZE COUNT GROWTH DIFF" of a row. */
static inline void assert_row(struct world *world, size_t want, int at, const char *expected)
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

static inline enum watch_action press(struct world *world, int key)
{
	int count = watch_groups_rows(&world->view.groups, &world->model, 8, world->rows);

	world->view.page = 8;
	return watch_view_key(&world->view, &world->model, key, world->rows, (size_t)count);
}

#endif
