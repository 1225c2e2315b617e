/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ends of a function that must have no return probe: every ret that control can reach from its
 * entry, including those in functions that it jumps to. At an end the stack pointer has its value
 * at the entry; inside a call it is lower. That tells an end from another function's ret.
 */
#ifndef TRACER_NATIVE_NATIVE_ENDS_H
#define TRACER_NATIVE_NATIVE_ENDS_H

#include "elf/elf_file.h"
#include "machine/insn.h"
#include "plan/plan.h"

#define NATIVE_ENDS_MAX 128 /* for all functions of a file */

/* A function, and the reasons that its sites get. */
struct native_ends {
	const struct probe_spec *spec;
	uint64_t vaddr, size;
	const char *why;     /* of its sites: it has no return probe */
	const char *missing; /* of its entry in plan->missing: not all of its ends are found */
	/*
	 * Does the function of this name, in another file, have a return probe? That probe reports
	 * the end of a function that jumps to it. NULL: none has.
	 */
	int (*returns)(void *context, const char *name);
	void *context;
};

/*
 * Adds the entry's site, without a return, and an ABI_OP_END (block) for each ret. The function is
 * added to plan->missing instead if a jump's target is unknown, or if there are more ends than the
 * plan has capacity for. 0, -ENOMEM.
 */
int native_ends_add(struct plan *plan, struct elf_file *file, struct inline_decoder *decoder,
		    const struct native_ends *ends);

/*
 * Does the function switch to another stack, or jump out of its callers? Returns the name of the
 * function that does so (swapcontext, longjmp, jump_fcontext, ...): name itself, or one that it
 * calls directly. Static; NULL: no such call is seen.
 */
const char *native_switches(struct elf_file *file, struct inline_decoder *decoder, const char *name,
			    uint64_t vaddr);

#endif
