/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "object/perfmap/text.h"
#include "util/buffer.h"

static int table_take(void *context, uint64_t start, uint64_t size, const char *name,
		      size_t name_bytes)
{
	struct perfmap_entry entry = {0};

	return perfmap_table_add(context, start, size, name, name_bytes, &entry);
}

static int buffer_take(void *context, const char *data, size_t bytes)
{
	return buffer_append(context, data, bytes);
}

/* The output for this input, which is fed piece bytes at a time. */
static char *through(const char *input, size_t bytes, size_t piece, struct perfmap_text *text)
{
	struct perfmap_table *table;
	struct buffer out = {0};

	assert_int_equal(perfmap_table_new(&table), 0);
	for (size_t at = 0; at < bytes; at += piece)
		assert_int_equal(perfmap_text_read(text, input + at,
						   bytes - at < piece ? bytes - at : piece,
						   table_take, table),
				 0);
	assert_int_equal(perfmap_text_write(table, buffer_take, &out), 0);
	assert_int_equal(buffer_append(&out, "", 1), 0);
	perfmap_table_free(table);
	return (char *)out.data;
}

static void text_expect(const char *input, const char *expected, uint64_t refused)
{
	for (size_t piece = 1; piece < 20; piece += 6) {
		struct perfmap_text *text = calloc(1, sizeof(*text));
		char *out = through(input, strlen(input), piece, text);

		assert_string_equal(out, expected);
		assert_int_equal(text->refused, refused);
		free(text);
		free(out);
	}
}

static void test_lines(void **state)
{
	(void)state;
	text_expect("7f3529fcf759 b py::bar:/run/t.py\n", "7f3529fcf759 b py::bar:/run/t.py\n", 0);
	text_expect("20 8 b\n10 8 a name with blanks \n", "10 8 a name with blanks \n20 8 b\n", 0);
	text_expect("0x10 0X8 prefixed\n", "10 8 prefixed\n", 0);
	text_expect("10\t8  \tseparated\n", "10 8 separated\n", 0);
	text_expect("FF AB upper\n", "ff ab upper\n", 0);
}

static void test_bad_lines(void **state)
{
	(void)state;
	text_expect("garbage\n10 8 a\n10 8\n10 8 \nx 8 b\n10 y c\n-1 8 d\n 30 8 e\n", "10 8 a\n",
		    7);
	text_expect("10 0 nothing\n", "\n", 1);
	text_expect("ffffffffffffffff 2 wraps\nfffffffffffffff0 10 too\nfffffffffffffff0 f fits\n",
		    "fffffffffffffff0 f fits\n", 2);
	text_expect("10000000000000000 8 65 bits\n", "\n", 1);
	text_expect("\n\n10 8 a\n\n", "10 8 a\n", 0);
	text_expect("10 8 whole\n20 8 no end", "10 8 whole\n", 0);
	text_expect("10 20 old\n18 8 new\n", "10 8 old\n18 8 new\n20 10 old\n", 0);
}

static void test_names_escaped(void **state)
{
	(void)state;
	text_expect("10 8 a\x1b[31mb\x7f\r\n", "10 8 a\\x1b[31mb\\x7f\\x0d\n", 0);
	text_expect("10 8 \xc3\xa9t\xe2\x82\xac\xf0\x9f\x90\x8d\n",
		    "10 8 \xc3\xa9t\xe2\x82\xac\xf0\x9f\x90\x8d\n", 0);
	text_expect("10 8 \xff\xc3\n", "10 8 \\xff\\xc3\n", 0);
	text_expect("10 8 \xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\n",
		    "10 8 \\xc0\\xaf\\ud800\\xf4\\x90\\x80\\x80\n", 0);
}

/* A name with a line end can come only from a probe. */
static void test_newline_in_name(void **state)
{
	struct perfmap_entry entry = {0};
	struct perfmap_table *table;
	struct buffer out = {0};
	(void)state;

	assert_int_equal(perfmap_table_new(&table), 0);
	perfmap_table_add(table, 16, 8, "one\ntwo", 7, &entry);
	assert_int_equal(perfmap_text_write(table, buffer_take, &out), 0);
	assert_int_equal(out.size, strlen("10 8 one\\x0atwo\n"));
	assert_memory_equal(out.data, "10 8 one\\x0atwo\n", out.size);
	buffer_free(&out);
	perfmap_table_free(table);
}

static void test_long_lines(void **state)
{
	struct perfmap_text *text = calloc(1, sizeof(*text));
	size_t bytes = 10u << 20;
	char *input = malloc(bytes + 32), *out;
	(void)state;

	assert_non_null(input);
	memcpy(input, "10 8 ", 5);
	memset(input + 5, 'x', bytes - 5);
	strcpy(input + bytes, "\n20 8 next\n");
	out = through(input, strlen(input), 100000, text);
	assert_int_equal(text->lines, 2);
	assert_int_equal(text->refused, 0);
	assert_int_equal(text->cut, 1);
	assert_int_equal(strlen(out), 5 + PERFMAP_NAME_MAX + 1 + strlen("20 8 next\n"));
	assert_string_equal(out + 5 + PERFMAP_NAME_MAX, "\n20 8 next\n");
	free(out);
	free(input);
	free(text);
}

/* CPython's PyUnstable_CopyPerfMapFile() fails on files of these sizes. */
static void test_never_whole_pages(void **state)
{
	struct perfmap_text *text = calloc(1, sizeof(*text));
	char *input = malloc(4097), *out;
	(void)state;

	memcpy(input, "10 8 ", 5);
	memset(input + 5, 'x', 2048 - 6);
	input[2047] = '\n';
	memcpy(input + 2048, input, 2048);
	input[2048] = '3';
	input[4096] = '\0';
	out = through(input, 4096, 4096, text);
	assert_int_equal(strlen(out), 4097);
	assert_memory_equal(out, input, 4096);
	assert_string_equal(out + 4096, "\n");
	free(out);
	memset(text, 0, sizeof(*text));
	out = through("", 0, 1, text);
	assert_string_equal(out, "\n");
	free(out);
	free(input);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),         cmocka_unit_test(test_bad_lines),
		cmocka_unit_test(test_names_escaped), cmocka_unit_test(test_newline_in_name),
		cmocka_unit_test(test_long_lines),    cmocka_unit_test(test_never_whole_pages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
