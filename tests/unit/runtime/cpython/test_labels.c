/* SPDX-License-Identifier: Apache-2.0 */
/* What --by context and --by local are given. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "cmd/options/presets.h"
#include "runtime/cpython/labels.h"
#include "util/array.h"

static void path_is(enum abi_label_source source, const char *text, const char *function,
		    const char *path, unsigned hex_digits)
{
	struct label_spec spec;

	assert_int_equal(label_spec_parse(source, text, &spec), 0);
	assert_string_equal(spec.function, function);
	assert_string_equal(spec.path, path);
	assert_int_equal(spec.hex_digits, hex_digits);
	assert_string_equal(strchr(spec.text, ' ') + 1, text);
}

static void paths_are_parsed(void **state)
{
	(void)state;
	path_is(ABI_LABEL_CONTEXT, "name", "", "name", 0);
	path_is(ABI_LABEL_CONTEXT, "shop.name.0.key-*.x", "", "shop.name.0.key-*.x", 0);
	path_is(ABI_LABEL_CONTEXT, "name:x", "", "name", 1);
	path_is(ABI_LABEL_CONTEXT, "name.0:032x", "", "name.0", 32);
	path_is(ABI_LABEL_CONTEXT, "a:b", "", "a:b", 0);
	path_is(ABI_LABEL_CONTEXT, "a:box", "", "a:box", 0);
	path_is(ABI_LABEL_LOCAL, "f:x", "f", "x", 0);
	path_is(ABI_LABEL_LOCAL, "A.f:x.y:016x", "A.f", "x.y", 16);
}

static void paths_are_refused(void **state)
{
	static const char *const bad[] = {"",    ".",     "a.",   "a..b", "*",       "a.*",
					  "a*b", "a.b*c", "a.**", "a:0x", "a:0100x", "a:8x"};
	struct label_spec spec;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(label_spec_parse(ABI_LABEL_CONTEXT, bad[i], &spec), -EINVAL);
	assert_int_equal(label_spec_parse(ABI_LABEL_LOCAL, "f", &spec), -EINVAL);
	assert_int_equal(label_spec_parse(ABI_LABEL_LOCAL, ":x", &spec), -EINVAL);
	assert_int_equal(label_spec_parse(ABI_LABEL_LOCAL, "f:", &spec), -EINVAL);
}

static void presets_are_paths(void **state)
{
	char word[256] = "structlog:";
	struct label_spec spec;

	(void)state;
	assert_int_equal(presets_parse("otel-trace", &spec), 0);
	assert_string_equal(spec.text, "context current_context.current-span-*._context.0:032x");
	assert_int_equal(spec.hex_digits, 32);
	assert_int_equal(presets_parse("structlog:user", &spec), 0);
	assert_string_equal(spec.text, "context structlog_user");
	assert_int_equal(presets_parse("rq", &spec), 0);
	assert_string_equal(spec.function, "perform_job");
	assert_int_equal(presets_parse("structlog", &spec), -EINVAL);
	assert_int_equal(presets_parse("structlog:", &spec), -EINVAL);
	assert_int_equal(presets_parse("rq:key", &spec), -EINVAL);
	assert_int_equal(presets_parse("r", &spec), -ENOENT);
	assert_int_equal(presets_parse("", &spec), -ENOENT);
	assert_int_equal(presets_parse(":", &spec), -ENOENT);
	memset(word + 10, 'k', 200);
	assert_int_equal(presets_parse(word, &spec), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paths_are_parsed),
		cmocka_unit_test(paths_are_refused),
		cmocka_unit_test(presets_are_paths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
