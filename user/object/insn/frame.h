/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a function keeps its caller's registers at a place in it, read from the code between its
 * entry and the place: optimised functions have no frame pointer of their own. Pure.
 */
#pragma once

#include <capstone/capstone.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/frame.h"
#include "object/insn/insn.h"

#define FRAME_CODE 4096u /* bytes */

/*
 * The stack below the frame's end (the stack pointer after the return), as the code so far leaves
 * it.
 */
struct machine_frame {
	int64_t depth;    /* bytes from the stack pointer to the frame's end */
	int64_t returned; /* those from the return address; 0: it is in the link register */
	int64_t saved;    /* those from the caller's frame pointer; 0: it was not saved */
	int64_t pointer;  /* those from the frame pointer that this instruction has set up; or 0 */
	int branched;     /* only a part of the ways from the entry lead here */
};

/*
 * code: the function's from its entry at vaddr up to the place, count bytes. out: base is
 * ABI_FRAME_UNKNOWN where no way from the entry to the place is seen, or the code is longer than
 * FRAME_CODE.
 */
void machine_frame_find(struct inline_decoder *decoder, const uint8_t *code, size_t count,
			uint64_t vaddr, struct abi_frame *out);
