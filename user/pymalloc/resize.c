/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a realloc decides whether the block stays where it is: a comparison of four times the new
 * size with three times the size of the block's class.
 */
#include "abi/target.h"
#include "machine/machine.h"
#include "machine/value.h"
#include "pymalloc/match.h"

#define MOVE_MAX 24 /* instructions followed on the path that moves the block */
/* instructions from the branch of a realloc to where the size becomes the requested one */
#define ASKED_MAX 8

/*
 * The register at vaddr whose value is passed as the second argument to the second function called
 * from there: a realloc that moves a block allocates a new one and copies the old one to it.
 */
static uint8_t copied_from(struct inline_code *code, uint64_t vaddr)
{
	struct inline_state state;
	struct inline_insn insn;
	int calls = 0;

	inline_state_init(&state);
	for (int i = 0; i < MOVE_MAX && inline_code_window(code, vaddr, &insn, 1); i++) {
		struct inline_value from = state.of[code->image->machine->arguments[1]];

		if (insn.op == INLINE_CALL && ++calls == 2)
			return from.base >= INLINE_NEW && from.base < INLINE_NEW + ABI_REG_COUNT &&
					       !from.addend
				       ? (uint8_t)(from.base - INLINE_NEW)
				       : ABI_REG_COUNT;
		if (insn.op == INLINE_END || insn.op == INLINE_JUMP_SLOT ||
		    insn.op == INLINE_CALL_SLOT)
			break;
		inline_state_step(&state, &insn);
		vaddr = insn.op == INLINE_JUMP ? insn.target : vaddr + insn.bytes;
	}
	return ABI_REG_COUNT;
}

/*
 * The register that holds the requested size. If the block moves, that is copied to the register of
 * the old size, after the branch or before it.
 */
static uint8_t asked_find(struct inline_code *code, uint64_t moved,
			  const struct inline_insn *before, size_t count, uint8_t size)
{
	struct inline_insn insn;
	uint8_t asked = ABI_REG_COUNT;

	for (size_t i = 0; i < count; i++) {
		if (before[i].op == INLINE_COPY && before[i].width == 8 && before[i].dst == size)
			asked = before[i].src;
		else if (asked < ABI_REG_COUNT && before[i].written >> asked & 1)
			asked = ABI_REG_COUNT;
	}
	for (int i = 0;
	     i < ASKED_MAX && asked == ABI_REG_COUNT && inline_code_window(code, moved, &insn, 1);
	     i++) {
		if (insn.op == INLINE_COPY && insn.width == 8 && insn.dst == size)
			asked = insn.src;
		if (insn.op >= INLINE_JUMP || insn.written >> size & 1)
			break;
		moved += insn.bytes;
	}
	return asked;
}

int inline_match_resize(struct inline_code *code, uint64_t vaddr, struct inline_match *out)
{
	struct inline_insn insns[8];
	size_t count = inline_code_window(code, vaddr, insns, 8), i = 1;
	const struct inline_insn *compared = NULL, *branch;
	uint64_t moved;

	if (!count || insns[0].op != INLINE_TRIPLE)
		return 0;
	for (; i < count && insns[i].op < INLINE_BRANCH; i++)
		if (insns[i].op == INLINE_COMPARE)
			compared = &insns[i];
	if (i == count || insns[i].op != INLINE_BRANCH || !insns[i].order || !compared ||
	    compared->width != 8 || compared->base != ABI_REG_COUNT)
		return 0;
	branch = &insns[i];
	*out = (struct inline_match){.site = branch->vaddr, .above = compared->src == insns[0].dst};
	/* Compares 3 * size with 4 * requested, in either order. */
	if ((compared->dst != insns[0].dst && !out->above) ||
	    (branch->order != (out->above ? INLINE_ABOVE : INLINE_BELOW) &&
	     branch->order != (out->above ? INLINE_BELOW_EQUAL : INLINE_ABOVE_EQUAL)))
		return 0;
	moved = branch->order == INLINE_BELOW || branch->order == INLINE_ABOVE
			? branch->vaddr + branch->bytes
			: branch->target;
	/* A comparison that multiplies by four itself has the requested size. */
	out->size_reg = compared->value == 2 && !out->above
				? compared->src
				: asked_find(code, moved, insns + 1, i - 1, insns[0].src);
	out->reg = copied_from(code, moved);
	return out->size_reg < ABI_REG_COUNT;
}

/* Is it a register that the multiplication reads? */
static int is_factor(const struct inline_insn *triple, uint8_t reg)
{
	return reg < ABI_REG_COUNT && (reg == triple->src || reg == triple->base);
}

int inline_match_classed(const struct inline_code *code, uint64_t vaddr)
{
	size_t index = inline_code_index(code, vaddr);
	int is_class = 0, is_three;
	uint32_t at;

	if (index == code->count)
		return 0;
	is_three = code->insns[index].base == ABI_REG_COUNT;
	at = code->source[index];
	for (int i = 0; i < INLINE_CLASS_NEAR && at != INLINE_NO_SOURCE;
	     i++, at = code->source[at]) {
		const struct inline_insn *insn = &code->insns[at];

		if (!is_factor(&code->insns[index], insn->dst))
			continue;
		is_class |= insn->op == INLINE_SHIFT_LEFT && insn->value == INLINE_CLASS_BITS;
		is_three |= insn->op == INLINE_CONST && insn->value == 3;
	}
	return is_class && is_three;
}
