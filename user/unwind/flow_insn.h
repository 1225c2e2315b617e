/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions as flow.h needs them: what they do to rsp and rbp, and where control goes. */
#ifndef TRACER_UNWIND_FLOW_INSN_H
#define TRACER_UNWIND_FLOW_INSN_H

#include <capstone/capstone.h>
#include <stddef.h>
#include <stdint.h>

enum flow_op {
	FLOW_OTHER = 0,
	FLOW_NOP,  /* padding, or the alignment of a loop */
	FLOW_PUSH, /* 8 bytes, of another register than rbp */
	FLOW_PUSH_RBP,
	FLOW_POP, /* 8 bytes, into another register than rbp */
	FLOW_POP_RBP,
	FLOW_LEAVE,     /* rsp = rbp, then pop rbp */
	FLOW_ADD_RSP,   /* rsp += value */
	FLOW_RSP_RBP,   /* rsp = rbp + value */
	FLOW_RBP_RSP,   /* rbp = rsp + value */
	FLOW_WRITE_RBP, /* an unknown value */
	FLOW_WRITE_RSP,
	FLOW_CALL,
	FLOW_BRANCH, /* to target or on */
	FLOW_JUMP,   /* to target */
	FLOW_RETURN,
	FLOW_JUMP_ANY, /* to a computed address */
	FLOW_STOP,     /* the program ends, or it is no instruction */
};

struct flow_insn {
	uint64_t vaddr;
	uint64_t target; /* of a call (0: computed), a branch or a jump */
	int32_t value;
	uint8_t bytes;
	uint8_t op; /* enum flow_op */
	/* for flow.c: a function begins here; number of the instruction at target */
	uint8_t starts;
	uint32_t target_index;
};

/* Decodes the first instruction of code; insn is memory for it. One byte that is none is a stop. */
struct flow_insn flow_decode(csh capstone, cs_insn *insn, const uint8_t *code, size_t bytes,
			     uint64_t vaddr);

#endif
