/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions by which C libraries, C++ and the allocators that replace theirs hand out memory,
 * by name, with what is an argument of each. Data alone; which of them a file has, and where,
 * plan_native.h asks.
 */
#ifndef TRACER_PLAN_NATIVE_TABLE_H
#define TRACER_PLAN_NATIVE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "abi/target.h"

#define NATIVE_ARGUMENTS 3

/*
 * What a call means: which arguments are the op's (see enum abi_op), counted from 1; 0: it has no
 * more.
 */
struct native_call {
	enum abi_op op; /* 0: a block whose size is no argument */
	uint8_t arguments[NATIVE_ARGUMENTS];
};

struct native_function {
	char symbol[48];
	struct native_call call;
	uint8_t throws; /* instead of returning, where there is no memory */
};

/*
 * All of them. Of one function's names those that programs call stand first. 0, caller frees;
 * -ENOMEM.
 */
int native_table_new(struct native_function **out, size_t *count);
/*
 * The kind of a function by its name in C ("malloc", "posix_memalign", ...) as --alloc takes it;
 * NULL: none. Static.
 */
const struct native_call *native_kind(const char *name);
/* "malloc, calloc, ...": all that native_kind() knows, into text of so many bytes. */
void native_kinds_list(char *text, size_t size);

#endif
