/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probe sites for an interpreter that begins to shut down: several consecutive instructions. At
 * each of them the kernel reads a piece of the heap (bpf/python/heap.h). Between two of them it may
 * schedule other tasks.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "probe/python/plan.h"

#define PLAN_PIECES 16 /* of one function, at most */

struct plan_piece {
	uint64_t vaddr;
	int emulated;
	char instruction[64]; /* disassembly */
};

/* Copies the file's bytes at vaddr. Returns their number; 0 or negative if there are none. */
typedef int (*plan_read_fn)(void *context, uint64_t vaddr, void *out, size_t bytes);

/*
 * Follows the instructions from the function's start at vaddr up to and including its first call:
 * through jumps and, at a conditional jump, past an early return. Stores those that can be probed
 * in pieces, at most capacity. Returns their number. Pure.
 */
size_t plan_finalize_path(plan_read_fn read, void *context, uint64_t vaddr,
			  struct plan_piece *pieces, size_t capacity);

/*
 * Adds the rest of its path to every site of ABI_OP_FINALIZE in the plan. The last site of
 * Py_FinalizeEx, which Py_Exit calls, gets an addend. 0 or -ENOMEM.
 */
int plan_finalize_add(struct plan *plan, struct elf_file *file);
