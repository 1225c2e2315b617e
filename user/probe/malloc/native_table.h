/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions by which C libraries, C++ and replacement allocators hand out memory, by name, with
 * the meaning of their arguments. Data only: plan_native.h finds which of them a file has, and
 * where.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "abi/target.h"

#define NATIVE_ARGUMENTS 3

/*
 * What a call means: the positions of the op's arguments (see enum abi_op), counted from 1; 0: no
 * more arguments.
 */
struct native_call {
	enum abi_op op; /* 0: the block's size is no argument */
	uint8_t arguments[NATIVE_ARGUMENTS];
};

struct native_function {
	char symbol[48];
	struct native_call call;
	uint8_t throws; /* throws an exception where there is no memory */
};

/*
 * All functions. Of the names of one function, those that programs call come first. 0, caller
 * frees; -ENOMEM.
 */
int native_table_new(struct native_function **out, size_t *count);
/*
 * The call of a C function by its name ("malloc", "posix_memalign", ...), as --alloc takes it;
 * NULL: unknown. Static.
 */
const struct native_call *native_kind(const char *name);
/* Writes "malloc, calloc, ...", all names that native_kind() knows, into text of size bytes. */
void native_kinds_list(char *text, size_t size);
