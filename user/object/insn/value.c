/* SPDX-License-Identifier: Apache-2.0 */
#include "object/insn/value.h"

void inline_state_init(struct inline_state *state)
{
	state->next = INLINE_NEW;
	for (uint32_t r = 0; r < ABI_REG_COUNT; r++)
		state->of[r] = (struct inline_value){state->next++, 0};
}

void inline_state_forget(struct inline_state *state, uint8_t reg)
{
	state->of[reg] = (struct inline_value){state->next++, 0};
}

/* The content of memory at a constant address and an offset. */
static struct inline_value held_at(const struct inline_value *base, int64_t offset)
{
	return (struct inline_value){INLINE_HELD | ((uint64_t)base->addend + (uint64_t)offset), 0};
}

void inline_state_step(struct inline_state *state, const struct inline_insn *insn)
{
	struct inline_value result = {.base = INLINE_UNKNOWN};

	if (insn->op == INLINE_CONST)
		result = (struct inline_value){INLINE_CONSTANT, insn->value};
	else if (insn->op == INLINE_LOAD && insn->base == ABI_REG_COUNT)
		result = (struct inline_value){INLINE_HELD | (uint64_t)insn->value, 0};
	else if (insn->op == INLINE_LOAD && state->of[insn->base].base == INLINE_CONSTANT)
		result = held_at(&state->of[insn->base], insn->value);
	else if ((insn->op == INLINE_COPY || insn->op == INLINE_ADD) && insn->src < ABI_REG_COUNT)
		result = state->of[insn->src];
	if (insn->op == INLINE_ADD)
		result.addend = (int64_t)((uint64_t)result.addend + (uint64_t)insn->value);
	for (uint32_t r = 0; r < ABI_REG_COUNT; r++)
		if (insn->written >> r & 1)
			inline_state_forget(state, (uint8_t)r);
	if (insn->dst < ABI_REG_COUNT && result.base != INLINE_UNKNOWN)
		state->of[insn->dst] = result;
}

uint64_t inline_state_slot(const struct inline_state *state, uint8_t reg)
{
	if (reg >= ABI_REG_COUNT || !(state->of[reg].base & INLINE_HELD) || state->of[reg].addend)
		return 0;
	return state->of[reg].base & ~INLINE_HELD;
}

static int reads_memory(const struct inline_insn *insn)
{
	switch (insn->op) {
	case INLINE_LOAD:
	case INLINE_LOAD_32:
		return 1;
	case INLINE_COMPARE:
	case INLINE_CALL_SLOT:
	case INLINE_JUMP_SLOT:
		return insn->src == ABI_REG_COUNT;
	case INLINE_COMPARE_CONST:
		return insn->dst == ABI_REG_COUNT;
	default:
		return 0;
	}
}

int inline_state_reads(const struct inline_state *state, const struct inline_insn *insn,
		       struct inline_address *out)
{
	int64_t at = insn->op == INLINE_COMPARE_CONST ? (int64_t)insn->target : insn->value;
	struct inline_value base = {.base = INLINE_CONSTANT};

	if (!reads_memory(insn))
		return 0;
	if (insn->base < ABI_REG_COUNT)
		base = state->of[insn->base];
	else if (!at) /* unknown */
		return 0;
	if (base.base != INLINE_CONSTANT && !(base.base & INLINE_HELD))
		return 0;
	*out = (struct inline_address){.slot = base.base & ~INLINE_HELD,
				       .offset = (int64_t)((uint64_t)base.addend + (uint64_t)at),
				       .displacement = at};
	return 1;
}
