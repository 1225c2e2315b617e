/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a code object's instructions can add to containers. They are followed in their order, with
 * what is known of the values on the stack and in the first variables: which object it is, or that
 * it is an attribute of some name, or an item of one of these. Loops are followed once, and a
 * branch as far as it goes forwards. Pure; the code is hostile.
 */
#pragma once

#include "runtime/cpython/opcodes.h"

#define SCAN_STACK    32u /* words; what is deeper is not known */
#define SCAN_LOCALS   48u
#define SCAN_BRANCHES 12u

enum scan_kind {
	SCAN_NOTHING,  /* not known */
	SCAN_CONSTANT, /* a constant of the code */
	/* these may be containers */
	SCAN_OBJECT,    /* `object` */
	SCAN_SELF,      /* the first argument of a method */
	SCAN_ATTRIBUTE, /* attribute `name` of `object`, or of what `base` tells */
	SCAN_PUSHER,    /* a function that adds to its first argument: heapq.heappush */
};

struct scan_value {
	uint8_t kind;          /* enum scan_kind */
	uint8_t base;          /* of SCAN_ATTRIBUTE: SCAN_NOTHING, SCAN_OBJECT or SCAN_SELF */
	uint8_t is_item;       /* some item of it */
	uint8_t gives_item;    /* a method of it that returns an item: get, setdefault */
	uint8_t is_computed;   /* something that was computed with it */
	uint8_t is_callable;   /* a class or function: its calls return something else */
	uint32_t object, name; /* name: of SCAN_CONSTANT the index in co_consts */
};

enum scan_write {
	SCAN_READ_ITEM, /* value[…], which adds to a defaultdict */
	SCAN_STORE_ITEM,
	SCAN_INPLACE, /* value += …, value |= … */
	SCAN_PUSH,    /* heappush(value, …) */
};

struct scan;

/* How values are found; index: of co_names. */
struct scan_calls {
	struct scan_value (*global)(struct scan *scan, uint32_t index);
	struct scan_value (*local)(struct scan *scan, uint32_t slot);
	struct scan_value (*cell)(struct scan *scan, uint32_t slot);
	struct scan_value (*attribute)(struct scan *scan, struct scan_value of, uint32_t index);
	/* What a constant leads to as a key; index: of co_consts; SCAN_NOTHING: to an item. */
	struct scan_value (*key)(struct scan *scan, struct scan_value of, uint32_t index);
	/* Something is added to a value. */
	void (*write)(struct scan *scan, struct scan_value to, enum scan_write how);
	/* A global variable, or an attribute of a value, is replaced by another value. */
	void (*replace_global)(struct scan *scan, uint32_t index, struct scan_value by);
	void (*replace_attribute)(struct scan *scan, struct scan_value of, uint32_t index,
				  struct scan_value by);
};

struct scan_branch {
	size_t target; /* 0: none */
	size_t depth;
	struct scan_value stack[SCAN_STACK];
};

struct scan {
	const struct opcodes *opcodes;
	const struct scan_calls *calls;
	void *context;
	const uint8_t *code;
	size_t bytes;
	size_t at; /* bytes: of the instruction that is followed */
	/* its state */
	struct scan_value stack[SCAN_STACK];
	size_t depth;
	struct scan_value locals[SCAN_LOCALS];
	uint8_t is_set[SCAN_LOCALS];
	struct scan_branch branches[SCAN_BRANCHES];
	int is_dead; /* nothing leads to the next instruction, as far as is known */
};

/* Follows the code; scan has opcodes, calls, context, code and bytes, and else is zero. */
void code_scan(struct scan *scan);
