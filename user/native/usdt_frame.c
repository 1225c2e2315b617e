/* SPDX-License-Identifier: Apache-2.0 */
#include "native/usdt_frame.h"

#include "abi/target.h"

#define PATHS_MAX 64

/* The stack below the return address, as the instructions so far leave it. */
struct frame {
	int64_t depth; /* bytes from the stack pointer to the return address */
	int64_t saved; /* the depth at which the caller's frame pointer was pushed; 0: it was not */
	int branched;
};

/* A way through the code that is followed from there on. */
struct path {
	size_t at;
	struct frame frame;
};

/* Wherever control comes from, the stack is the same at a place: one way to the probe will do. */
struct search {
	size_t count, pending;
	struct path paths[PATHS_MAX]; /* those that branches lead to, up to the probe */
	uint8_t visited[USDT_FRAME_CODE / 8];
};

static int is_register(const cs_x86_op *operand, x86_reg number)
{
	return operand->type == X86_OP_REG && operand->reg == number;
}

/* The effect of an instruction on the stack pointer. 0; -1: not understood. */
static int stack_move(struct frame *frame, const cs_insn *insn, const struct inline_insn *decoded)
{
	const cs_x86_op *operands = insn->detail->x86.operands;

	switch (insn->id) {
	case X86_INS_PUSH:
		frame->depth += 8;
		if (is_register(&operands[0], X86_REG_RBP) && !frame->saved)
			frame->saved = frame->depth;
		return 0;
	case X86_INS_POP:
		frame->depth -= 8;
		if (is_register(&operands[0], X86_REG_RBP))
			frame->saved = 0;
		return is_register(&operands[0], X86_REG_RSP) ? -1 : 0;
	case X86_INS_SUB:
	case X86_INS_ADD:
		if (!is_register(&operands[0], X86_REG_RSP))
			return 0;
		if (operands[1].type != X86_OP_IMM)
			return -1;
		frame->depth += insn->id == X86_INS_SUB ? operands[1].imm : -operands[1].imm;
		return 0;
	default:
		/* A call returns to where it was. */
		return decoded->op < INLINE_BRANCH && decoded->written >> ABI_STACK & 1 ? -1 : 0;
	}
}

/* "mov %rsp,%rbp" right after "push %rbp", on every path. */
static int is_framed(const struct frame *frame, const cs_insn *insn)
{
	const cs_x86_op *operands = insn->detail->x86.operands;

	return insn->id == X86_INS_MOV && is_register(&operands[0], X86_REG_RBP) &&
	       is_register(&operands[1], X86_REG_RSP) && frame->saved == 8 && frame->depth == 8 &&
	       !frame->branched;
}

static void path_add(struct search *search, uint64_t target, uint64_t vaddr,
		     const struct frame *frame)
{
	uint64_t at = target - vaddr;

	if (at <= search->count && search->pending < PATHS_MAX)
		search->paths[search->pending++] = (struct path){(size_t)at, *frame};
}

/* Follows a path until it ends. 1: it has reached the probe; 2: it has set up a frame pointer. */
static int path_follow(struct search *search, struct inline_decoder *decoder, const uint8_t *code,
		       uint64_t vaddr, struct path *path)
{
	struct inline_insn insn;

	while (path->at < search->count) {
		size_t length = inline_decode(decoder, code + path->at, search->count - path->at,
					      vaddr + path->at, &insn);
		uint8_t *visited = &search->visited[path->at / 8], bit = 1u << path->at % 8;

		if (!length || *visited & bit || insn.op == INLINE_JUMP_SLOT ||
		    insn.op == INLINE_END || stack_move(&path->frame, decoder->insn, &insn) ||
		    path->frame.depth < 0 || path->frame.depth > ABI_USDT_FRAME_MAX)
			return 0;
		*visited |= bit;
		if (is_framed(&path->frame, decoder->insn))
			return 2;
		path->frame.branched |= insn.op == INLINE_BRANCH || insn.op == INLINE_JUMP;
		if (insn.op == INLINE_BRANCH || insn.op == INLINE_JUMP)
			path_add(search, insn.target, vaddr, &path->frame);
		if (insn.op == INLINE_JUMP)
			return 0;
		path->at += length;
	}
	return path->at == search->count;
}

void usdt_frame_find(struct inline_decoder *decoder, const uint8_t *code, size_t count,
		     uint64_t vaddr, struct abi_usdt *out)
{
	struct search search = {.count = count, .pending = 1};
	int found = 0;
	struct path path;

	out->frame = ABI_USDT_FRAME_UNKNOWN;
	out->return_at = 0;
	out->saved_at = ABI_USDT_NOT_SAVED;
	while (count <= USDT_FRAME_CODE && search.pending && !found) {
		path = search.paths[--search.pending];
		found = path_follow(&search, decoder, code, vaddr, &path);
	}
	if (found == 2)
		out->frame = ABI_USDT_FRAME_POINTER;
	if (found != 1)
		return;
	out->frame = ABI_USDT_FRAME_STACK;
	out->return_at = (uint32_t)path.frame.depth;
	if (path.frame.saved)
		out->saved_at = (uint32_t)(path.frame.depth - path.frame.saved);
}
