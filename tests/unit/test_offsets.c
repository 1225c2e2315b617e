/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "python/offsets.h"

static void test_known(void **state)
{
	unsigned int known = 0;

	(void)state;
	for (unsigned int minor = 0; minor < 256; minor++) {
		char text[16];

		snprintf(text, sizeof(text), "3.%u", minor);
		if (!offsets_for(0x0300 | minor))
			continue;
		assert_int_equal(offsets_for(0x0300 | minor)->version, 0x0300 | minor);
		assert_non_null(strstr(offsets_known(), text));
		known++;
	}
	assert_int_equal(known, 6);
	assert_null(offsets_for(0x0307));
	assert_null(offsets_for(0x030e));
	assert_null(offsets_for(0x0207));
	assert_null(offsets_for(0));
}

/* Values taken with a debugger from running interpreters, independent of the generator. */
static void test_values(void **state)
{
	const struct {
		uint32_t version, gil, frame, cframe, code, previous, instr, owner, line, name, lines, thread;
	} facts[] = {
		{0x0308, 1368, 24, ABI_NONE, 32, 24, 104, ABI_NONE, 40, 112, 120, 176},
		{0x0309, 568, 24, ABI_NONE, 32, 24, 104, ABI_NONE, 40, 112, 120, 176},
		{0x030a, 568, 24, ABI_NONE, 32, 24, 96, ABI_NONE, 40, 112, 120, 176},
		{0x030b, 576, ABI_NONE, 56, 32, 48, 56, 69, 72, 128, 136, 152},
		{0x030c, 0, ABI_NONE, 56, 0, 8, 56, 70, 68, 128, 136, 136},
		{0x030d, 0, 72, ABI_NONE, 0, 8, 56, 70, 68, 128, 136, 152},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
		const struct python_offsets *offsets = offsets_for(facts[i].version);

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
		/* The 88 bytes that a code object's id is made of must lie within it. */
		assert_true(offsets->abi.code_lines + 8 >= 88);
	}
}

/* _Py_DebugOffsets as 3.13 has it, words by number. */
enum {
	COOKIE,
	VERSION,
	FREE_THREADED,
	INTERPRETERS_HEAD = 5,
	INTERP_NEXT = 8,
	INTERP_THREADS = 9,
	TSTATE_NEXT = 21,
	TSTATE_FRAME = 23,
	TSTATE_THREAD_ID = 24,
	FRAME_PREVIOUS = 29,
	FRAME_CODE = 30,
	FRAME_INSTR = 31,
	FRAME_OWNER = 33,
	CODE_FILENAME = 35,
	CODE_QUALNAME = 37,
	CODE_LINES = 38,
	CODE_FIRST_LINE = 39,
	CODE_BYTECODE = 43,
	OBJECT_TYPE = 45,
	WORDS = 46
};

static void debug_make(uint64_t words[WORDS])
{
	const struct abi_offsets *abi = &offsets_for(0x030d)->abi;

	memset(words, 0, WORDS * sizeof(words[0]));
	memcpy(words, "xdebugpy", 8);
	words[VERSION] = 0x030d00f0;
	words[INTERPRETERS_HEAD] = abi->runtime_interpreters_head;
	words[INTERP_NEXT] = abi->interp_next;
	words[INTERP_THREADS] = abi->interp_threads_head;
	words[TSTATE_NEXT] = abi->tstate_next;
	words[TSTATE_FRAME] = abi->tstate_frame;
	words[TSTATE_THREAD_ID] = abi->tstate_thread_id;
	words[FRAME_PREVIOUS] = abi->frame_previous;
	words[FRAME_CODE] = abi->frame_code;
	words[FRAME_INSTR] = abi->frame_instr;
	words[FRAME_OWNER] = abi->frame_owner;
	words[CODE_FILENAME] = abi->code_filename;
	words[CODE_QUALNAME] = abi->code_qualname;
	words[CODE_LINES] = abi->code_lines;
	words[CODE_FIRST_LINE] = abi->code_first_line;
	words[CODE_BYTECODE] = abi->code_bytecode;
	words[OBJECT_TYPE] = abi->object_type;
}

static int debug_apply(const uint64_t words[WORDS], struct python_offsets *offsets)
{
	*offsets = *offsets_for(0x030d);
	return offsets_apply_debug((const uint8_t *)words, 0x030d00f0, offsets);
}

static void test_debug(void **state)
{
	struct python_offsets offsets;
	uint64_t words[WORDS];

	(void)state;
	assert_int_equal(sizeof(words), OFFSETS_DEBUG_BYTES);
	debug_make(words);
	assert_int_equal(debug_apply(words, &offsets), 0);
	assert_memory_equal(&offsets, offsets_for(0x030d), sizeof(offsets));

	words[INTERP_THREADS] += 8;
	assert_int_equal(debug_apply(words, &offsets), 1);
	assert_int_equal(offsets.abi.interp_threads_head, offsets_for(0x030d)->abi.interp_threads_head + 8);
	assert_int_equal(offsets.abi.interp_next, offsets_for(0x030d)->abi.interp_next);
}

static void test_debug_refused(void **state)
{
	struct python_offsets offsets;
	uint64_t words[WORDS];

	(void)state;
	debug_make(words);
	words[FREE_THREADED] = 1;
	assert_int_equal(debug_apply(words, &offsets), -ENOTSUP);
	assert_non_null(strstr(error_reason(-ENOTSUP), "free-threaded"));
	debug_make(words);
	words[VERSION] = 0x030d01f0;
	assert_int_equal(debug_apply(words, &offsets), -ENOTSUP);
	debug_make(words);
	words[COOKIE] ^= 1;
	assert_int_equal(debug_apply(words, &offsets), -ENOTSUP);
	debug_make(words);
	words[CODE_LINES] = 0x10000 + 136; /* must not be cut to 136 */
	assert_int_equal(debug_apply(words, &offsets), -ENOTSUP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_debug),
		cmocka_unit_test(test_debug_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
