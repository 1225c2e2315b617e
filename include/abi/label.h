/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Whose value is told with each block of a process (EVENT_TASK): a context variable, or a local
 * variable of the nearest frame of a function, or an attribute or an item of one of these.
 */
#pragma once

#include <linux/types.h>

enum abi_label_source {
	ABI_LABEL_NONE = 0,
	/*
	 * The asyncio task that the thread runs: abi_offsets.tstate_task; before 3.14 that of the
	 * thread's running loop in the dict `variable`
	 */
	ABI_LABEL_TASK = 1,
	ABI_LABEL_CONTEXT = 2,
	/* of these the walked frames are needed, too */
	ABI_LABEL_LOCAL = 3,
	/* the current greenlet: its name, or the function that it runs: of its outermost frame */
	ABI_LABEL_GREENLET = 4,
};

/* How instances have their attributes; versions of CPython differ. */
enum abi_instance {
	ABI_INSTANCE_DICT = 0,   /* up to 3.10: a dict at the type's offset */
	ABI_INSTANCE_VALUES = 1, /* 3.11: values four words before the object, or a dict */
	ABI_INSTANCE_TAGGED = 2, /* 3.12: values or a dict three words before it */
	ABI_INSTANCE_INLINE = 3, /* 3.13 and later: values behind the object, or a dict */
};

#define ABI_LABEL_STEPS   4
#define ABI_LABEL_NAMES   (ABI_LABEL_STEPS + 1) /* the last one: "_name_", of an enum's members */
#define ABI_LABEL_UNKNOWN (~0ull)               /* as `variable`: the process does not tell it */

/* Offsets as in struct object_offsets (runtime/cpython/offsets.h); ABI_NONE: none. */
struct abi_label {
	/*
	 * ABI_LABEL_CONTEXT: address of the ContextVar, and its hash as the tree has it.
	 * ABI_LABEL_TASK: address of the dict {loop: task}; names[0] is the key of the running loop
	 * in the dict of a thread's state, or 0: the state has the loop itself; names[1] is the
	 * attribute with the name of a task in Python.
	 * ABI_LABEL_GREENLET: where a thread has its state of greenlet: offset in the block of a
	 * module's thread-local variables, and the module; names[0] is "name"
	 */
	__u64 variable;
	__u32 variable_hash;
	__u32 tstate_context; /* offset in the thread's state */
	/* what is followed: addresses of names, which are interned, and of keys; or positions */
	__u32 steps;
	__u32 instance; /* enum abi_instance */
	__u64 names[ABI_LABEL_NAMES];
	/* where a name was found last: table of keys, position; a guess. Written by BPF */
	__u64 hint_keys[ABI_LABEL_NAMES];
	__u32 hint_at[ABI_LABEL_NAMES];
	__u8 positions;                             /* 1 << step: an item of a tuple or a list */
	__u8 slots;                                 /* 1 << step: some types have a slot for it */
	__u16 hex_digits;                           /* an int is told as struct event_task.kind */
	__u64 bool_type, cell_type, none, ellipsis; /* addresses */
	__u32 long_tagged; /* 1: a PyLongObject has lv_tag (3.12+), not ob_size */
	__u16 type_flags, type_dictoffset, heaptype_keys;
	__u16 type_base, type_dict, tuple_items, list_items;
	__u16 dict_keys, dict_values, values_first;
	__u16 keys_size, keys_index_log2, keys_kind, keys_count, keys_indices;
	__u16 frame_locals; /* ABI_LABEL_LOCAL: the first variable of a frame */
	__u16 cell_value;
	__u16 bytes_data;
	/* ABI_LABEL_TASK: the dict or loop in the state; the loop in the value, 0: it is that */
	__u16 tstate_dict, loop_held;
	__u32 codes_of; /* tgid in abi_label_key: of the process, or of one that forked it */
};

/*
 * By process and address: the code objects of ABI_LABEL_LOCAL's function, those that call a
 * greenlet's function (ABI_LABEL_GREENLET), and the types that have a slot (__slots__) of a step's
 * name.
 */
struct abi_label_key {
	__u64 code; /* address of a code object, or of a type */
	__u32 tgid;
	__u32 step; /* 0: a code object; else the step and 1 */
};

struct abi_label_code {
	/* the word at abi_offsets.code_mark, or at type_dict: another one is another object */
	__u64 mark;
	__u64 slot; /* of the variable in a frame; offset in an instance */
};

_Static_assert(sizeof(struct abi_label) == 208, "label");
