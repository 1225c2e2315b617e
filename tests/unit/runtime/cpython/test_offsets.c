/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/cpython/offsets.h"
#include "util/error.h"

static unsigned int count_known(enum python_build build)
{
	const char *known = offsets_known(build);
	unsigned int count = 0;

	for (unsigned int minor = 0; minor < 256; minor++) {
		const struct python_offsets *offsets = offsets_for(0x0300 | minor, build);
		char text[16];

		snprintf(text, sizeof(text), "3.%u", minor);
		if (!offsets)
			continue;
		assert_int_equal(offsets->version, 0x0300 | minor);
		assert_int_equal(offsets->build, build);
		assert_non_null(strstr(known, text));
		count++;
	}
	return count;
}

static void test_known(void **state)
{
	(void)state;
	assert_int_equal(count_known(BUILD_RELEASE), 8);
	assert_int_equal(count_known(BUILD_DEBUG), 4);
	assert_int_equal(count_known(BUILD_FREE_THREADED), 3);
	assert_null(offsets_for(0x0307, BUILD_RELEASE));
	assert_null(offsets_for(0x0310, BUILD_RELEASE));
	assert_null(offsets_for(0x030c, BUILD_DEBUG));
	assert_null(offsets_for(0x0207, BUILD_RELEASE));
	assert_null(offsets_for(0, BUILD_RELEASE));
}

/* Values taken with a debugger from running interpreters, independent of the generator. */
static void test_values(void **state)
{
	const struct {
		uint32_t version, gil, frame, cframe, code, previous, instr, owner, line, name,
			lines, thread;
	} facts[] = {
		{0x0308, 1368, 24, ABI_NONE, 32, 24, 104, ABI_NONE, 40, 112, 120, 176},
		{0x0309, 568, 24, ABI_NONE, 32, 24, 104, ABI_NONE, 40, 112, 120, 176},
		{0x030a, 568, 24, 48, 32, 24, 96, ABI_NONE, 40, 112, 120, 176},
		{0x030b, 576, ABI_NONE, 56, 32, 48, 56, 69, 72, 128, 136, 152},
		{0x030c, 0, ABI_NONE, 56, 0, 8, 56, 70, 68, 128, 136, 136},
		{0x030d, 0, 72, ABI_NONE, 0, 8, 56, 70, 68, 128, 136, 152},
		{0x030e, 0, 72, ABI_NONE, 0, 8, 56, 74, 68, 128, 136, 152},
		{0x030f, 0, 72, ABI_NONE, 0, 8, 56, 74, 68, 128, 136, 176},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
		const struct python_offsets *offsets = offsets_for(facts[i].version, BUILD_RELEASE);

		assert_non_null(offsets);
		assert_int_equal(offsets->gil_tstate, facts[i].gil);
		assert_int_equal(offsets->abi.tstate_frame, facts[i].frame);
		assert_int_equal(offsets->abi.tstate_cframe, facts[i].cframe);
		assert_int_equal(offsets->abi.frame_code, facts[i].code);
		assert_int_equal(offsets->abi.frame_previous, facts[i].previous);
		assert_int_equal(offsets->abi.frame_instr, facts[i].instr);
		assert_int_equal(offsets->abi.frame_owner, facts[i].owner);
		assert_int_equal(offsets->abi.code_first_line, facts[i].line);
		assert_int_equal(offsets->abi.code_qualname, facts[i].name);
		assert_int_equal(offsets->abi.code_lines, facts[i].lines);
		assert_int_equal(offsets->abi.tstate_thread_id, facts[i].thread);
		/* The 88 bytes that form a code object's id must lie within it. */
		assert_true(offsets->abi.code_lines + 8 >= 88);
	}
}

/* What tells a call of the evaluation loop, by CPython's headers. */
static void test_calls(void **state)
{
	const struct {
		uint32_t version, cframe_previous, frame_entry, entry_from;
	} facts[] = {
		{0x0308, ABI_NONE, 0, 0},  {0x0309, ABI_NONE, 0, 0},  {0x030a, 8, 0, 0},
		{0x030b, 16, 68, 1},       {0x030c, ABI_NONE, 70, 3}, {0x030d, ABI_NONE, 70, 3},
		{0x030e, ABI_NONE, 74, 3}, {0x030f, ABI_NONE, 74, 3},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
		const struct abi_offsets *abi = &offsets_for(facts[i].version, BUILD_RELEASE)->abi;

		assert_int_equal(abi->cframe_previous, facts[i].cframe_previous);
		assert_int_equal(abi->frame_entry, facts[i].frame_entry);
		assert_int_equal(abi->entry_from, facts[i].entry_from);
	}
}

/* The meaning of the bits in a frame's code reference and in a reference count changed in 3.14. */
static void test_tags(void **state)
{
	(void)state;
	for (uint32_t version = 0x0308; version <= 0x030d; version++) {
		assert_int_equal(offsets_for(version, BUILD_RELEASE)->abi.frame_code_tagged, 0);
		assert_int_equal(offsets_for(version, BUILD_RELEASE)->heap.count_flags, 0);
	}
	assert_int_equal(offsets_for(0x030e, BUILD_RELEASE)->abi.frame_code_tagged, 1);
	assert_int_equal(offsets_for(0x030e, BUILD_RELEASE)->heap.count_flags, 255);
	assert_int_equal(offsets_for(0x030e, BUILD_RELEASE)->abi.owner_skip, 3);
	assert_int_equal(offsets_for(0x030e, BUILD_RELEASE)->abi.code_bytecode, 208);
}

/*
 * Without the GIL an object's header has 16 bytes more, and from 3.14 on each thread has a copy of
 * the bytecode. Values printed by an interpreter's own _Py_DebugOffsets, and by its headers.
 */
static void test_free_threaded(void **state)
{
	const struct {
		uint32_t version, object_type, first_line, filename, lines, bytecode, owner, copies,
			copy;
	} facts[] = {
		{0x030d, 24, 84, 128, 152, 216, 70, ABI_NONE, ABI_NONE},
		{0x030e, 24, 84, 128, 152, 232, 78, 224, 72},
		{0x030f, 24, 84, 128, 152, 232, 78, 224, 72},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
		const struct abi_offsets *abi =
			&offsets_for(facts[i].version, BUILD_FREE_THREADED)->abi;

		assert_int_equal(abi->object_type, facts[i].object_type);
		assert_int_equal(abi->code_first_line, facts[i].first_line);
		assert_int_equal(abi->code_filename, facts[i].filename);
		assert_int_equal(abi->code_lines, facts[i].lines);
		assert_int_equal(abi->code_bytecode, facts[i].bytecode);
		assert_int_equal(abi->frame_owner, facts[i].owner);
		assert_int_equal(abi->code_copies, facts[i].copies);
		assert_int_equal(abi->frame_copy, facts[i].copy);
	}
}

enum { COOKIE, VERSION, FREE_THREADED, WORDS = OFFSETS_DEBUG_BYTES / 8 };

/* The fields of _Py_DebugOffsets by word, according to CPython's headers. */
struct layout {
	uint32_t version;
	unsigned int interpreters_head, interp_next, interp_threads, tstate_next, tstate_frame,
		tstate_thread_id;
	unsigned int frame_previous, frame_code, frame_instr, frame_owner;
	unsigned int code_filename, code_qualname, code_lines, code_first_line, code_bytecode,
		object_type;
};

static const struct layout layouts[] = {
	{0x030d, 5, 8, 9, 21, 23, 24, 29, 30, 31, 33, 35, 37, 38, 39, 43, 45},
	{0x030e, 5, 8, 9, 24, 26, 27, 32, 33, 34, 36, 40, 42, 43, 44, 48, 51},
	{0x030f, 5, 8, 9, 24, 26, 30, 40, 41, 42, 44, 48, 50, 51, 52, 56, 59},
};

#define LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

static uint32_t layout_hex(const struct layout *layout)
{
	return layout->version << 16 | 0x00f0;
}

static void debug_make(const struct layout *layout, uint64_t words[WORDS])
{
	const struct abi_offsets *abi = &offsets_for(layout->version, BUILD_RELEASE)->abi;

	/* Fields that are not read may contain any value. */
	memset(words, 0xff, WORDS * sizeof(words[0]));
	memcpy(words, "xdebugpy", 8);
	words[VERSION] = layout_hex(layout);
	words[FREE_THREADED] = 0;
	words[layout->interpreters_head] = abi->runtime_interpreters_head;
	words[layout->interp_next] = abi->interp_next;
	words[layout->interp_threads] = abi->interp_threads_head;
	words[layout->tstate_next] = abi->tstate_next;
	words[layout->tstate_frame] = abi->tstate_frame;
	words[layout->tstate_thread_id] = abi->tstate_thread_id;
	words[layout->frame_previous] = abi->frame_previous;
	words[layout->frame_code] = abi->frame_code;
	words[layout->frame_instr] = abi->frame_instr;
	words[layout->frame_owner] = abi->frame_owner;
	words[layout->code_filename] = abi->code_filename;
	words[layout->code_qualname] = abi->code_qualname;
	words[layout->code_lines] = abi->code_lines;
	words[layout->code_first_line] = abi->code_first_line;
	words[layout->code_bytecode] = abi->code_bytecode;
	words[layout->object_type] = abi->object_type;
}

static int debug_apply(const struct layout *layout, const uint64_t words[WORDS],
		       struct python_offsets *offsets)
{
	*offsets = *offsets_for(layout->version, BUILD_RELEASE);
	return offsets_apply_debug((const uint8_t *)words, layout_hex(layout), offsets);
}

static void test_debug(void **state)
{
	(void)state;
	for (size_t i = 0; i < LAYOUTS; i++) {
		const struct python_offsets *known = offsets_for(layouts[i].version, BUILD_RELEASE);
		struct python_offsets offsets;
		uint64_t words[WORDS];

		debug_make(&layouts[i], words);
		assert_int_equal(debug_apply(&layouts[i], words, &offsets), 0);
		assert_memory_equal(&offsets, known, sizeof(offsets));

		words[layouts[i].interp_threads] += 8;
		assert_int_equal(debug_apply(&layouts[i], words, &offsets), 1);
		assert_int_equal(offsets.abi.interp_threads_head,
				 known->abi.interp_threads_head + 8);
		assert_int_equal(offsets.abi.interp_next, known->abi.interp_next);
	}
}

static void test_debug_refused(void **state)
{
	struct python_offsets offsets;
	uint64_t words[WORDS];

	(void)state;
	for (size_t i = 0; i < LAYOUTS; i++) {
		debug_make(&layouts[i], words);
		words[FREE_THREADED] = 1;
		assert_int_equal(debug_apply(&layouts[i], words, &offsets), -ENOTSUP);
		assert_non_null(strstr(error_reason(-ENOTSUP), "free-threaded"));
		debug_make(&layouts[i], words);
		words[VERSION] += 0x100;
		assert_int_equal(debug_apply(&layouts[i], words, &offsets), -ENOTSUP);
		debug_make(&layouts[i], words);
		words[COOKIE] ^= 1;
		assert_int_equal(debug_apply(&layouts[i], words, &offsets), -ENOTSUP);
		debug_make(&layouts[i], words);
		words[layouts[i].code_lines] = 0x10000 + 136; /* must not be truncated to 136 */
		assert_int_equal(debug_apply(&layouts[i], words, &offsets), -ENOTSUP);
	}
}

/*
 * Words that match the file, but not the layout's version; and a layout without words of its own.
 */
static void test_debug_unknown(void **state)
{
	const uint32_t versions[] = {0x030c00f0, 0x030f00f0, 0x031000f0, 0};
	struct python_offsets offsets = *offsets_for(0x030e, BUILD_RELEASE);
	uint64_t words[WORDS];

	(void)state;
	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
		debug_make(&layouts[1], words);
		words[VERSION] = versions[i];
		assert_int_equal(offsets_apply_debug((const uint8_t *)words, versions[i], &offsets),
				 -ENOTSUP);
	}
	offsets = *offsets_for(0x030c, BUILD_RELEASE);
	words[VERSION] = 0x030c00f0;
	assert_int_equal(offsets_apply_debug((const uint8_t *)words, 0x030c00f0, &offsets),
			 -ENOTSUP);
}

#define RELEASES "tests/unit/data/python/releases.txt"

/*
 * A release is read correctly or refused: compares the offsets from its headers
 * (tools/release-layouts) with those that the tracer uses.
 */
static void release_check(char *line)
{
	char *rest, *name = strtok_r(line, " \n", &rest);
	uint32_t hex = (uint32_t)strtoul(strtok_r(NULL, " ", &rest), NULL, 16);
	int py_debug = atoi(strtok_r(NULL, " \n", &rest));
	const struct python_offsets *entry =
		offsets_for(hex >> 16, py_debug ? BUILD_DEBUG : BUILD_RELEASE);
	struct python_offsets offsets;
	uint32_t obmalloc;
	int others = 0, err;

	assert_non_null(entry);
	offsets = *entry;
	obmalloc = entry->heap.interp_obmalloc;
	for (const char *field; (field = strtok_r(NULL, " \n", &rest));)
		if (sscanf(field, "heap.interp_obmalloc=%u", &obmalloc) != 1)
			others++;
	err = offsets_apply_release(hex, &offsets);
	if (others ? err != -ENOTSUP : offsets.heap.interp_obmalloc != obmalloc)
		fail_msg("%s: %d, obmalloc at %u, should be at %u, and %d fields elsewhere", name,
			 err, offsets.heap.interp_obmalloc, obmalloc, others);
	offsets.heap.interp_obmalloc = entry->heap.interp_obmalloc;
	assert_memory_equal(&offsets, entry, sizeof(offsets));
}

static void test_releases(void **state)
{
	FILE *file = fopen(RELEASES, "r");
	unsigned int count = 0;
	char line[4096];

	(void)state;
	if (!file) {
		printf("%s is not to be found from here\n", RELEASES);
		skip();
	}
	while (fgets(line, sizeof(line), file)) {
		if (line[0] == '#')
			continue;
		release_check(line);
		count++;
	}
	fclose(file);
	assert_true(count > 150);
}

/* Values of Debian's arm64 packages python3.11-dbg, python3.13-dbg and python3.14-dbg. */
static void test_machine(void **state)
{
	static const struct {
		uint32_t version, gil, obmalloc, x86_obmalloc;
	} facts[] = {{0x030b, 592, 0, 0}, {0x030d, 0, 10816, 10800}, {0x030e, 0, 10920, 10904}};

	(void)state;
	for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
		struct python_offsets offsets = *offsets_for(facts[i].version, BUILD_RELEASE);

		assert_int_equal(offsets_apply_machine(&machine_x86, &offsets), 0);
		assert_int_equal(offsets.heap.interp_obmalloc, facts[i].x86_obmalloc);
		assert_int_equal(offsets_apply_machine(&machine_arm64, &offsets), 1);
		assert_int_equal(offsets.gil_tstate, facts[i].gil);
		assert_int_equal(offsets.heap.interp_obmalloc, facts[i].obmalloc);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known),         cmocka_unit_test(test_values),
		cmocka_unit_test(test_calls),         cmocka_unit_test(test_tags),
		cmocka_unit_test(test_debug),         cmocka_unit_test(test_free_threaded),
		cmocka_unit_test(test_debug_refused), cmocka_unit_test(test_debug_unknown),
		cmocka_unit_test(test_releases),      cmocka_unit_test(test_machine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
