/* SPDX-License-Identifier: Apache-2.0 */
/* Where each field of struct python_offsets is in CPython's DWARF, by version. */
#ifndef TRACER_TOOLS_OFFSETS_SPECS_H
#define TRACER_TOOLS_OFFSETS_SPECS_H

#include <stdint.h>

#include "abi/target.h"

#define V(minor) (0x0300u | (minor))
#define ANY      0xffffu

enum spec_kind {
	OFFSET,   /* of the member path within type */
	OPTIONAL, /* as OFFSET; ABI_NONE if the build has no such member */
	SIZE,     /* of type */
	/* of a type that stands before objects where there is a GIL; else 0 */
	SIZE_WITH_GIL,
	/* bits between the start of the struct that holds the bit field and the bit field */
	SHIFT,
	ENUM,    /* value of the enumerator path; type is not used */
	POINTER, /* 1 when the member is a pointer, else 0 */
	WORD,    /* of the member path within type, in words of 8 bytes */
	CONST,   /* a macro of CPython's, which DWARF does not keep: value */
};

struct spec {
	const char *field;
	enum spec_kind kind;
	const char *type; /* typedef name or struct tag */
	const char *path; /* members, separated by dots */
	uint32_t first, last, value;
};

/* The specs of one field stand together; the first whose range holds the version counts. */
static const struct spec specs[] = {
	/* The interpreter's own word on these, from 3.13 on. */
	{"own[OWN_INTERPRETERS_HEAD]", WORD, "_Py_DebugOffsets", "runtime_state.interpreters_head",
	 V(13), ANY, 0},
	{"own[OWN_INTERP_NEXT]", WORD, "_Py_DebugOffsets", "interpreter_state.next", V(13), ANY, 0},
	{"own[OWN_INTERP_THREADS_HEAD]", WORD, "_Py_DebugOffsets", "interpreter_state.threads_head",
	 V(13), ANY, 0},
	{"own[OWN_TSTATE_NEXT]", WORD, "_Py_DebugOffsets", "thread_state.next", V(13), ANY, 0},
	{"own[OWN_TSTATE_FRAME]", WORD, "_Py_DebugOffsets", "thread_state.current_frame", V(13),
	 ANY, 0},
	{"own[OWN_TSTATE_THREAD_ID]", WORD, "_Py_DebugOffsets", "thread_state.thread_id", V(13),
	 ANY, 0},
	{"own[OWN_FRAME_PREVIOUS]", WORD, "_Py_DebugOffsets", "interpreter_frame.previous", V(13),
	 ANY, 0},
	{"own[OWN_FRAME_CODE]", WORD, "_Py_DebugOffsets", "interpreter_frame.executable", V(13),
	 ANY, 0},
	{"own[OWN_FRAME_INSTR]", WORD, "_Py_DebugOffsets", "interpreter_frame.instr_ptr", V(13),
	 ANY, 0},
	{"own[OWN_FRAME_OWNER]", WORD, "_Py_DebugOffsets", "interpreter_frame.owner", V(13), ANY,
	 0},
	{"own[OWN_CODE_FILENAME]", WORD, "_Py_DebugOffsets", "code_object.filename", V(13), ANY, 0},
	{"own[OWN_CODE_QUALNAME]", WORD, "_Py_DebugOffsets", "code_object.qualname", V(13), ANY, 0},
	{"own[OWN_CODE_LINES]", WORD, "_Py_DebugOffsets", "code_object.linetable", V(13), ANY, 0},
	{"own[OWN_CODE_FIRST_LINE]", WORD, "_Py_DebugOffsets", "code_object.firstlineno", V(13),
	 ANY, 0},
	{"own[OWN_CODE_BYTECODE]", WORD, "_Py_DebugOffsets", "code_object.co_code_adaptive", V(13),
	 ANY, 0},
	{"own[OWN_OBJECT_TYPE]", WORD, "_Py_DebugOffsets", "pyobject.ob_type", V(13), ANY, 0},

	{"gil_tstate", OFFSET, "_PyRuntimeState", "gilstate.tstate_current", V(8), V(11), 0},
	{"gil_tstate", CONST, NULL, NULL, V(12), ANY, 0},

	{"abi.runtime_interpreters_head", OFFSET, "_PyRuntimeState", "interpreters.head", V(8), ANY,
	 0},
	{"abi.interp_next", OFFSET, "PyInterpreterState", "next", V(8), ANY, 0},
	{"abi.interp_threads_head", OFFSET, "PyInterpreterState", "tstate_head", V(8), V(10), 0},
	{"abi.interp_threads_head", OFFSET, "PyInterpreterState", "threads.head", V(11), ANY, 0},
	{"abi.tstate_next", OFFSET, "PyThreadState", "next", V(8), ANY, 0},
	{"abi.tstate_thread_id", OFFSET, "PyThreadState", "thread_id", V(8), ANY, 0},
	{"abi.tstate_frame", OFFSET, "PyThreadState", "frame", V(8), V(10), 0},
	{"abi.tstate_frame", CONST, NULL, NULL, V(11), V(12), ABI_NONE},
	{"abi.tstate_frame", OFFSET, "PyThreadState", "current_frame", V(13), ANY, 0},
	{"abi.tstate_cframe", OFFSET, "PyThreadState", "cframe", V(10), V(12), 0},
	{"abi.tstate_cframe", CONST, NULL, NULL, V(8), ANY, ABI_NONE},
	{"abi.cframe_current_frame", OFFSET, "_PyCFrame", "current_frame", V(11), V(12), 0},
	{"abi.cframe_current_frame", CONST, NULL, NULL, V(8), ANY, ABI_NONE},
	{"abi.cframe_previous", OFFSET, "CFrame", "previous", V(10), V(10), 0},
	{"abi.cframe_previous", OFFSET, "_PyCFrame", "previous", V(11), V(11), 0},
	{"abi.cframe_previous", CONST, NULL, NULL, V(8), ANY, ABI_NONE},
	{"abi.frame_code", OFFSET, "PyFrameObject", "f_code", V(8), V(10), 0},
	{"abi.frame_code", OFFSET, "_PyInterpreterFrame", "f_code", V(11), V(12), 0},
	{"abi.frame_code", OFFSET, "_PyInterpreterFrame", "f_executable", V(13), ANY, 0},
	{"abi.frame_previous", OFFSET, "PyFrameObject", "f_back", V(8), V(10), 0},
	{"abi.frame_previous", OFFSET, "_PyInterpreterFrame", "previous", V(11), ANY, 0},
	{"abi.frame_instr", OFFSET, "PyFrameObject", "f_lasti", V(8), V(10), 0},
	{"abi.frame_instr", OFFSET, "_PyInterpreterFrame", "prev_instr", V(11), V(12), 0},
	{"abi.frame_instr", OFFSET, "_PyInterpreterFrame", "instr_ptr", V(13), ANY, 0},
	{"abi.frame_owner", CONST, NULL, NULL, V(8), V(10), ABI_NONE},
	{"abi.frame_owner", OFFSET, "_PyInterpreterFrame", "owner", V(11), ANY, 0},
	{"abi.frame_copy", CONST, NULL, NULL, V(8), V(13), ABI_NONE},
	{"abi.frame_copy", OPTIONAL, "_PyInterpreterFrame", "tlbc_index", V(14), ANY, 0},
	{"abi.frame_entry", CONST, NULL, NULL, V(8), V(10), 0},
	{"abi.frame_entry", OFFSET, "_PyInterpreterFrame", "is_entry", V(11), V(11), 0},
	{"abi.frame_entry", OFFSET, "_PyInterpreterFrame", "owner", V(12), ANY, 0},
	{"abi.code_first_line", OFFSET, "PyCodeObject", "co_firstlineno", V(8), ANY, 0},
	{"abi.code_filename", OFFSET, "PyCodeObject", "co_filename", V(8), ANY, 0},
	{"abi.code_qualname", OFFSET, "PyCodeObject", "co_name", V(8), V(10), 0},
	{"abi.code_qualname", OFFSET, "PyCodeObject", "co_qualname", V(11), ANY, 0},
	{"abi.code_lines", OFFSET, "PyCodeObject", "co_lnotab", V(8), V(9), 0},
	{"abi.code_lines", OFFSET, "PyCodeObject", "co_linetable", V(10), ANY, 0},
	{"abi.code_mark", OFFSET, "PyCodeObject", "co_lnotab", V(8), V(9), 0},
	{"abi.code_mark", OFFSET, "PyCodeObject", "co_linetable", V(10), V(11), 0},
	{"abi.code_mark", OFFSET, "PyCodeObject", "co_version", V(12), ANY, 0},
	{"abi.code_bytecode", CONST, NULL, NULL, V(8), V(10), ABI_NONE},
	{"abi.code_bytecode", OFFSET, "PyCodeObject", "co_code_adaptive", V(11), ANY, 0},
	/* Only free-threaded builds have these. */
	{"abi.code_copies", CONST, NULL, NULL, V(8), V(13), ABI_NONE},
	{"abi.code_copies", OPTIONAL, "PyCodeObject", "co_tlbc", V(14), ANY, 0},
	{"abi.code_first_traceable", CONST, NULL, NULL, V(8), V(10), ABI_NONE},
	{"abi.code_first_traceable", OFFSET, "PyCodeObject", "_co_firsttraceable", V(11), ANY, 0},
	{"abi.object_type", OFFSET, "PyObject", "ob_type", V(8), ANY, 0},
	{"abi.bytes_size", OFFSET, "PyVarObject", "ob_size", V(8), ANY, 0},
	{"abi.bytes_data", OFFSET, "PyBytesObject", "ob_sval", V(8), ANY, 0},
	{"abi.unicode_length", OFFSET, "PyASCIIObject", "length", V(8), ANY, 0},
	{"abi.unicode_state", OFFSET, "PyASCIIObject", "state", V(8), ANY, 0},
	{"abi.unicode_ascii", SIZE, "PyASCIIObject", NULL, V(8), ANY, 0},
	{"abi.unicode_compact", SIZE, "PyCompactUnicodeObject", NULL, V(8), ANY, 0},
	{"abi.unicode_kind_shift", SHIFT, "PyASCIIObject", "state.kind", V(8), ANY, 0},
	/* f_lasti counts bytes up to 3.9 and code units of two bytes in 3.10. */
	{"abi.frame_lasti_scale", CONST, NULL, NULL, V(8), V(9), 1},
	{"abi.frame_lasti_scale", CONST, NULL, NULL, V(10), V(10), 2},
	{"abi.frame_lasti_scale", CONST, NULL, NULL, V(11), ANY, 0},
	{"abi.owner_generator", CONST, NULL, NULL, V(8), V(10), 0},
	{"abi.owner_generator", ENUM, NULL, "FRAME_OWNED_BY_GENERATOR", V(11), ANY, 0},
	{"abi.owner_skip", CONST, NULL, NULL, V(8), V(11), 255},
	{"abi.owner_skip", ENUM, NULL, "FRAME_OWNED_BY_CSTACK", V(12), V(13), 0},
	/* The interpreter's own entry frame; the C stack's follow it. */
	{"abi.owner_skip", ENUM, NULL, "FRAME_OWNED_BY_INTERPRETER", V(14), ANY, 0},
	{"abi.entry_from", CONST, NULL, NULL, V(8), V(10), 0},
	{"abi.entry_from", CONST, NULL, NULL, V(11), V(11), 1},
	{"abi.entry_from", ENUM, NULL, "FRAME_OWNED_BY_CSTACK", V(12), V(13), 0},
	{"abi.entry_from", ENUM, NULL, "FRAME_OWNED_BY_INTERPRETER", V(14), ANY, 0},
	/* From 3.13 on f_executable is any object; 3.14 makes it a tagged reference. */
	{"abi.frame_code_tagged", CONST, NULL, NULL, V(8), V(13), 0},
	{"abi.frame_code_tagged", CONST, NULL, NULL, V(14), ANY, 1},
	{"abi.frame_code_checked", CONST, NULL, NULL, V(8), V(12), 0},
	{"abi.frame_code_checked", CONST, NULL, NULL, V(13), ANY, 1},
	{"abi.code_versioned", CONST, NULL, NULL, V(8), V(11), 0},
	{"abi.code_versioned", CONST, NULL, NULL, V(12), ANY, 1},

	{"heap.interp_obmalloc", OFFSET, "PyInterpreterState", "obmalloc", V(12), ANY, 0},
	{"heap.interp_obmalloc", CONST, NULL, NULL, V(8), V(11), 0},
	{"heap.obmalloc_is_pointer", POINTER, "PyInterpreterState", "obmalloc", V(12), ANY, 0},
	{"heap.obmalloc_is_pointer", CONST, NULL, NULL, V(8), V(11), 0},
	{"heap.mgmt_arenas", OFFSET, "_obmalloc_state", "mgmt.arenas", V(12), ANY, 0},
	{"heap.mgmt_arenas", CONST, NULL, NULL, V(8), V(11), 0},
	{"heap.mgmt_maxarenas", OFFSET, "_obmalloc_state", "mgmt.maxarenas", V(12), ANY, 0},
	{"heap.mgmt_maxarenas", CONST, NULL, NULL, V(8), V(11), 0},
	{"heap.mgmt_raw_blocks", OFFSET, "_obmalloc_state", "mgmt.raw_allocated_blocks", V(12), ANY,
	 0},
	{"heap.mgmt_raw_blocks", CONST, NULL, NULL, V(8), V(11), 0},
	{"heap.arena_object_size", SIZE, "arena_object", NULL, V(8), ANY, 0},
	{"heap.arena_address", OFFSET, "arena_object", "address", V(8), ANY, 0},
	{"heap.arena_pool_address", OFFSET, "arena_object", "pool_address", V(8), ANY, 0},
	{"heap.arena_nfreepools", OFFSET, "arena_object", "nfreepools", V(8), ANY, 0},
	{"heap.pool_count", OFFSET, "pool_header", "ref.count", V(8), ANY, 0},
	{"heap.pool_freeblock", OFFSET, "pool_header", "freeblock", V(8), ANY, 0},
	{"heap.pool_szidx", OFFSET, "pool_header", "szidx", V(8), ANY, 0},
	{"heap.pool_nextoffset", OFFSET, "pool_header", "nextoffset", V(8), ANY, 0},
	{"heap.pool_maxnextoffset", OFFSET, "pool_header", "maxnextoffset", V(8), ANY, 0},
	/* POOL_OVERHEAD: sizeof(struct pool_header), which is 48, is a multiple of ALIGNMENT. */
	{"heap.pool_header_size", SIZE, "pool_header", NULL, V(8), ANY, 0},
	/*
	 * ARENA_SIZE, POOL_SIZE, ALIGNMENT of obmalloc.c; arenas and pools grew with the radix tree
	 * of 3.10.
	 */
	{"heap.arena_bytes", CONST, NULL, NULL, V(8), V(9), 256 << 10},
	{"heap.arena_bytes", CONST, NULL, NULL, V(10), ANY, 1 << 20},
	{"heap.pool_bytes", CONST, NULL, NULL, V(8), V(9), 4 << 10},
	{"heap.pool_bytes", CONST, NULL, NULL, V(10), ANY, 16 << 10},
	{"heap.alignment", CONST, NULL, NULL, V(8), ANY, 16},
	{"heap.type_name", OFFSET, "PyTypeObject", "tp_name", V(8), ANY, 0},
	{"heap.type_flags", OFFSET, "PyTypeObject", "tp_flags", V(8), ANY, 0},
	{"heap.gc_head_bytes", SIZE_WITH_GIL, "PyGC_Head", NULL, V(8), ANY, 0},
	/*
	 * 3.14 split the reference count: its upper 16 bits are ob_flags, of which the lower 8 are
	 * in use.
	 */
	{"heap.count_flags", CONST, NULL, NULL, V(8), V(13), 0},
	{"heap.count_flags", CONST, NULL, NULL, V(14), ANY, 255},

	/* Objects: which of their words are references, for user/graph/. */
	{"objects.dict_used", OFFSET, "PyDictObject", "ma_used", V(8), ANY, 0},
	{"objects.dict_keys", OFFSET, "PyDictObject", "ma_keys", V(8), ANY, 0},
	{"objects.dict_values", OFFSET, "PyDictObject", "ma_values", V(8), ANY, 0},
	/* dk_size is a number of slots up to 3.10, its logarithm from 3.11 on. */
	{"objects.keys_size", OFFSET, "_dictkeysobject", "dk_size", V(8), V(10), 0},
	{"objects.keys_size", OFFSET, "_dictkeysobject", "dk_log2_size", V(11), ANY, 0},
	{"objects.keys_index_log2", CONST, NULL, NULL, V(8), V(10), ABI_NONE},
	{"objects.keys_index_log2", OFFSET, "_dictkeysobject", "dk_log2_index_bytes", V(11), ANY,
	 0},
	{"objects.keys_kind", CONST, NULL, NULL, V(8), V(10), ABI_NONE},
	{"objects.keys_kind", OFFSET, "_dictkeysobject", "dk_kind", V(11), ANY, 0},
	{"objects.keys_count", OFFSET, "_dictkeysobject", "dk_nentries", V(8), ANY, 0},
	{"objects.keys_indices", OFFSET, "_dictkeysobject", "dk_indices", V(8), ANY, 0},
	{"objects.values_first", CONST, NULL, NULL, V(8), V(10), ABI_NONE},
	{"objects.values_first", OFFSET, "_dictvalues", "values", V(11), ANY, 0},
	{"objects.list_items", OFFSET, "PyListObject", "ob_item", V(8), ANY, 0},
	{"objects.list_capacity", OFFSET, "PyListObject", "allocated", V(8), ANY, 0},
	{"objects.tuple_items", OFFSET, "PyTupleObject", "ob_item", V(8), ANY, 0},
	{"objects.set_mask", OFFSET, "PySetObject", "mask", V(8), ANY, 0},
	{"objects.set_table", OFFSET, "PySetObject", "table", V(8), ANY, 0},
	{"objects.set_small", OFFSET, "PySetObject", "smalltable", V(8), ANY, 0},
	{"objects.type_dict", OFFSET, "PyTypeObject", "tp_dict", V(8), ANY, 0},
	{"objects.type_bases", OFFSET, "PyTypeObject", "tp_bases", V(8), ANY, 0},
	{"objects.type_mro", OFFSET, "PyTypeObject", "tp_mro", V(8), ANY, 0},
	{"objects.type_base", OFFSET, "PyTypeObject", "tp_base", V(8), ANY, 0},
	{"objects.type_subclasses", OFFSET, "PyTypeObject", "tp_subclasses", V(8), ANY, 0},
	{"objects.type_cache", OFFSET, "PyTypeObject", "tp_cache", V(8), ANY, 0},
	{"objects.type_members", OFFSET, "PyTypeObject", "tp_members", V(8), ANY, 0},
	{"objects.type_dictoffset", OFFSET, "PyTypeObject", "tp_dictoffset", V(8), ANY, 0},
	{"objects.type_weaklist", OFFSET, "PyTypeObject", "tp_weaklistoffset", V(8), ANY, 0},
	{"objects.type_finalize", OFFSET, "PyTypeObject", "tp_finalize", V(8), ANY, 0},
	{"objects.heaptype_bytes", SIZE, "PyHeapTypeObject", NULL, V(8), ANY, 0},
	{"objects.heaptype_name", OFFSET, "PyHeapTypeObject", "ht_name", V(8), ANY, 0},
	{"objects.heaptype_slots", OFFSET, "PyHeapTypeObject", "ht_slots", V(8), ANY, 0},
	{"objects.heaptype_qualname", OFFSET, "PyHeapTypeObject", "ht_qualname", V(8), ANY, 0},
	{"objects.heaptype_keys", OFFSET, "PyHeapTypeObject", "ht_cached_keys", V(8), ANY, 0},
	{"objects.heaptype_module", CONST, NULL, NULL, V(8), V(8), ABI_NONE},
	{"objects.heaptype_module", OFFSET, "PyHeapTypeObject", "ht_module", V(9), ANY, 0},
	{"objects.weakref_object", OFFSET, "PyWeakReference", "wr_object", V(8), ANY, 0},
	{"objects.weakref_callback", OFFSET, "PyWeakReference", "wr_callback", V(8), ANY, 0},
	{"objects.function_code", OFFSET, "PyFunctionObject", "func_code", V(8), ANY, 0},
	{"objects.function_defaults", OFFSET, "PyFunctionObject", "func_defaults", V(8), ANY, 0},
	{"objects.function_kwdefaults", OFFSET, "PyFunctionObject", "func_kwdefaults", V(8), ANY,
	 0},
	{"objects.function_closure", OFFSET, "PyFunctionObject", "func_closure", V(8), ANY, 0},
	{"objects.function_name", OFFSET, "PyFunctionObject", "func_qualname", V(8), ANY, 0},
	{"objects.function_globals", OFFSET, "PyFunctionObject", "func_globals", V(8), ANY, 0},
	{"objects.cell_value", OFFSET, "PyCellObject", "ob_ref", V(8), ANY, 0},
	{"objects.method_function", OFFSET, "PyMethodObject", "im_func", V(8), ANY, 0},
	{"objects.method_self", OFFSET, "PyMethodObject", "im_self", V(8), ANY, 0},
	{"objects.module_dict", OFFSET, "PyModuleObject", "md_dict", V(8), ANY, 0},
	{"objects.module_def", OFFSET, "PyModuleObject", "md_def", V(8), V(14), 0},
	{"objects.module_def", OFFSET, "PyModuleObject", "md_token", V(15), ANY, 0},
	/* f_stacktop is a pointer up to 3.9, f_stackdepth a number in 3.10. */
	{"objects.view_object", OFFSET, "PyMemoryViewObject", "view.obj", V(8), ANY, 0},
	{"objects.frame_locals", OFFSET, "_frame", "f_localsplus", V(8), V(10), 0},
	{"objects.frame_locals", OFFSET, "_frame", "_f_frame_data", V(11), ANY, 0},
	{"objects.frame_stack_base", OFFSET, "_frame", "f_valuestack", V(8), V(10), 0},
	{"objects.frame_stack_base", CONST, NULL, NULL, V(11), ANY, ABI_NONE},
	{"objects.frame_stack_top", OFFSET, "_frame", "f_stacktop", V(8), V(9), 0},
	{"objects.frame_stack_top", OFFSET, "_frame", "f_stackdepth", V(10), V(10), 0},
	{"objects.frame_stack_top", CONST, NULL, NULL, V(11), ANY, ABI_NONE},
	{"objects.frame_generator", OFFSET, "_frame", "f_gen", V(8), V(10), 0},
	{"objects.frame_generator", CONST, NULL, NULL, V(11), ANY, ABI_NONE},
	{"objects.frame_inner", CONST, NULL, NULL, V(8), V(10), ABI_NONE},
	{"objects.frame_inner", OFFSET, "_frame", "f_frame", V(11), ANY, 0},
	{"objects.inner_locals", CONST, NULL, NULL, V(8), V(10), ABI_NONE},
	{"objects.inner_locals", OFFSET, "_PyInterpreterFrame", "f_locals", V(11), ANY, 0},
	{"objects.inner_object", CONST, NULL, NULL, V(8), V(10), ABI_NONE},
	{"objects.inner_object", OFFSET, "_PyInterpreterFrame", "frame_obj", V(11), ANY, 0},
	{"objects.inner_slots", CONST, NULL, NULL, V(8), V(10), ABI_NONE},
	{"objects.inner_slots", OFFSET, "_PyInterpreterFrame", "localsplus", V(11), ANY, 0},
	{"objects.inner_function", CONST, NULL, NULL, V(8), V(10), ABI_NONE},
	{"objects.inner_function", OFFSET, "_PyInterpreterFrame", "f_func", V(11), V(11), 0},
	{"objects.inner_function", OFFSET, "_PyInterpreterFrame", "f_funcobj", V(12), ANY, 0},
	/* stacktop is a number of slots up to 3.13, stackpointer an address from 3.14 on. */
	{"objects.inner_stack_top", CONST, NULL, NULL, V(8), V(10), ABI_NONE},
	{"objects.inner_stack_top", OFFSET, "_PyInterpreterFrame", "stacktop", V(11), V(13), 0},
	{"objects.inner_stack_top", OFFSET, "_PyInterpreterFrame", "stackpointer", V(14), ANY, 0},
	{"objects.generator_frame", CONST, NULL, NULL, V(8), V(10), ABI_NONE},
	{"objects.generator_frame", OFFSET, "PyGenObject", "gi_iframe", V(11), ANY, 0},
	{"objects.generator_state", CONST, NULL, NULL, V(8), V(10), ABI_NONE},
	{"objects.generator_state", OFFSET, "PyGenObject", "gi_frame_state", V(11), ANY, 0},
	{"objects.generator_cleared", CONST, NULL, NULL, V(8), V(10), 0},
	{"objects.generator_cleared", ENUM, NULL, "FRAME_CLEARED", V(11), ANY, 0},
	{"objects.generator_name", OFFSET, "PyGenObject", "gi_qualname", V(8), ANY, 0},
	{"objects.code_slots", CONST, NULL, NULL, V(8), V(10), ABI_NONE},
	{"objects.code_slots", OFFSET, "PyCodeObject", "co_nlocalsplus", V(11), ANY, 0},
	{"objects.code_slot_names", CONST, NULL, NULL, V(8), V(10), ABI_NONE},
	{"objects.code_slot_names", OFFSET, "PyCodeObject", "co_localsplusnames", V(11), ANY, 0},
	{"objects.code_variables", OFFSET, "PyCodeObject", "co_varnames", V(8), V(10), 0},
	{"objects.code_variables", CONST, NULL, NULL, V(11), ANY, ABI_NONE},
	{"objects.code_cached", CONST, NULL, NULL, V(8), V(11), ABI_NONE},
	{"objects.code_cached", OFFSET, "PyCodeObject", "_co_cached", V(12), ANY, 0},
	{"objects.code_stack", OFFSET, "PyCodeObject", "co_stacksize", V(8), ANY, 0},
	{"objects.code_weaklist", OFFSET, "PyCodeObject", "co_weakreflist", V(8), ANY, 0},
	{"objects.interp_bytes", SIZE, "PyInterpreterState", NULL, V(8), ANY, 0},
	{"objects.tstate_bytes", SIZE, "PyThreadState", NULL, V(8), V(12), 0},
	{"objects.tstate_bytes", SIZE, "_PyThreadStateImpl", NULL, V(13), ANY, 0},
};

#endif
