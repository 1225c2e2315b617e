/* SPDX-License-Identifier: Apache-2.0 */
#include "native/native_code.h"

#include "abi/target.h"

#define JUMP_INSNS_MAX 12 /* instructions before the jump of a function that only jumps */
#define STUB_INSNS_MAX 2  /* endbr64, jmp */

/* Does the decoded instruction leave memory and the stack pointer unchanged? */
static int is_harmless(const struct inline_decoder *decoder, const struct inline_insn *insn)
{
	const cs_x86 *x86 = &decoder->insn->detail->x86;

	if (insn->op >= INLINE_BRANCH || insn->written >> ABI_REG_SP & 1)
		return 0;
	for (int i = 0; i < x86->op_count; i++)
		if (x86->operands[i].type == X86_OP_MEM && x86->operands[i].access & CS_AC_WRITE)
			return 0;
	return 1;
}

static int is_known(const struct native_code *code, const struct inline_insn *insn)
{
	switch (insn->op) {
	case INLINE_CALL:
	case INLINE_JUMP:
		return code->known(code->context, insn->target, 0);
	case INLINE_CALL_SLOT:
	case INLINE_JUMP_SLOT:
		return insn->target && code->known(code->context, insn->target, 1);
	default:
		return 0;
	}
}

int native_only_jumps(const struct native_code *code, int checked)
{
	struct inline_insn insn;
	size_t at = 0, length;

	for (int i = 0; i < JUMP_INSNS_MAX; i++, at += length) {
		length = inline_decode(code->decoder, code->bytes + at, code->count - at,
				       code->vaddr + at, &insn);
		if (!length)
			return 0;
		if (insn.op == INLINE_JUMP || insn.op == INLINE_JUMP_SLOT)
			return is_known(code, &insn);
		if (!is_harmless(code->decoder, &insn) && !(checked && insn.op == INLINE_BRANCH))
			return 0;
	}
	return 0;
}

int native_calls_known(const struct native_code *code)
{
	struct inline_insn insn;
	size_t length;

	for (size_t at = 0; at < code->count; at += length) {
		length = inline_decode(code->decoder, code->bytes + at, code->count - at,
				       code->vaddr + at, &insn);
		if (!length)
			return 0;
		if (is_known(code, &insn))
			return 1;
	}
	return 0;
}

uint64_t native_stub_slot(struct inline_decoder *decoder, const uint8_t *bytes, size_t count,
			  uint64_t vaddr)
{
	struct inline_insn insn;
	size_t at = 0, length;

	for (int i = 0; i < STUB_INSNS_MAX; i++, at += length) {
		length = inline_decode(decoder, bytes + at, count - at, vaddr + at, &insn);
		if (!length || (insn.op != INLINE_JUMP_SLOT && !is_harmless(decoder, &insn)))
			return 0;
		if (insn.op == INLINE_JUMP_SLOT)
			return insn.target;
	}
	return 0;
}
