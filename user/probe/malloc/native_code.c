/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/malloc/native_code.h"

#include "abi/target.h"
#include "object/insn/machine.h"
#include "object/insn/value.h"

#define JUMP_INSNS_MAX 12 /* instructions before the jump of a function that only jumps */
#define STUB_INSNS_MAX 5  /* endbr64, jmp; bti, adrp, ldr, add, br */

/* Does the decoded instruction leave memory and the stack pointer unchanged? */
static bool is_harmless(const struct inline_decoder *decoder, const struct inline_insn *insn)
{
	return insn->op < INLINE_BRANCH && !(insn->written >> ABI_STACK & 1) &&
	       !decoder->machine->stores(decoder->insn);
}

static bool is_known(const struct native_code *code, const struct inline_insn *insn)
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
	struct inline_state state;
	struct inline_insn insn;
	size_t at = 0, length;

	inline_state_init(&state);
	for (int i = 0; i < STUB_INSNS_MAX; i++, at += length) {
		length = inline_decode(decoder, bytes + at, count - at, vaddr + at, &insn);
		if (!length || (insn.op != INLINE_JUMP_SLOT && !is_harmless(decoder, &insn)))
			return 0;
		if (insn.op == INLINE_JUMP_SLOT)
			return insn.target ?: inline_state_slot(&state, insn.src);
		inline_state_step(&state, &insn);
	}
	return 0;
}
