/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ends of a function that is to have no return probe: every ret that control can come to from
 * its entry, also in functions that it jumps to. At each, the stack pointer is what it was at the
 * entry, where that of a call within is lower: by this an end is told from another function's.
 */
#ifndef TRACER_PLAN_NATIVE_ENDS_H
#define TRACER_PLAN_NATIVE_ENDS_H

#include "elf/elf_file.h"
#include "plan/plan.h"
#include "x86/insn.h"

#define NATIVE_ENDS_MAX 128 /* of all functions of a file */

/* A function, and what is to be said of it. */
struct native_ends {
	const struct plan_wish *wish;
	uint64_t vaddr, size;
	const char *why;     /* it has no return probe: for its sites */
	const char *missing; /* not all of its ends are found */
	/*
	 * Has the function of another file, by this name, a return probe that tells of the end of
	 * what has jumped to it? NULL: none has.
	 */
	int (*returns)(void *context, const char *name);
	void *context;
};

/*
 * Adds the entry's site, without a return, and an ABI_OP_END (block) for each ret; the plan has
 * room for them. If control goes somewhere unknown, or there are too many ends, the function is one
 * of the missing instead. 0, -ENOMEM.
 */
int native_ends_add(struct plan *plan, struct elf_file *file, struct inline_decoder *decoder,
		    const struct native_ends *ends);

/*
 * Does the function leave its stack for another one, or jump out of its callers? The name by which
 * it does (swapcontext, longjmp, jump_fcontext, ...; also its own, name), as far as it calls that
 * itself. Static; NULL: not that is seen.
 */
const char *native_switches(struct elf_file *file, struct inline_decoder *decoder, const char *name,
			    uint64_t vaddr);

#endif
