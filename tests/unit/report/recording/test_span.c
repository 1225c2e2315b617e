/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "place.h"
#include "recordings.h"
#include "report/recording/span.h"
#include "util/json.h"

#define LINES  4u
#define COUNT  6u
#define STACKS 100u

/* Line 0 stays, line 1 grows, line 2 shrinks and is gone at the end, line 3 is there in between. */
static int64_t counts(unsigned int line, unsigned int at)
{
	const int64_t blocks[LINES][COUNT] = {
		{5, 5, 5, 5, 5, 5}, {1, 2, 3, 4, 5, 6}, {9, 8, 7, 4, 2, 0}, {0, 0, 0, 90, 0, 0}};

	return blocks[line][at];
}

static uint64_t size_of(unsigned int line)
{
	return 16 + 16 * line;
}

static uint64_t total(unsigned int at)
{
	uint64_t sum = 0;

	for (unsigned int line = 0; line < LINES; line++)
		sum += size_of(line) * (uint64_t)counts(line, at);
	return sum;
}

static uint64_t gained(unsigned int first, unsigned int last, int sign)
{
	uint64_t sum = 0;

	for (unsigned int line = 0; line < LINES; line++) {
		int64_t blocks = sign * (counts(line, last) - counts(line, first));

		sum += blocks > 0 ? (uint64_t)blocks * size_of(line) : 0;
	}
	return sum;
}

/* The answer for a range, by itself. */
struct asked {
	size_t first, last, most;
	json_t *root;
	size_t calls, count;
};

static json_t *span_json(const struct recording_span *span, size_t most)
{
	char *text = NULL;
	size_t bytes = 0;
	struct json json = {.out = open_memstream(&text, &bytes)};

	assert_int_equal(recording_span_json(&json, span, most), 0);
	fclose(json.out);
	json_t *root = json_loads(text, 0, NULL);
	assert_non_null(root);
	free(text);
	return root;
}

static int span_take(const struct recording_span *span, void *context)
{
	struct asked *asked = context;

	asked->calls++;
	if (span->from_at.index != asked->first || span->to_at.index != asked->last)
		return 0;
	assert_null(asked->root);
	asked->root = span_json(span, asked->most);
	asked->count = span->count;
	return 0;
}

static int span_read(const char *path, struct asked *asked)
{
	const size_t ends[] = {asked->first, asked->last};
	struct infile file;
	int err = infile_open(&file, path);

	assert_int_equal(err, 0);
	err = recording_spans_read(&file, ends, ends[0] == ends[1] ? 1 : 2, span_take, asked);
	infile_close(&file);
	return err;
}

static uint64_t number(const json_t *root, const char *part, const char *figure)
{
	return (uint64_t)json_integer_value(json_object_get(json_object_get(root, part), figure));
}

/* A range has the figures of its ends, and the highest moment between them. */
static void range_check(const json_t *root, size_t count, unsigned int first, unsigned int last)
{
	unsigned int peak = first;

	for (unsigned int at = first; at <= last; at++)
		peak = total(at) > total(peak) ? at : peak;
	assert_int_equal(count, last - first + 1);
	assert_int_equal(number(root, "from", "size"), total(first));
	assert_int_equal(number(root, "to", "size"), total(last));
	assert_int_equal(number(root, "peak", "snapshot"), peak);
	assert_int_equal(number(root, "peak", "size"), total(peak));
	assert_int_equal(number(root, "alive", "size"), gained(first, last, 1));
	assert_int_equal(number(root, "freed", "size"), gained(first, last, -1));
	assert_true(json_is_null(json_object_get(root, "allocated")));
	assert_int_equal(json_integer_value(json_object_get(root, "stacks_left_out")), 0);
}

static void test_ranges(void **state)
{
	struct place *place = *state;
	struct recording_made made;

	assert_int_equal(recording_make(place->path, counts, LINES, COUNT, &made), 0);
	for (unsigned int first = 0; first < COUNT; first++)
		for (unsigned int last = first; last < COUNT; last++) {
			struct asked asked = {.first = first, .last = last, .most = STACKS};

			assert_int_equal(span_read(place->path, &asked), 0);
			assert_int_equal(asked.calls, first == last ? 1 : 3);
			range_check(asked.root, asked.count, first, last);
			json_decref(asked.root);
		}
	assert_int_equal(span_read(place->path, &(struct asked){.last = COUNT}), -ERANGE);
	assert_int_equal(truncate(place->path, made.ends[3] - 1), 0);
	struct asked cut = {.last = 2, .most = STACKS};
	assert_int_equal(span_read(place->path, &cut), 0);
	json_decref(cut.root);
	assert_int_equal(span_read(place->path, &(struct asked){.last = 3}), -ERANGE);
}

static int each_check(const struct recording_span *span, void *context)
{
	json_t *root = span_json(span, STACKS);

	range_check(root, span->count, (unsigned int)span->from_at.index,
		    (unsigned int)span->to_at.index);
	json_decref(root);
	return ++*(int *)context == 100 ? -ECANCELED : 0;
}

/* Those between several snapshots are the same, by one reading; an error ends it. */
static void test_each(void **state)
{
	const size_t numbers[] = {0, 2, 3, 5};
	struct place *place = *state;
	struct recording_made made;
	struct infile file;

	assert_int_equal(recording_make(place->path, counts, LINES, COUNT, &made), 0);
	for (int before = 0; before < 100; before += 91) {
		int calls = before;

		assert_int_equal(infile_open(&file, place->path), 0);
		assert_int_equal(recording_spans_read(&file, numbers, 4, each_check, &calls),
				 before ? -ECANCELED : 0);
		assert_int_equal(calls, before ? 100 : 10);
		infile_close(&file);
	}
}

/* A stack has one number in all snapshots; those with the highest figures stay. */
static void test_stacks(void **state)
{
	struct place *place = *state;
	struct recording_made made;

	assert_int_equal(recording_make(place->path, counts, LINES, COUNT, &made), 0);
	for (size_t most = 0; most <= LINES; most++) {
		struct asked asked = {.last = COUNT - 1, .most = most};

		assert_int_equal(span_read(place->path, &asked), 0);
		const json_t *starts = json_object_get(asked.root, "starts"),
			     *figures = json_object_get(asked.root, "figures");

		assert_int_equal(json_array_size(starts), most + 1);
		assert_int_equal(json_array_size(figures), 6 * most);
		assert_int_equal(json_array_size(json_object_get(asked.root, "stacks")),
				 RECORDING_FRAMES * most);
		assert_int_equal(json_integer_value(json_object_get(asked.root, "stacks_left_out")),
				 LINES - most);
		/* Line 3 at the peak is the highest figure of all: its bytes and blocks. */
		if (most) {
			assert_int_equal(json_integer_value(json_array_get(figures, 4)),
					 90 * size_of(3));
			assert_int_equal(json_integer_value(json_array_get(figures, 5)), 90);
		}
		json_decref(asked.root);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_ranges, place_setup, place_teardown),
		cmocka_unit_test_setup_teardown(test_each, place_setup, place_teardown),
		cmocka_unit_test_setup_teardown(test_stacks, place_setup, place_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
