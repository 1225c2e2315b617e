/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpython/offsets.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "util/array.h"
#include "util/error.h"

static const struct python_offsets table[] = {
#include "runtime/cpython/offsets_table.inc"
};

#define TABLE_COUNT (ARRAY_SIZE(table))

/*
 * _Py_DebugOffsets (Include/internal/pycore_runtime.h, pycore_debug_offsets.h) begins with {cookie,
 * PY_VERSION_HEX, free-threaded?} and continues with offsets, all words of 8 bytes. The positions
 * of the fields differ by version and are in the table.
 */
enum { WORD_COOKIE, WORD_VERSION, WORD_FREE_THREADED };

#define WORDS (OFFSETS_DEBUG_BYTES / sizeof(uint64_t))

static const uint16_t own_fields[OWN_COUNT] = {
	[OWN_INTERPRETERS_HEAD] = offsetof(struct abi_offsets, runtime_interpreters_head),
	[OWN_INTERP_NEXT] = offsetof(struct abi_offsets, interp_next),
	[OWN_INTERP_THREADS_HEAD] = offsetof(struct abi_offsets, interp_threads_head),
	[OWN_TSTATE_NEXT] = offsetof(struct abi_offsets, tstate_next),
	[OWN_TSTATE_FRAME] = offsetof(struct abi_offsets, tstate_frame),
	[OWN_TSTATE_THREAD_ID] = offsetof(struct abi_offsets, tstate_thread_id),
	[OWN_FRAME_PREVIOUS] = offsetof(struct abi_offsets, frame_previous),
	[OWN_FRAME_CODE] = offsetof(struct abi_offsets, frame_code),
	[OWN_FRAME_INSTR] = offsetof(struct abi_offsets, frame_instr),
	[OWN_FRAME_OWNER] = offsetof(struct abi_offsets, frame_owner),
	[OWN_CODE_FILENAME] = offsetof(struct abi_offsets, code_filename),
	[OWN_CODE_QUALNAME] = offsetof(struct abi_offsets, code_qualname),
	[OWN_CODE_LINES] = offsetof(struct abi_offsets, code_lines),
	[OWN_CODE_FIRST_LINE] = offsetof(struct abi_offsets, code_first_line),
	[OWN_CODE_BYTECODE] = offsetof(struct abi_offsets, code_bytecode),
	[OWN_OBJECT_TYPE] = offsetof(struct abi_offsets, object_type),
};

const struct python_offsets *offsets_for(uint32_t version, enum python_build build)
{
	for (size_t i = 0; i < TABLE_COUNT; i++)
		if (table[i].version == version && table[i].build == build)
			return &table[i];
	return NULL;
}

/*
 * How releases differ from the last release of their version, which the table describes
 * (tools/release-layouts).
 */
static const struct {
	uint32_t first, last;   /* PY_VERSION_HEX */
	int32_t obmalloc_shift; /* added to heap.interp_obmalloc; 0: the release differs too much */
} releases[] = {
	{0x030c0000, 0x030c00b3, 0},   {0x030d0000, 0x030d00c1, 0},   {0x030e0000, 0x030e00b1, 0},
	{0x030e00b2, 0x030e03f0, -32}, {0x030e0400, 0x030e04f0, -24}, {0x030f0000, 0x030f00b3, 0},
};

int offsets_apply_release(uint32_t version_hex, struct python_offsets *offsets)
{
	for (size_t i = 0; i < ARRAY_SIZE(releases); i++) {
		/* The lower half is 0 if only the minor version is known. */
		if (version_hex < releases[i].first || version_hex > releases[i].last ||
		    !(version_hex & 0xffff))
			continue;
		if (!releases[i].obmalloc_shift)
			return error_set(
				-ENOTSUP,
				"it is a pre-release of Python %u.%u, which had other structures",
				version_hex >> 24, version_hex >> 16 & 0xff);
		offsets->heap.interp_obmalloc += (uint32_t)releases[i].obmalloc_shift;
		return 1;
	}
	return 0;
}

/*
 * On arm64 glibc's pthread_mutex_t has 48 bytes instead of 40, and the structure of the GIL has two
 * of them. It is in _PyRuntime up to 3.11, before the current thread state, and since 3.12 in the
 * interpreter's state, from 3.13 on before the heap (DWARF of 3.11, 3.13 and 3.14 in Debian).
 */
#define GIL_MORE          16
#define HEAP_BEHIND_GIL   0x030d
#define INTERP_BYTES_MORE 24 /* with what else is aligned then, at most */

int offsets_apply_machine(const struct machine *machine, struct python_offsets *offsets)
{
	if (machine != &machine_arm64)
		return 0;
	if (offsets->gil_tstate)
		offsets->gil_tstate += GIL_MORE;
	if (offsets->version >= HEAP_BEHIND_GIL) {
		offsets->heap.interp_obmalloc += GIL_MORE;
		offsets->objects.interp_bytes += INTERP_BYTES_MORE;
	}
	return 1;
}

const struct python_offsets *offsets_newest(void)
{
	const struct python_offsets *newest = &table[0];

	for (size_t i = 1; i < TABLE_COUNT; i++)
		if (table[i].build == BUILD_RELEASE && table[i].version > newest->version)
			newest = &table[i];
	return newest;
}

const char *offsets_known(enum python_build build)
{
	static const char *const known[BUILD_COUNT] = {
		[BUILD_RELEASE] = OFFSETS_KNOWN_RELEASE,
		[BUILD_DEBUG] = OFFSETS_KNOWN_DEBUG,
		[BUILD_FREE_THREADED] = OFFSETS_KNOWN_FREE_THREADED,
	};

	return known[build];
}

int offsets_apply_debug(const uint8_t bytes[OFFSETS_DEBUG_BYTES], uint32_t version_hex,
			struct python_offsets *offsets)
{
	uint64_t words[WORDS];
	int changed = 0;

	memcpy(words, bytes, sizeof(words));
	if (memcmp(&words[WORD_COOKIE], "xdebugpy", sizeof(words[WORD_COOKIE])))
		return error_set(-ENOTSUP,
				 "its _PyRuntime does not start with the mark of debug offsets");
	if (words[WORD_VERSION] != version_hex || version_hex >> 16 != offsets->version)
		return error_set(-ENOTSUP,
				 "its debug offsets are of version 0x%08llx, the file of 0x%08x",
				 (unsigned long long)words[WORD_VERSION], version_hex);
	if (!words[WORD_FREE_THREADED] != (offsets->build != BUILD_FREE_THREADED))
		return error_set(-ENOTSUP,
				 "its debug offsets and its file do not agree whether it is a "
				 "free-threaded build");
	for (size_t i = 0; i < OWN_COUNT; i++) {
		uint16_t *field = (uint16_t *)((uint8_t *)&offsets->abi + own_fields[i]);

		if (!offsets->own[i] || offsets->own[i] >= WORDS)
			return error_set(
				-ENOTSUP,
				"the position of a field in its debug offsets is not known");
		uint64_t value = words[offsets->own[i]];
		if (value >= ABI_NONE)
			return error_set(-ENOTSUP,
					 "its debug offsets hold an impossible offset (%llu)",
					 (unsigned long long)value);
		changed |= *field != value;
		*field = (uint16_t)value;
	}
	return changed;
}
