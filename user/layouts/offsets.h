/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPython's structure layouts, per minor version. The table offsets_table.inc is generated from
 * DWARF by tools/offsets and checked in; for 3.13+ the fields of the interpreter's own
 * _Py_DebugOffsets replace those of the table. Unknown versions are refused, never read with
 * another version's offsets.
 */
#ifndef TRACER_LAYOUTS_OFFSETS_H
#define TRACER_LAYOUTS_OFFSETS_H

#include <stdint.h>

#include "abi/target.h"

enum lines_format { LINES_LNOTAB, LINES_PAIRS, LINES_LOCATIONS }; /* <= 3.9, 3.10, 3.11+ */

/* Layout of pymalloc's structures. */
struct heap_offsets {
	/*
	 * 3.8-3.11: static variables of obmalloc.c, found by symbol (arenas, maxarenas,
	 * raw_allocated_blocks). 3.12: in the interpreter state; 3.13+: referred to by a pointer in
	 * the interpreter state.
	 */
	uint32_t interp_obmalloc; /* 0: static variables */
	uint32_t obmalloc_is_pointer;
	uint32_t mgmt_arenas, mgmt_maxarenas, mgmt_raw_blocks; /* within _obmalloc_state */
	uint32_t arena_object_size, arena_address, arena_pool_address, arena_nfreepools;
	uint32_t pool_count, pool_freeblock, pool_szidx, pool_nextoffset, pool_maxnextoffset,
		pool_header_size;
	uint32_t arena_bytes, pool_bytes, alignment;
	/*
	 * For objects in the blocks: PyTypeObject, and the header of objects that the garbage
	 * collector tracks.
	 */
	uint32_t type_name, type_flags, gc_head_bytes;
	/* Flags in the upper 16 bits of a reference count (3.14+). */
	uint32_t count_flags;
};

/* Fields that 3.13 and later export in _Py_DebugOffsets. */
enum own_field {
	OWN_INTERPRETERS_HEAD,
	OWN_INTERP_NEXT,
	OWN_INTERP_THREADS_HEAD,
	OWN_TSTATE_NEXT,
	OWN_TSTATE_FRAME,
	OWN_TSTATE_THREAD_ID,
	OWN_FRAME_PREVIOUS,
	OWN_FRAME_CODE,
	OWN_FRAME_INSTR,
	OWN_FRAME_OWNER,
	OWN_CODE_FILENAME,
	OWN_CODE_QUALNAME,
	OWN_CODE_LINES,
	OWN_CODE_FIRST_LINE,
	OWN_CODE_BYTECODE,
	OWN_OBJECT_TYPE,
	OWN_COUNT
};

struct python_offsets {
	uint32_t version;  /* major << 8 | minor: 0x030b */
	uint32_t py_debug; /* 1: a build with Py_DEBUG, whose structures have more fields */
	/* position of each field in _Py_DebugOffsets, in words of 8 bytes; 0: none (<= 3.12) */
	uint8_t own[OWN_COUNT];
	enum lines_format lines;
	/* offset in _PyRuntime of the GIL holder's tstate (<= 3.11); 0 from 3.12 on */
	uint32_t gil_tstate;
	struct abi_offsets abi;
	struct heap_offsets heap;
};

/* The layout of a version (major << 8 | minor), built with Py_DEBUG or not; NULL: unknown. */
const struct python_offsets *offsets_for(uint32_t version, int py_debug);
/* The layout of the newest known version, release build. */
const struct python_offsets *offsets_newest(void);
/*
 * Applies to *offsets, the layout of a version, the differences of one release (PY_VERSION_HEX). 1:
 * something was replaced; 0; -ENOTSUP: a pre-release that differs too much.
 */
int offsets_apply_release(uint32_t version_hex, struct python_offsets *offsets);
/* For messages: "3.8, 3.9, …", the known versions, and those with a known Py_DEBUG layout. */
const char *offsets_known(void);
const char *offsets_known_debug(void);

/*
 * Applies the interpreter's own offsets, 3.13 and later; bytes are the first of _PyRuntime
 * (_Py_DebugOffsets). Fields that differ replace those of *offsets. 1: something was replaced; 0:
 * all agreed; -ENOTSUP: free-threaded, another version than version_hex (PY_VERSION_HEX of the
 * file), or damaged.
 */
#define OFFSETS_DEBUG_BYTES 1024u
int offsets_apply_debug(const uint8_t bytes[OFFSETS_DEBUG_BYTES], uint32_t version_hex,
			struct python_offsets *offsets);

#endif
