/* SPDX-License-Identifier: Apache-2.0 */
/* Error reasons, growing buffers, interned strings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "util/array.h"
#include "util/buffer.h"
#include "util/error.h"
#include "util/strings.h"
#include "util/text.h"
#include "util/utf8.h"

/*
 * --- errors ----------------------------------------------------------------------------------
 */

static void reason_belongs_to_its_errno(void **state)
{
	(void)state;
	assert_int_equal(error_set(-EINVAL, "section %d", 7), -EINVAL);
	assert_string_equal(error_reason(-EINVAL), "section 7");
	assert_string_equal(error_reason(-ENOENT), strerror(ENOENT));
}

static void reason_may_wrap_a_reason(void **state)
{
	(void)state;
	error_set(-EIO, "inner");
	error_set(-EIO, "outer: %s", error_reason(-EIO));
	assert_string_equal(error_reason(-EIO), "outer: inner");
}

static void reason_is_cut(void **state)
{
	char text[600];

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	error_set(-EIO, "%s", text);
	assert_int_equal(strlen(error_reason(-EIO)), 255);
}

/* Runs print() with stderr in a file and returns what it wrote. */
static void capture_stderr(void (*print)(void), char *out, size_t size)
{
	FILE *file = tmpfile();
	int saved = dup(STDERR_FILENO);
	ssize_t n;

	assert_non_null(file);
	dup2(fileno(file), STDERR_FILENO);
	print();
	dup2(saved, STDERR_FILENO);
	close(saved);
	n = pread(fileno(file), out, size - 1, 0);
	assert_true(n >= 0);
	out[n] = '\0';
	fclose(file);
}

static void print_hostile(void)
{
	error_set(-EPERM, "not allowed");
	error_print(-EPERM, "run it as root", "cannot trace '%s'",
		    "a\nb\x1b[31m\xc2\x9b\xc3\xa9\x7f");
}

static void print_without_remedy(void)
{
	error_print(-ESRCH, NULL, "pid %d", 5);
}

static void print_levels(void)
{
	log_level = 0;
	log_info("silent");
	log_level = 1;
	log_info("remark");
	log_debug("detail 1");
	log_level = 2;
	log_debug("detail 2");
	log_level = 1;
}

static void error_line_is_one_harmless_line(void **state)
{
	char text[512], expected[256];

	(void)state;
	capture_stderr(print_hostile, text, sizeof(text));
	assert_string_equal(text, "tracer: cannot trace 'a\\x0ab\\x1b[31m\\x9b\xc3\xa9\\x7f': not "
				  "allowed; run it as root\n");
	capture_stderr(print_without_remedy, text, sizeof(text));
	snprintf(expected, sizeof(expected), "tracer: pid 5: %s\n", strerror(ESRCH));
	assert_string_equal(text, expected);
	capture_stderr(print_levels, text, sizeof(text));
	assert_string_equal(text, "tracer: remark\ntracer: detail 2\n");
}

/*
 * --- buffer ----------------------------------------------------------------------------------
 */

static void text_that_hides_is_escaped(void **state)
{
	static const struct {
		const char *text, *shown;
	} cases[] = {
		{"\u202e", "\\xe2\\x80\\xae"}, /* right to left */
		{"\u2066", "\\xe2\\x81\\xa6"},
		{"\u2028", "\\xe2\\x80\\xa8"},
		{"\u200b", "\\xe2\\x80\\x8b"},
		{"\ufeff", "\\xef\\xbb\\xbf"},
		{"\ufffb", "\\xef\\xbf\\xbb"},
		{"\u061c", "\\xd8\\x9c"},
		{"\u2010", "\u2010"},
		{"\u2070", "\u2070"},
		{"\u20ac", "\u20ac"},
		{"\ufffd", "\ufffd"},
		{"\u0627", "\u0627"}, /* a letter of a script from right to left */
		/* bytes of a file name as Python has them; another lone surrogate */
		{"caf\xed\xb3\xa9", "caf\\xe9"},
		{"caf\xe9", "caf\\xe9"},
		{"\xed\xa0\x80", "\\ud800"},
	};
	char out[64];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		text_escape(out, sizeof(out), cases[i].text);
		assert_string_equal(out, cases[i].shown);
	}
}

/* What is written is UTF-8, and what is read back is what there was. */
static void text_survives_as_utf8(void **state)
{
	static const struct {
		const char *text, *escaped;
	} cases[] = {
		{"plain/caf\u00e9.py", "plain/caf\u00e9.py"},
		{"caf\xed\xb3\xa9", "caf\\xe9"}, /* U+DCE9 */
		{"\xed\xa0\x80", "\\ud800"},
		{"a\\xe9", "a\\\\xe9"}, /* looks like an escape */
		{"a\\\\ud800", "a\\\\\\\\ud800"},
		{"C:\\user\\x1b\\", "C:\\user\\x1b\\"}, /* does not */
		{"\\\xed\xb3\xa9", "\\\\\\xe9"},
	};
	char out[64], back[64];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		size_t bytes = utf8_escape(out, cases[i].text);

		assert_int_equal(bytes, strlen(out));
		assert_true(utf8_valid(out, bytes));
		assert_string_equal(out, cases[i].escaped);
		utf8_unescape(back, out, bytes);
		assert_string_equal(back, cases[i].text);
	}
}

static void buffer_grows(void **state)
{
	struct buffer buffer = {0};
	char expected[16];

	(void)state;
	assert_int_equal(buffer_append(&buffer, NULL, 0), 0);
	for (int i = 0; i < 10000; i++)
		assert_int_equal(buffer_append(&buffer, "abc", 3), 0);
	assert_int_equal(buffer.size, 30000);
	assert_int_equal(buffer_printf(&buffer, "%08d|", 42), 0);
	assert_memory_equal(buffer.data + 29997, "abc00000042|", 12);
	assert_int_equal(buffer.size, 30009);
	buffer_free(&buffer);
	assert_null(buffer.data);

	/* Every case in which a text just fits or just does not fit. */
	for (int i = 0; i < 3000; i++) {
		assert_int_equal(buffer_printf(&buffer, "%d", i % 10), 0);
		snprintf(expected, sizeof(expected), "%d", i % 10);
		assert_int_equal(buffer.data[i], expected[0]);
	}
	assert_int_equal(buffer.size, 3000);
	buffer_free(&buffer);
}

static void buffer_refuses_the_impossible(void **state)
{
	struct buffer buffer = {0};

	(void)state;
	assert_int_equal(buffer_append(&buffer, "x", 1), 0);
	assert_int_equal(buffer_reserve(&buffer, SIZE_MAX - 1), -ENOMEM);
	assert_int_equal(buffer.size, 1);
	assert_int_equal(buffer.data[0], 'x');
	buffer_free(&buffer);
}

/*
 * --- strings ---------------------------------------------------------------------------------
 */

static void strings_keep_one_of_each(void **state)
{
	struct strings *strings = NULL;
	uint32_t empty = 99, a, b, again;
	const char *kept;
	char text[32];

	(void)state;
	assert_int_equal(strings_new(&strings), 0);
	assert_int_equal(strings_count(strings), 1);
	assert_int_equal(strings_intern(strings, NULL, 0, &empty), 0);
	assert_int_equal(empty, 0);
	assert_int_equal(strings_intern(strings, "abcdef", 3, &a), 0);
	assert_int_equal(strings_intern(strings, "abcdef", 6, &b), 0);
	assert_int_not_equal(a, b);
	kept = strings_get(strings, a);

	for (int i = 0; i < 100000; i++) {
		uint32_t id;
		int n = snprintf(text, sizeof(text), "name-%d", i);

		assert_int_equal(strings_intern(strings, text, (size_t)n, &id), 0);
		assert_int_equal(id, i + 3);
	}
	for (int i = 0; i < 100000; i += 97) {
		int n = snprintf(text, sizeof(text), "name-%d", i);

		assert_int_equal(strings_intern(strings, text, (size_t)n, &again), 0);
		assert_int_equal(again, i + 3);
		assert_string_equal(strings_get(strings, again), text);
	}
	assert_int_equal(strings_count(strings), 100003);
	assert_ptr_equal(strings_get(strings, a), kept);
	assert_string_equal(kept, "abc");
	assert_string_equal(strings_get(strings, 0), "");
	assert_string_equal(strings_get(strings, 100003), "");
	assert_string_equal(strings_get(strings, UINT32_MAX), "");
	assert_true(strings_memory(strings) > 100000 * 12);
	strings_free(strings);
	strings_free(NULL);
}

static void strings_of_any_length(void **state)
{
	static char text[300000];
	struct strings *strings;
	uint32_t ids[20], again;
	size_t bytes[20];

	(void)state;
	memset(text, 'y', sizeof(text));
	assert_int_equal(strings_new(&strings), 0);
	for (int i = 0; i < 20; i++) {
		bytes[i] = (size_t)i * i * 800 + 1; /* below and above a chunk's size */
		assert_int_equal(strings_intern(strings, text, bytes[i], &ids[i]), 0);
	}
	for (int i = 0; i < 20; i++) {
		assert_int_equal(strlen(strings_get(strings, ids[i])), bytes[i]);
		assert_int_equal(strings_intern(strings, text, bytes[i], &again), 0);
		assert_int_equal(again, ids[i]);
	}
	/* Bytes that strings_get() cannot return are not kept. */
	assert_int_equal(strings_intern(strings, "ab\0cd", 5, &ids[0]), 0);
	assert_int_equal(strings_intern(strings, "ab", 2, &again), 0);
	assert_int_equal(again, ids[0]);
	strings_free(strings);
}

/* An index beyond the capacity, by any distance, is within it then. */
static void array_reaches_the_index(void **state)
{
	uint64_t *items = NULL;
	size_t capacity = 0;

	(void)state;
	for (uint32_t index = 0; index < 100000; index = 7 * index + 1) {
		assert_int_equal(ARRAY_GROW(items, capacity, index), 0);
		assert_true(capacity > index);
		items[index] = index;
	}
	array_release(NULL, &items, &capacity, sizeof(*items));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(array_reaches_the_index),
		cmocka_unit_test(reason_belongs_to_its_errno),
		cmocka_unit_test(reason_may_wrap_a_reason),
		cmocka_unit_test(reason_is_cut),
		cmocka_unit_test(error_line_is_one_harmless_line),
		cmocka_unit_test(text_that_hides_is_escaped),
		cmocka_unit_test(text_survives_as_utf8),
		cmocka_unit_test(buffer_grows),
		cmocka_unit_test(buffer_refuses_the_impossible),
		cmocka_unit_test(strings_keep_one_of_each),
		cmocka_unit_test(strings_of_any_length),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
