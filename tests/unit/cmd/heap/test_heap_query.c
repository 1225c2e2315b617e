/* SPDX-License-Identifier: Apache-2.0 */
/* The query language of tracer heap: what is taken, and where a mistake is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cmd/heap/heap_query.h"
#include "util/array.h"
#include "util/error.h"

static int parse(const char *text, int values)
{
	struct query *query = NULL;
	int err = query_parse(&query, text, values);

	query_free(query);
	return err;
}

static void taken(void **state)
{
	static const char *const texts[] = {
		"type=dict",
		" type = dict and retained > 1M and path ~ \"sys.modules.*cache\" ",
		"not(not not size<=0x7f00)or type!=shop.Item and(held=1)",
		"path !~ '\\[\\*\\]$'",
		"module = \"\" or root = frame",
		"type = not and type = and",
		"type = 'a \\' b' or type = \"\\\\\"",
	};
	(void)state;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (parse(texts[i], 0))
			fail_msg("\"%s\": %s", texts[i], error_reason(-EINVAL));
	assert_int_equal(parse("value = 1", 1), 0);
}

static void mistakes(void **state)
{
	static const struct {
		const char *text;
		unsigned int column;
	} wrong[] = {
		{"", 1},
		{"type", 5},
		{"typ = x", 1},
		{"type = ", 8},
		{"type = dict size > 1", 13},
		{"size ~ 1", 6},
		{"type < x", 6},
		{"size > 1X", 8},
		{"size > -1", 8},
		{"size > 0x", 8},
		{"size > 0xfffffffffffffffff", 8},
		{"(type = dict", 13},
		{"type = dict)", 12},
		{"type = \"dict", 8},
		{"path ~ \"(\"", 8},
		{"and type = dict", 1},
		{"type = dict or", 15},
		{"value = 1", 1},
	};
	unsigned int column;
	(void)state;

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		assert_int_equal(parse(wrong[i].text, 0), -EINVAL);
		const char *reason = error_reason(-EINVAL);
		if (sscanf(reason, "at %u: ", &column) != 1 || column != wrong[i].column)
			fail_msg("\"%s\": %s", wrong[i].text, reason);
	}
}

/* What is too long, too deep or of too many parts is refused. */
static void limits(void **state)
{
	char text[QUERY_TEXT + 16] = "";
	(void)state;

	memset(text, '(', 1000);
	text[1000] = 0;
	assert_int_equal(parse(text, 0), -EINVAL);
	text[0] = 0;
	for (int i = 0; i < 1000; i++)
		memcpy(text + 4 * i, "not ", 5);
	assert_int_equal(parse(text, 0), -EINVAL);
	text[0] = 0;
	for (int i = 0; i < 200; i++)
		strcat(text, i ? " or size > 1" : "size > 1");
	assert_int_equal(parse(text, 0), -EINVAL);
	memset(text, ' ', sizeof(text));
	memcpy(text, "size > 1", 8);
	text[sizeof(text) - 1] = 0;
	assert_int_equal(parse(text, 0), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(taken),
		cmocka_unit_test(mistakes),
		cmocka_unit_test(limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
