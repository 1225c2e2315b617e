/* SPDX-License-Identifier: Apache-2.0 */
/* What asks for evidence: its words, and growth within a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "cmd/evidence/trigger.h"

#define S   1000000000ull
#define MIB (1ull << 20)
#define LONG                                                                                       \
	"90%,2G,500M/10m,pressure:20%,and a word that makes all of it longer than any other that " \
	"the parser has room for, which it must not cut"

static void words(void **state)
{
	struct triggers triggers;
	(void)state;

	assert_int_equal(triggers_parse("90%, 2G,500M/10m,pressure:20%", &triggers), 0);
	assert_true(triggers.items[TRIGGER_SHARE].value == 0.9);
	assert_true(triggers.items[TRIGGER_RSS].value == (double)(2048 * MIB));
	assert_true(triggers.items[TRIGGER_GROWTH].value == (double)(500 * MIB));
	assert_int_equal(triggers.items[TRIGGER_GROWTH].span_ns, 600 * S);
	assert_true(triggers.items[TRIGGER_PRESSURE].value == 0.2);
	assert_string_equal(triggers.items[TRIGGER_GROWTH].text, "500M/10m");
	assert_true(triggers_any(&triggers));
	assert_int_equal(triggers_parse("2G", &triggers), 0);
	assert_true(!(triggers.items[TRIGGER_SHARE].value > 0));
}

static void wrong_words(void **state)
{
	static const char *const wrong[] = {
		"",         "90",        ",",         "90%,",         "0%",        "101%",
		"-1%",      "2",         "500M/",     "/10m",         "500M/0s",   "500M/2d",
		"500M/25h", "1/10m",     "pressure:", "pressure",     "pressure:", "pressure: ",
		"psi:20%",  "90%,90%",   "2G,3G",     "90%/10m",      "nan%",      "1e9%",
		"2G 3G x",  "500M/10m/", "0x10M",     "pressure:-1%", LONG,
	};
	struct triggers triggers;
	(void)state;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		if (!triggers_parse(wrong[i], &triggers))
			fail_msg("\"%s\" was taken", wrong[i]);
	}
}

/* RSS as of each second: it may be large, and what is too long ago does not count. */
static void growth(void **state)
{
	const struct trigger minute = {.value = 100 * (double)MIB, .span_ns = 64 * S};
	struct trigger_past past = {0};
	uint64_t now_ns = 1000 * S;
	(void)state;

	for (unsigned int i = 0; i < 100; i++, now_ns += S)
		assert_int_equal(trigger_past_growth(&past, &minute, 500 * MIB, now_ns), 0);
	/* 1 MiB a second. */
	for (unsigned int i = 1; i <= 200; i++, now_ns += S) {
		uint64_t grown = trigger_past_growth(&past, &minute, (500 + i) * MIB, now_ns);

		assert_true(grown <= 64 * MIB);
		assert_true(i < 64 || grown >= 60 * MIB);
	}
	assert_int_equal(trigger_past_growth(&past, &minute, 100 * MIB, now_ns + 5 * S), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words),
		cmocka_unit_test(wrong_words),
		cmocka_unit_test(growth),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
