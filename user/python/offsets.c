/* SPDX-License-Identifier: Apache-2.0 */
#include "python/offsets.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"

static const struct python_offsets table[] = {
#include "python/offsets_table.inc"
};

#define TABLE_COUNT (sizeof(table) / sizeof(table[0]))

/*
 * _Py_DebugOffsets (Include/internal/pycore_runtime.h, pycore_debug_offsets.h) begins with {cookie, PY_VERSION_HEX,
 * free-threaded?} and goes on with offsets, all words of 8 bytes. Where they stand differs: one column a version.
 */
enum { WORD_COOKIE, WORD_VERSION, WORD_FREE_THREADED };

#define DEBUG_FIRST 0x030du
#define DEBUG_COUNT 2u

static const struct debug_field {
	uint16_t field; /* of struct abi_offsets */
	uint8_t words[DEBUG_COUNT];
} debug_fields[] = {
	{offsetof(struct abi_offsets, runtime_interpreters_head), {5, 5}},
	{offsetof(struct abi_offsets, interp_next), {8, 8}},
	{offsetof(struct abi_offsets, interp_threads_head), {9, 9}},
	{offsetof(struct abi_offsets, tstate_next), {21, 24}},
	{offsetof(struct abi_offsets, tstate_frame), {23, 26}},
	{offsetof(struct abi_offsets, tstate_thread_id), {24, 27}},
	{offsetof(struct abi_offsets, frame_previous), {29, 32}},
	{offsetof(struct abi_offsets, frame_code), {30, 33}},
	{offsetof(struct abi_offsets, frame_instr), {31, 34}},
	{offsetof(struct abi_offsets, frame_owner), {33, 36}},
	{offsetof(struct abi_offsets, code_filename), {35, 40}},
	{offsetof(struct abi_offsets, code_qualname), {37, 42}},
	{offsetof(struct abi_offsets, code_lines), {38, 43}},
	{offsetof(struct abi_offsets, code_first_line), {39, 44}},
	{offsetof(struct abi_offsets, code_bytecode), {43, 48}},
	{offsetof(struct abi_offsets, object_type), {45, 51}},
};

const struct python_offsets *offsets_for(uint32_t version)
{
	for (size_t i = 0; i < TABLE_COUNT; i++)
		if (table[i].version == version)
			return &table[i];
	return NULL;
}

const char *offsets_known(void)
{
	return "3.8, 3.9, 3.10, 3.11, 3.12, 3.13, 3.14";
}

int offsets_apply_debug(const uint8_t bytes[OFFSETS_DEBUG_BYTES], uint32_t version_hex,
			struct python_offsets *offsets)
{
	uint64_t words[OFFSETS_DEBUG_BYTES / sizeof(uint64_t)];
	uint32_t column = (version_hex >> 16) - DEBUG_FIRST;
	int changed = 0;

	memcpy(words, bytes, sizeof(words));
	if (memcmp(&words[WORD_COOKIE], "xdebugpy", sizeof(words[WORD_COOKIE])))
		return error_set(-ENOTSUP, "its _PyRuntime does not start with the mark of debug offsets");
	if (words[WORD_VERSION] != version_hex || column >= DEBUG_COUNT)
		return error_set(-ENOTSUP, "its debug offsets are of version 0x%08llx, the file of 0x%08x",
				 (unsigned long long)words[WORD_VERSION], version_hex);
	if (words[WORD_FREE_THREADED])
		return error_set(-ENOTSUP, "a free-threaded build of Python, which is not supported");
	for (size_t i = 0; i < sizeof(debug_fields) / sizeof(debug_fields[0]); i++) {
		uint16_t *field = (uint16_t *)((uint8_t *)&offsets->abi + debug_fields[i].field);
		uint64_t value = words[debug_fields[i].words[column]];

		if (value >= ABI_NONE)
			return error_set(-ENOTSUP, "its debug offsets hold an impossible offset (%llu)",
					 (unsigned long long)value);
		changed |= *field != value;
		*field = (uint16_t)value;
	}
	return changed;
}
