/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where an interpreter that begins to shut down is probed: at several instructions one behind the
 * other. At each of them the kernel reads a piece of the heap (bpf/heap.h), and between two of them
 * it may give the processor to others.
 */
#ifndef TRACER_PLAN_PLAN_FINALIZE_H
#define TRACER_PLAN_PLAN_FINALIZE_H

#include <stddef.h>
#include <stdint.h>

#include "plan/plan.h"

#define PLAN_PIECES 16 /* in a function at most */

struct plan_piece {
	uint64_t vaddr;
	int emulated;
	char instruction[64]; /* disassembly */
};

/* Copies the file's bytes at vaddr. Returns how many, 0 or negative when there are none. */
typedef int (*plan_read_fn)(void *context, uint64_t vaddr, void *out, size_t bytes);

/*
 * The instructions that the function at vaddr begins with, up to and with its first call: through
 * jumps, and where one is conditional, past an early return. Of these the ones that may be probed,
 * at most room, in pieces. Returns how many. Pure.
 */
size_t plan_finalize_path(plan_read_fn read, void *context, uint64_t vaddr,
			  struct plan_piece *pieces, size_t room);

/*
 * Adds the rest of its path to every site of ABI_OP_FINALIZE in the plan; the last one of
 * Py_FinalizeEx, which Py_Exit calls, gets an addend. 0 or -ENOMEM.
 */
int plan_finalize_add(struct plan *plan, struct elf_file *file);

#endif
