/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interpreters themselves are the oracle: every offset of thousands of code objects, in every
 * format.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pythons.h"
#include "runtime/cpython/lines.h"

#define ORACLE "tests/unit/data/python/lines_oracle.py"

/* With and without marks: the result must be the same. */
static int line_at(enum lines_format format, const uint8_t *data, size_t bytes, int first_line,
		   int lasti)
{
	struct lines_table table = {
		.format = format, .first_line = first_line, .data = data, .bytes = bytes};
	int line = lines_find(&table, lasti);
	struct lines_mark *marks;

	assert_int_equal(lines_mark(&table, &marks, &table.mark_count), 0);
	table.marks = marks;
	assert_int_equal(lines_find(&table, lasti), line);
	free(marks);
	return line;
}

static size_t hex_decode(const char *hex, uint8_t *out)
{
	size_t count = 0;
	unsigned int byte;

	for (; sscanf(hex, "%2x", &byte) == 1; hex += 2)
		out[count++] = (uint8_t)byte;
	return count;
}

/*
 * Compares one line of the oracle: "first table-hex line,line,…". Returns the number of offsets
 * compared.
 */
static size_t compare(enum lines_format format, char *text)
{
	char *rest, *first = strtok_r(text, " ", &rest), *hex = strtok_r(NULL, " ", &rest);
	size_t length, bytes, count = 0;
	uint8_t *table, *exact;
	char *lines = rest;
	int lasti = -1;

	assert_non_null(hex);
	length = strlen(hex);
	table = malloc(length);
	bytes = hex_decode(hex, table);
	exact = malloc(bytes ? bytes : 1); /* of exact size, so that ASan detects an overread */
	memcpy(exact, table, bytes);
	for (char *line = strtok_r(NULL, ",\n", &lines); line;
	     line = strtok_r(NULL, ",\n", &lines)) {
		int expected = atoi(line);

		if (expected < 0)
			expected = 0;
		assert_int_equal(line_at(format, exact, bytes, atoi(first), lasti), expected);
		lasti++;
		count++;
	}
	free(table);
	free(exact);
	return count;
}

static void oracle(unsigned int minor, enum lines_format format)
{
	size_t capacity = 0, codes = 0, offsets = 0;
	char path[PATH_MAX], *line = NULL;
	struct python_child child = {0};

	if (!python_path(minor, path))
		skip();
	if (access(ORACLE, R_OK)) {
		printf("%s is not to be found from here\n", ORACLE);
		skip();
	}
	assert_int_equal(python_start(&child, (char *[]){path, ORACLE, NULL}, NULL), 0);
	while (getline(&line, &capacity, child.out) > 0) {
		offsets += compare(format, line);
		codes++;
	}
	free(line);
	python_stop(&child);
	if (!codes) {
		printf("%s has no ctypes\n", path);
		skip();
	}
	assert_true(codes > 100 && offsets > 20000);
}

static void test_38(void **state)
{
	(void)state;
	oracle(8, LINES_LNOTAB);
}

static void test_39(void **state)
{
	(void)state;
	oracle(9, LINES_LNOTAB);
}

static void test_310(void **state)
{
	(void)state;
	oracle(10, LINES_PAIRS);
}

static void test_311(void **state)
{
	(void)state;
	oracle(11, LINES_LOCATIONS);
}

static void test_312(void **state)
{
	(void)state;
	oracle(12, LINES_LOCATIONS);
}

static void test_313(void **state)
{
	(void)state;
	oracle(13, LINES_LOCATIONS);
}

static void test_314(void **state)
{
	(void)state;
	oracle(14, LINES_LOCATIONS);
}

static void test_315(void **state)
{
	(void)state;
	oracle(15, LINES_LOCATIONS);
}

/* Hand-made tables, so that the formats are tested without an interpreter, too. */
static void test_formats(void **state)
{
	const uint8_t lnotab[] = {0, 1, 4, 2, 255, 0, 45, (uint8_t)-3, 2, 1};
	const uint8_t pairs[] = {4, 1, 6, 0x80, 2, 5, 2, (uint8_t)-7};
	/*
	 * one line +1 (2 units), no line (1 unit), no columns −5 (1 unit), long +100 (1 unit),
	 * short (1 unit)
	 */
	const uint8_t locations[] = {0xd9, 0, 1, 0xf8, 0xe8, 11,   0xf0,
				     0x48, 3, 0, 1,    2,    0x80, 0x10};

	(void)state;
	assert_int_equal(line_at(LINES_LNOTAB, lnotab, sizeof(lnotab), 10, -1), 10);
	assert_int_equal(line_at(LINES_LNOTAB, lnotab, sizeof(lnotab), 10, 3), 11);
	assert_int_equal(line_at(LINES_LNOTAB, lnotab, sizeof(lnotab), 10, 4), 13);
	assert_int_equal(line_at(LINES_LNOTAB, lnotab, sizeof(lnotab), 10, 303), 13);
	assert_int_equal(line_at(LINES_LNOTAB, lnotab, sizeof(lnotab), 10, 304), 10);
	assert_int_equal(line_at(LINES_LNOTAB, lnotab, sizeof(lnotab), 10, 9999), 11);
	assert_int_equal(line_at(LINES_PAIRS, pairs, sizeof(pairs), 10, 0), 11);
	assert_int_equal(line_at(LINES_PAIRS, pairs, sizeof(pairs), 10, 4), 0);
	assert_int_equal(line_at(LINES_PAIRS, pairs, sizeof(pairs), 10, 11), 16);
	assert_int_equal(line_at(LINES_PAIRS, pairs, sizeof(pairs), 10, 12), 9);
	assert_int_equal(line_at(LINES_PAIRS, pairs, sizeof(pairs), 10, 14), 0);
	assert_int_equal(line_at(LINES_LOCATIONS, locations, sizeof(locations), 10, 3), 11);
	assert_int_equal(line_at(LINES_LOCATIONS, locations, sizeof(locations), 10, 4), 0);
	assert_int_equal(line_at(LINES_LOCATIONS, locations, sizeof(locations), 10, 6), 6);
	assert_int_equal(line_at(LINES_LOCATIONS, locations, sizeof(locations), 10, 8), 106);
	assert_int_equal(line_at(LINES_LOCATIONS, locations, sizeof(locations), 10, 10), 106);
	assert_int_equal(line_at(LINES_LOCATIONS, locations, sizeof(locations), 10, 12), 0);
}

/* A negative line, which a table can encode, is reported as no line. */
static void test_negative(void **state)
{
	const uint8_t lnotab[] = {0, (uint8_t)-20}, pairs[] = {2, (uint8_t)-20},
		      locations[] = {0xe8, 41};

	(void)state;
	assert_int_equal(line_at(LINES_LNOTAB, lnotab, sizeof(lnotab), 10, 0), 0);
	assert_int_equal(line_at(LINES_PAIRS, pairs, sizeof(pairs), 10, 0), 0);
	assert_int_equal(line_at(LINES_LOCATIONS, locations, sizeof(locations), 10, 0), 0);
	assert_int_equal(line_at(LINES_PAIRS, pairs, sizeof(pairs), -3, -1), 0);
	assert_int_equal(line_at(LINES_PAIRS, pairs, sizeof(pairs), 21, 0), 1);
}

/*
 * A varint that exceeds the table or its 32 bits, and a table that starts in the middle of an
 * entry.
 */
static void test_malformed(void **state)
{
	const uint8_t endless[] = {0xe8, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f};
	const uint8_t middle[] = {0x10, 0xd9, 0, 1};

	(void)state;
	for (size_t size = 0; size <= sizeof(endless); size++)
		assert_int_equal(line_at(LINES_LOCATIONS, endless, size, 10, 0), 0);
	assert_int_equal(line_at(LINES_LOCATIONS, middle, sizeof(middle), 10, 0), 0);
	assert_int_equal(line_at(LINES_LOCATIONS, NULL, 0, 10, 0), 0);
	assert_int_equal(line_at(LINES_PAIRS, middle, 1, 10, 0), 0);
	assert_int_equal(line_at(LINES_LNOTAB, middle, 1, 10, 0), 10);
}

/* Random bytes in a block of exact size: no overread (ASan) and no overflow (UBSan). */
static void test_random(void **state)
{
	uint64_t seed = 88172645463325252ull;

	(void)state;
	for (int round = 0; round < 20000; round++) {
		size_t bytes = seed % 40;
		uint8_t *table = malloc(bytes ? bytes : 1);

		for (size_t i = 0; i < bytes; i++) {
			seed ^= seed << 13;
			seed ^= seed >> 7;
			seed ^= seed << 17;
			table[i] = (uint8_t)(seed >> 24);
		}
		for (int format = LINES_LNOTAB; format <= LINES_LOCATIONS; format++)
			for (int lasti = -1; lasti < 200; lasti += 7)
				assert_true(line_at((enum lines_format)format, table, bytes,
						    INT_MAX, lasti) >= 0);
		seed ^= seed << 13;
		seed ^= seed >> 7;
		free(table);
	}
}

/*
 * Every instruction of the longest tables that a trace accepts: 1.3 million lookups, which take
 * minutes if each one reads its table from the start.
 */
static void test_long(void **state)
{
	enum { BYTES = 1 << 20, RANGES = BYTES / 2 };
	/* 2 bytes of code per entry, each one line further. */
	static const struct {
		enum lines_format format;
		uint8_t entry[2];
		int line; /* of the first instruction, relative to the first line */
	} formats[] = {{LINES_LNOTAB, {2, 1}, 0},
		       {LINES_PAIRS, {2, 1}, 1},
		       {LINES_LOCATIONS, {0xd8, 0}, 1}};
	uint8_t *data = malloc(BYTES);

	(void)state;
	alarm(60);
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		struct lines_table table = {.format = formats[i].format,
					    .first_line = 10,
					    .data = data,
					    .bytes = BYTES};
		struct lines_mark *marks;

		for (size_t at = 0; at < BYTES; at += 2)
			memcpy(data + at, formats[i].entry, 2);
		assert_int_equal(lines_mark(&table, &marks, &table.mark_count), 0);
		assert_true(table.mark_count <= BYTES / LINES_MARK_BYTES);
		table.marks = marks;
		for (int range = RANGES; range-- > 0;)
			assert_int_equal(lines_find(&table, 2 * range),
					 10 + formats[i].line + range);
		assert_int_equal(lines_find(&table, 2 * RANGES),
				 formats[i].format == LINES_LNOTAB ? 10 + RANGES : 0);
		free(marks);
	}
	alarm(0);
	free(data);
}

/*
 * Entries that do not advance, and one that is as long as the table: lookups at marks and between
 * them.
 */
static void test_marks_uneven(void **state)
{
	enum { BYTES = 4096 };
	uint8_t *data = malloc(BYTES);

	(void)state;
	memset(data, 0, BYTES);
	data[BYTES - 2] = 6;
	data[BYTES - 1] = 3;
	assert_int_equal(line_at(LINES_LNOTAB, data, BYTES, 10, 5), 10);
	assert_int_equal(line_at(LINES_LNOTAB, data, BYTES, 10, 6), 13);
	assert_int_equal(line_at(LINES_PAIRS, data, BYTES, 10, 5), 13);
	assert_int_equal(line_at(LINES_PAIRS, data, BYTES, 10, 6), 0);
	data[0] = 0xd8;
	data[BYTES - 2] = 0xd8;
	assert_int_equal(line_at(LINES_LOCATIONS, data, BYTES, 10, 1), 11);
	assert_int_equal(line_at(LINES_LOCATIONS, data, BYTES, 10, 3), 12);
	assert_int_equal(line_at(LINES_LOCATIONS, data, BYTES, 10, 4), 0);
	free(data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_formats),   cmocka_unit_test(test_negative),
		cmocka_unit_test(test_malformed), cmocka_unit_test(test_random),
		cmocka_unit_test(test_long),      cmocka_unit_test(test_marks_uneven),
		cmocka_unit_test(test_38),        cmocka_unit_test(test_39),
		cmocka_unit_test(test_310),       cmocka_unit_test(test_311),
		cmocka_unit_test(test_312),       cmocka_unit_test(test_313),
		cmocka_unit_test(test_314),       cmocka_unit_test(test_315),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
