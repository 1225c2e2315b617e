/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a file hands out memory: malloc and its kin, C++'s operators, the allocators that replace
 * them (native_table.h), and functions that the user names. Pure, as plan.h.
 *
 * A request often goes through several of them, and counts once, as the outermost asks for it. A
 * function that does nothing but jump to another one is not probed: that sees the same caller and
 * the same request. Of the rest each has its site, in whose cookie the api is EVENT_API_NATIVE. A
 * function that asks another one and may throw has a site without a return (ABI_OP_CALLER). One
 * that serves its requests itself and may throw, in a file that can, has its entry without a
 * return, too, and an ABI_OP_END at every ret: native_ends.h. So has a function of the user's: a
 * return probe ends a process that leaves the function by another stack, and of these nothing is
 * known.
 */
#ifndef TRACER_PLAN_PLAN_NATIVE_H
#define TRACER_PLAN_PLAN_NATIVE_H

#include <stddef.h>

#include "plan/native_table.h"
#include "plan/plan.h"

/*
 * --alloc FILE:SYMBOL:KIND[:ARGS]: a function of the user's that hands out memory, or takes it
 * back.
 */
struct plan_alloc {
	char *file, *symbol; /* owned; for the file see function_option_is_in() */
	struct native_call call;
	/* asked for: the user says that it returns, on the stack on which it was called */
	int return_probe;
};

/*
 * KIND is a function of C's, ARGS say which arguments, counted from 1, are its: addr=, size=,
 * count=, result=; those that are not said stand where C has them; and return-probe. 0; -EINVAL
 * (error_set); -ENOMEM. plan_alloc_free() releases.
 */
int plan_alloc_parse(const char *text, struct plan_alloc *out);
void plan_alloc_free(struct plan_alloc *alloc);

struct plan_native_opts {
	const struct plan_alloc *allocs; /* borrowed */
	size_t alloc_count;
};

/*
 * 0, and plan_free() releases; -ENOENT the file defines no allocator that is known by name;
 * -ENOEXEC its symbols cannot be read (error_set); -ENOMEM. What it defines and has no site is
 * among the missing ones, with the reason. opts: NULL, none.
 */
int plan_native(struct elf_file *file, const struct plan_native_opts *opts, struct plan *out);
/* Does the file, by its path, belong to the user's function, and has it that function? */
int plan_alloc_is_in(const struct plan_alloc *alloc, struct elf_file *file);

#endif
