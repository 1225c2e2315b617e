/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ends of a function that may not have a return probe, since it may throw: every ret that control can come to from its
 * entry, also in functions that it jumps to. At each, the stack pointer is what it was at the entry, where that of a call
 * within is lower: by this an end is told from another function's.
 */
#ifndef TRACER_PROBE_NATIVE_ENDS_H
#define TRACER_PROBE_NATIVE_ENDS_H

#include "probe/inline_insn.h"
#include "probe/plan.h"
#include "target/elf_file.h"

#define NATIVE_ENDS_MAX 128 /* of all functions of a file */

/*
 * Adds the entry's site, without a return, and an ABI_OP_END (block) for each ret; the plan has room for them. If control
 * goes somewhere unknown, or there are too many ends, the function is one of the missing instead. 0, -ENOMEM.
 */
int native_ends_add(struct plan *plan, struct elf_file *file, struct inline_decoder *decoder,
		    const struct plan_wish *wish, uint64_t vaddr, uint64_t size);

#endif
