/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real interpreters, each at a known line: their layout is verified, and every field with a wrong
 * offset is detected. The test changes the tables of this process, not the interpreters.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pythons.h"
#include "runtime/cpython/heap.h"
#include "runtime/cpython/heap_place.h"
#include "runtime/cpython/layout.h"
#include "util/error.h"

#define SCRIPT       "tests/unit/data/python/heap.py"
#define MAX_DISTANCE 256u
#define ARRAY(a)     (sizeof(a) / sizeof((a)[0]))

struct interpreter {
	struct python_child child;
	struct python_runtime runtime;
	int64_t figures[3]; /* the first is sys.getallocatedblocks() */
};

static int interpreter_start(struct interpreter *interpreter, unsigned int minor)
{
	char path[PATH_MAX];

	*interpreter = (struct interpreter){0};
	if (access(SCRIPT, R_OK) || !python_path(minor, path))
		return -1;
	assert_int_equal(python_start(&interpreter->child, (char *[]){path, SCRIPT, NULL}, NULL),
			 0);
	assert_int_equal(fread(interpreter->figures, sizeof(interpreter->figures), 1,
			       interpreter->child.out),
			 1);
	python_wait_paused(&interpreter->child);
	assert_int_equal(python_runtime_find(interpreter->child.pid, NULL, &interpreter->runtime),
			 0);
	return 0;
}

static void interpreter_stop(struct interpreter *interpreter)
{
	python_runtime_close(&interpreter->runtime);
	python_stop(&interpreter->child);
}

static const struct {
	size_t field; /* offset in struct abi_offsets */
	const char *name;
} facts[] = {
	{offsetof(struct abi_offsets, interp_threads_head), "could not be proven"},
	{offsetof(struct abi_offsets, tstate_thread_id), "thread_id"},
	{offsetof(struct abi_offsets, frame_code), "code object"},
	{offsetof(struct abi_offsets, frame_instr), "instruction"},
	{offsetof(struct abi_offsets, code_filename), "co_filename"},
	{offsetof(struct abi_offsets, code_qualname), "co_qualname"},
	{offsetof(struct abi_offsets, code_lines), "co_linetable"},
};

/*
 * Moves the field's offset to that of another field. An empty value (a list without a thread, a
 * thread that runs no Python) proves nothing, so distances are tried until one is refused.
 */
static void field_bend(struct interpreter *interpreter, size_t index)
{
	const struct python_offsets *right = interpreter->runtime.offsets;
	int refused = 0;

	for (uint16_t distance = 8; distance <= MAX_DISTANCE && !refused; distance += 8) {
		struct python_offsets bent = *right;

		*(uint16_t *)((uint8_t *)&bent.abi + facts[index].field) += distance;
		interpreter->runtime.offsets = &bent;
		refused = layout_prove(&interpreter->runtime) == -ENOTSUP;
	}
	interpreter->runtime.offsets = right;
	if (!refused)
		fail_msg("%s elsewhere is not noticed", facts[index].name);
	if (!strstr(error_reason(-ENOTSUP), facts[index].name))
		fail_msg("%s elsewhere: %s", facts[index].name, error_reason(-ENOTSUP));
}

/*
 * From a wrong guess the heap's place is found again. It is the right one: every block is counted.
 */
static void heap_bend(struct interpreter *interpreter, int32_t distance)
{
	const struct python_offsets *right = interpreter->runtime.offsets;
	struct python_offsets bent = *right;
	struct heap_walk walk;
	struct abi_heap described;

	bent.heap.interp_obmalloc += (uint32_t)distance;
	interpreter->runtime.offsets = &bent;
	if (heap_find(&interpreter->runtime))
		fail_msg("%d bytes off: %s", distance, error_reason(-ENOTSUP));
	assert_int_equal(heap_read(&interpreter->runtime, NULL, NULL, &walk), 0);
	assert_int_equal(walk.blocks + walk.raw_blocks, interpreter->figures[0]);
	assert_int_equal(walk.pools_unreadable, 0);
	assert_int_equal(heap_describe(&interpreter->runtime, &described), 0);
	assert_int_equal(described.interp_obmalloc, right->heap.interp_obmalloc);
	interpreter->runtime.offsets = right;
}

static void heap_hide(struct interpreter *interpreter)
{
	const struct python_offsets *right = interpreter->runtime.offsets;
	struct python_offsets bent = *right;
	struct heap_walk walk;

	bent.heap.interp_obmalloc += 100000;
	interpreter->runtime.offsets = &bent;
	assert_int_equal(heap_find(&interpreter->runtime), -ENOTSUP);
	assert_non_null(strstr(error_reason(-ENOTSUP), "PyInterpreterState.obmalloc"));
	assert_int_equal(heap_read(&interpreter->runtime, NULL, NULL, &walk), -ENOTSUP);
	interpreter->runtime.offsets = right;
}

static void check_version(unsigned int minor)
{
	static const int32_t distances[] = {-24, 24, 8, 4096};
	struct interpreter interpreter;

	if (interpreter_start(&interpreter, minor))
		skip();
	assert_int_equal(layout_prove(&interpreter.runtime), 0);
	assert_int_equal(heap_find(&interpreter.runtime), 0);
	for (size_t i = 0; i < ARRAY(facts); i++)
		/* Up to 3.10 it is a small number, as many other values are. */
		if (minor > 10 || strcmp(facts[i].name, "instruction"))
			field_bend(&interpreter, i);
	if (interpreter.runtime.offsets->heap.interp_obmalloc) {
		for (size_t i = 0; i < ARRAY(distances); i++)
			heap_bend(&interpreter, distances[i]);
		heap_hide(&interpreter);
	}
	interpreter_stop(&interpreter);
}

VERSION_TESTS(check_version)

#define STATES 64u

/*
 * Endless lists of interpreters, threads and frames, all with wrong contents: the check still
 * returns.
 */
static void test_liar(void **state)
{
	const struct python_offsets *offsets = offsets_for(0x030d, BUILD_RELEASE);
	struct python_runtime runtime = {.pid = getpid(), .offsets = offsets};
	uint8_t *memory = calloc(STATES, 65536);

	(void)state;
	assert_int_equal(space_open(&runtime.space, getpid()), 0);
	runtime.target.runtime = (uintptr_t)memory;
	for (uint32_t i = 0; i < STATES; i++) {
		/* Each is an interpreter, its own thread and a frame. */
		uint8_t *at = memory + i * 65536;
		uint64_t this = (uintptr_t)at, next = (uintptr_t)memory + (i + 1) % STATES * 65536;

		memcpy(at + offsets->abi.runtime_interpreters_head, &this, 8);
		memcpy(at + offsets->abi.interp_next, &next, 8);
		memcpy(at + offsets->abi.interp_threads_head, &this, 8);
		memcpy(at + offsets->abi.tstate_next, &this, 8);
		memcpy(at + 16, &this, 8);
		memcpy(at + offsets->abi.tstate_frame, &next, 8);
	}
	assert_int_equal(layout_prove(&runtime), -ENOTSUP);
	assert_non_null(strstr(error_reason(-ENOTSUP), "could not be proven"));
	space_close(runtime.space);
	free(memory);
}

#define WORDS 66u /* the lists, the array of arenas and its length */

/* The lists of pools of an interpreter that has not used any, and variations. */
static void test_heap_state(void **state)
{
	const struct heap_offsets *heap = &offsets_for(0x030e, BUILD_RELEASE)->heap;
	const uint64_t address = 0x7f0000001000;
	uint64_t words[WORDS], other[WORDS];

	(void)state;
	assert_int_equal(heap->mgmt_maxarenas + 8, sizeof(words));
	for (uint32_t i = 0; i < WORDS - 2; i++)
		words[i] = address + i / 2 * 16 - 16;
	words[WORDS - 2] = words[WORDS - 1] = 0;
	assert_true(heap_place_is_state(heap, (const uint8_t *)words, address));
	/* A copy at another address is invalid, and so is the start of the size class before it. */
	assert_false(heap_place_is_state(heap, (const uint8_t *)words, address + 8));
	assert_false(heap_place_is_state(heap, (const uint8_t *)words, address - 16));
	words[6] = words[7] = 0x7f1234564000;
	assert_true(heap_place_is_state(heap, (const uint8_t *)words, address));
	memcpy(other, words, sizeof(other));
	other[7] += 8; /* no pool begins at this address */
	assert_false(heap_place_is_state(heap, (const uint8_t *)other, address));
	other[7] = 0;
	assert_false(heap_place_is_state(heap, (const uint8_t *)other, address));
	memcpy(other, words, sizeof(other));
	other[WORDS - 1] = 16; /* arenas without an array */
	assert_false(heap_place_is_state(heap, (const uint8_t *)other, address));
	other[WORDS - 2] = 0x55555576ab90;
	assert_true(heap_place_is_state(heap, (const uint8_t *)other, address));
	other[WORDS - 1] = 0xabcdef00; /* more than any machine's memory */
	assert_false(heap_place_is_state(heap, (const uint8_t *)other, address));
	memset(other, 0, sizeof(other));
	assert_false(heap_place_is_state(heap, (const uint8_t *)other, address));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_liar), cmocka_unit_test(test_heap_state),
		cmocka_unit_test(test_38),   cmocka_unit_test(test_39),
		cmocka_unit_test(test_310),  cmocka_unit_test(test_311),
		cmocka_unit_test(test_312),  cmocka_unit_test(test_313),
		cmocka_unit_test(test_314),  cmocka_unit_test(test_315),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
