/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans where a file hands out memory: malloc and its kin, C++'s operators, the allocators that
 * replace them (native_table.h), and functions that the user names. Pure, as plan.h.
 *
 * A request often passes through several of them. It counts once, as the outermost function
 * requests it. A function that only jumps to another one is not probed: the other one sees the same
 * caller and the same request. Each other function has a site, whose cookie has the api
 * EVENT_API_NATIVE.
 *
 * A function that calls another allocator and may throw has a site without a return
 * (ABI_OP_CALLER). A function that serves its requests itself and may throw, in a file that can
 * throw, has a site at its entry, without a return, and an ABI_OP_END at every ret (plan_native.c).
 * The same holds for functions that the user names, of which nothing is known: a return probe
 * terminates a process that leaves the function on another stack.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "probe/malloc/native_table.h"
#include "probe/python/plan.h"

/* --alloc FILE:SYMBOL:KIND[:ARGS]: a function of the user's that allocates or frees memory. */
struct plan_alloc {
	char *file, *symbol; /* owned; file as in function_option_is_in() */
	struct native_call call;
	/*
	 * The user requests a return probe, and thereby states that the function returns on the
	 * stack on which it was called.
	 */
	int return_probe;
};

/*
 * KIND is the name of a C function. ARGS are the positions of its arguments, counted from 1: addr=,
 * size=, count=, result=; those not given are where C has them; and return-probe. 0; -EINVAL
 * (error_set); -ENOMEM. plan_alloc_free() releases.
 */
int plan_alloc_parse(const char *text, struct plan_alloc *out);
void plan_alloc_free(struct plan_alloc *alloc);

struct plan_native_opts {
	const struct plan_alloc *allocs; /* borrowed */
	size_t alloc_count;
};

/*
 * 0, plan_free() releases; -ENOENT the file defines no allocator that is known by name; -ENOEXEC
 * its symbols cannot be read (error_set); -ENOMEM. Functions that it defines without a site are in
 * plan->missing, with the reason. opts: NULL means none.
 */
int plan_native(struct elf_file *file, const struct plan_native_opts *opts, struct plan *out);
/* Does the file's path match the user's, and does the file have the function? */
bool plan_alloc_is_in(const struct plan_alloc *alloc, struct elf_file *file);
