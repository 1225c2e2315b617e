/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPython's structure layouts, per minor version. The table offsets_table.inc is generated from
 * DWARF by tools/offsets and checked in; for 3.13+ the fields of the interpreter's own
 * _Py_DebugOffsets replace those of the table. Unknown versions are refused, never read with
 * another version's offsets.
 */
#pragma once

#include <stdint.h>

#include "abi/target.h"
#include "object/insn/machine.h"

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

/*
 * Builds without the GIL: mimalloc's structures, which hold their heap, what waits there for other
 * threads, and the parts of a reference count. 0 in other builds.
 */
struct free_threaded_offsets {
	/* of a thread's state: its heaps, blocks to be freed once no other thread reads them */
	uint32_t tstate_heaps, tstate_queue, interp_queue;
	uint32_t heap_bytes, heap_queues, heap_delayed;              /* mi_heap_t */
	uint32_t queue_bytes, queue_count;                           /* mi_page_queue_t */
	uint32_t tld_abandoned;                                      /* mi_tld_t */
	uint32_t abandoned_bytes, abandoned_visited, abandoned_list; /* mi_abandoned_pool_t */
	/* mi_segment_t; slices: its pages */
	uint32_t segment_bytes, segment_cookie, segment_next, segment_info, segment_kind,
		segment_entries, segment_count, segment_slices;
	uint32_t page_bytes, page_slices, page_slice_offset, page_capacity, page_reserved,
		page_free, page_used, page_block, page_local, page_thread,
		page_next; /* mi_page_t */
	/* PyObject */
	uint32_t object_thread, object_bits, object_local, object_shared;
	/* per-thread counts of objects with a number (3.14+; ABI_NONE: none), and these objects */
	uint32_t tstate_counts, tstate_counts_size, interp_ids, interp_ids_size;
};

/*
 * Which words of an object are references, for user/inspect/graph/. Offsets in bytes within the
 * structure that the prefix names; ABI_NONE: the version has no such field. Other words of these
 * objects, and those of other types, need no entry: they are inspected word by word.
 */
struct object_offsets {
	uint16_t dict_used, dict_keys, dict_values;
	/*
	 * PyDictKeysObject; keys_size is a number of slots up to 3.10, the byte dk_log2_size from
	 * 3.11 on
	 */
	uint16_t keys_size, keys_index_log2, keys_kind, keys_count, keys_indices;
	uint16_t values_first; /* of PyDictValues (3.11+) */
	uint16_t list_items, list_capacity, tuple_items;
	uint16_t set_mask, set_table, set_small;
	uint16_t type_dict, type_bases, type_mro, type_base, type_subclasses, type_cache,
		type_members, type_dictoffset, type_weaklist, type_finalize;
	uint16_t heaptype_bytes; /* sizeof(PyHeapTypeObject) */
	uint16_t heaptype_name, heaptype_slots, heaptype_qualname, heaptype_keys, heaptype_module;
	uint16_t weakref_object, weakref_callback;
	uint16_t function_code, function_defaults, function_kwdefaults, function_closure,
		function_name, function_globals;
	uint16_t cell_value;
	uint16_t method_function, method_self;
	uint16_t module_dict, module_def;
	uint16_t view_object; /* memoryview: the word that borrows */
	/*
	 * PyFrameObject. Its variables and stack follow at frame_locals up to 3.10, its own
	 * _PyInterpreterFrame from 3.11 on. frame_stack_top is a pointer up to 3.9, an int in 3.10.
	 */
	uint16_t frame_locals, frame_stack_base, frame_stack_top, frame_generator, frame_inner;
	/* _PyInterpreterFrame; inner_stack_top is an int up to 3.13, a pointer from 3.14 on */
	uint16_t inner_locals, inner_object, inner_slots, inner_function, inner_stack_top;
	uint16_t generator_frame, generator_state, generator_name;
	uint16_t generator_cleared; /* value of generator_state: the frame holds nothing */
	uint16_t code_slots, code_slot_names, code_variables, code_cached, code_stack,
		code_weaklist;
	uint16_t code_arguments, code_constants, code_names; /* co_argcount, co_consts, co_names */
	uint16_t code_cells, code_instructions;              /* up to 3.10: co_cellvars, co_code */
	uint32_t interp_bytes, tstate_bytes; /* sizes of PyInterpreterState, PyThreadState */
	uint32_t interp_id;                  /* PyInterpreterState.id */
};

/* The cyclic garbage collector: struct _gc_runtime_state. */
struct collector_offsets {
	/* of that structure: in _PyRuntime up to 3.8, in PyInterpreterState from 3.9 on */
	uint32_t state;
	uint16_t enabled, young, permanent, garbage;
	/* struct gc_generation: a list's head comes first */
	uint16_t generation_bytes, threshold, count;
	uint16_t collecting, statistics;
	/* struct gc_generation_stats; duration 0: it has none, before 3.15 */
	uint16_t statistics_bytes, collections, collected, uncollectable, duration;
	/*
	 * statistics: a pointer to rings of the last collections, of the youngest generation and of
	 * the two others. The index of the last one is behind them, at that offset.
	 */
	uint16_t rings, young_ring, old_ring;
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

/* Builds of one version whose structures differ. */
enum python_build {
	BUILD_RELEASE,
	BUILD_DEBUG,         /* with Py_DEBUG: structures have more fields */
	BUILD_FREE_THREADED, /* with Py_GIL_DISABLED (3.13+): another object header, no pymalloc */
	BUILD_COUNT
};

struct python_offsets {
	uint32_t version; /* major << 8 | minor: 0x030b */
	uint32_t build;   /* enum python_build */
	/* position of each field in _Py_DebugOffsets, in words of 8 bytes; 0: none (<= 3.12) */
	uint8_t own[OWN_COUNT];
	enum lines_format lines;
	/* offset in _PyRuntime of the GIL holder's tstate (<= 3.11); 0 from 3.12 on */
	uint32_t gil_tstate;
	uint32_t tstate_context; /* of PyThreadState: the current context */
	struct abi_offsets abi;
	struct heap_offsets heap;
	struct object_offsets objects;
	struct collector_offsets collector;
	struct free_threaded_offsets free_threaded;
};

/* The layout of a version (major << 8 | minor) and a build; NULL: unknown. */
const struct python_offsets *offsets_for(uint32_t version, enum python_build build);
/* The layout of the newest known version, release build. */
const struct python_offsets *offsets_newest(void);
/*
 * Applies to *offsets, the layout of a version, the differences of one release (PY_VERSION_HEX). 1:
 * something was replaced; 0; -ENOTSUP: a pre-release that differs too much.
 */
int offsets_apply_release(uint32_t version_hex, struct python_offsets *offsets);
/*
 * Applies to *offsets, the layout on x86-64, the differences of another machine's glibc. 1:
 * something was replaced; 0.
 */
int offsets_apply_machine(const struct machine *machine, struct python_offsets *offsets);
/* For messages: "3.8, 3.9, …", the versions of which this build is known. */
const char *offsets_known(enum python_build build);

/*
 * Applies the interpreter's own offsets, 3.13 and later; bytes are the first of _PyRuntime
 * (_Py_DebugOffsets). Fields that differ replace those of *offsets. 1: something was replaced; 0:
 * all agreed; -ENOTSUP: free-threaded and *offsets is not, or the reverse, another version than
 * version_hex (PY_VERSION_HEX of the file), or damaged.
 */
#define OFFSETS_DEBUG_BYTES 1024u
int offsets_apply_debug(const uint8_t bytes[OFFSETS_DEBUG_BYTES], uint32_t version_hex,
			struct python_offsets *offsets);
