/* SPDX-License-Identifier: Apache-2.0 */
/* What asyncio publishes of itself, as Debian's builds of 3.14 and 3.15 have it; damaged words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "runtime/cpython/tasks.h"
#include "util/error.h"

static const struct {
	uint32_t version;
	enum python_build build;
	uint64_t words[TASKS_WORDS]; /* the content of .AsyncioDebug */
} sections[] = {
	{0x030e,
	 BUILD_RELEASE,
	 {168, 136, 96, 108, 109, 128, 152, 225864, 10880, 936, 864, 872, 880}},
	{0x030e,
	 BUILD_DEBUG,
	 {168, 136, 96, 108, 109, 128, 152, 225880, 10888, 936, 864, 872, 880}},
	{0x030f,
	 BUILD_RELEASE,
	 {168, 136, 96, 108, 109, 128, 152, 226240, 10856, 1104, 1024, 1032, 1048}},
};

static int apply(const uint64_t *words, const struct python_offsets *known, struct abi_offsets *abi)
{
	error_clear();
	*abi = known->abi;
	return tasks_apply((const uint8_t *)words, TASKS_WORDS * sizeof(*words), known, abi);
}

/* The table's offsets, which are used before asyncio is loaded, are the same. */
static void agree_with_the_table(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
		const struct python_offsets *known =
			offsets_for(sections[i].version, sections[i].build);
		struct abi_offsets abi;

		assert_non_null(known);
		assert_int_equal(apply(sections[i].words, known, &abi), 0);
		assert_memory_equal(&abi, &known->abi, sizeof(abi));
		assert_int_equal(abi.task_name, 136);
	}
	for (uint32_t version = 0x0308; version <= 0x030d; version++)
		assert_int_equal(offsets_for(version, BUILD_RELEASE)->abi.tstate_task, 0);
	/* of which no section was read */
	assert_int_equal(offsets_for(0x030e, BUILD_FREE_THREADED)->abi.task_name, 0);
}

static void others_are_refused(void **state)
{
	static const struct {
		size_t word;
		uint64_t value;
	} damages[] = {
		{TASKS_THREAD_SIZE, 944},
		{TASKS_THREAD_TASK, 936},
		{TASKS_THREAD_TASK, 0},
		{TASKS_THREAD_TASK, 868},
		{TASKS_THREAD_TASK, 1ull << 32},
		{TASKS_TASK_NAME, 0},
		{TASKS_TASK_NAME, 168},
		{TASKS_TASK_NAME, 137},
		{TASKS_TASK_NAME, UINT64_MAX},
		{TASKS_TASK_SIZE, 1ull << 32},
		{TASKS_TASK_SIZE, 0},
	};
	const struct python_offsets *known = offsets_for(0x030e, BUILD_RELEASE);
	struct abi_offsets abi;

	(void)state;
	for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
		uint64_t words[TASKS_WORDS];

		memcpy(words, sections[0].words, sizeof(words));
		words[damages[i].word] = damages[i].value;
		assert_int_equal(apply(words, known, &abi), -ENOTSUP);
		assert_memory_equal(&abi, &known->abi, sizeof(abi));
	}
	assert_int_equal(tasks_apply((const uint8_t *)sections[0].words, 96, known, &abi),
			 -ENOTSUP);
	/* another version's words */
	assert_int_equal(apply(sections[2].words, known, &abi), -ENOTSUP);
	assert_non_null(strstr(error_reason(-ENOTSUP), "asyncio"));
}

#define FUNCTION 0x5000

static int scan(const char *text, size_t text_bytes, const uint64_t *words, size_t count,
		uint64_t *function)
{
	const struct tasks_data data = {.text = (const uint8_t *)text,
					.content = (const uint8_t *)words,
					.text_bytes = text_bytes,
					.bytes = count * sizeof(*words),
					.text_address = 0x1000};

	return tasks_setter_scan(&data, function);
}

/* The method table's entry, by the address of its name, which may be the end of another text. */
static void setters_are_found(void **state)
{
	static const char text[] = "get_name\0_set_name\0set_name_\0set_nam";
	static const char twice[] = "set_name\0set_name";
	const uint64_t words[] = {0x1000, FUNCTION - 16, 4,        0, 0x100a, FUNCTION - 32, 4,
				  0,      0x100a,        FUNCTION, 8, 0};
	uint64_t others[] = {0x1000, FUNCTION, 8, 0, 7, 0x1009, FUNCTION, 8, 0};
	uint64_t function;

	(void)state;
	assert_int_equal(scan(text, sizeof(text), words, 12, &function), 0);
	assert_int_equal(function, FUNCTION);
	for (size_t count = 0; count < 12; count++)
		assert_int_equal(scan(text, sizeof(text), words, count, &function), -ENOENT);
	assert_int_equal(scan(text, 0, words, 12, &function), -ENOENT);
	assert_int_equal(scan(text, 18, words, 12, &function), -ENOENT);
	assert_int_equal(scan(twice, sizeof(twice), others, 9, &function), 0);
	assert_int_equal(function, FUNCTION);
	others[6]++;
	assert_int_equal(scan(twice, sizeof(twice), others, 9, &function), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(agree_with_the_table),
		cmocka_unit_test(others_are_refused),
		cmocka_unit_test(setters_are_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
