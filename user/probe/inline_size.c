/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How large the block is that was asked for, at the point where a pool gives it.
 *
 * On the way there pymalloc compared the size less one with 511; where it did not, the size is a constant,
 * and the way not taken at the guard of the slot passes it, in the second argument, to whatever is in the
 * slot.
 *
 * So the way is followed back as long as there is only one, and then carried out forward: what each register
 * holds is kept as "a value that came up at some point, plus so much" or as a constant. The size is known if
 * at the site some register holds it, but for a constant difference.
 */
#include <errno.h>
#include <string.h>

#include "abi/target.h"
#include "probe/inline_match.h"
#include "probe/inline_value.h"

#define WAY_MAX  96  /* instructions followed back */
#define SLOW_MAX 24  /* and along the slow path */
#define LARGEST  512 /* that pymalloc serves */

/* What is passed as the second argument to the function in the slot, where this way leads to one. */
static struct inline_value slow_size(struct inline_code *code, uint64_t vaddr,
				     const struct inline_state *from)
{
	struct inline_state state = *from;
	struct inline_insn insn;

	for (int i = 0; i < SLOW_MAX && inline_code_window(code, vaddr, &insn, 1); i++) {
		if (insn.op == INLINE_CALL_SLOT || insn.op == INLINE_JUMP_SLOT)
			return state.of[ABI_REG_SI].base < from->next
				       ? state.of[ABI_REG_SI]
				       : (struct inline_value){.base = INLINE_UNKNOWN};
		if (insn.op == INLINE_CALL || insn.op == INLINE_END || insn.op == INLINE_BRANCH)
			break;
		inline_state_step(&state, &insn);
		vaddr = insn.op == INLINE_JUMP ? insn.target : vaddr + insn.bytes;
	}
	return (struct inline_value){.base = INLINE_UNKNOWN};
}

/* Does it compare with the address of code, as the guard of a slot does? */
static int compares_code(const struct inline_code *code, const struct inline_state *state,
			 const struct inline_insn *insn)
{
	const struct inline_range *text = &code->image->text;
	struct inline_value other = {.base = INLINE_UNKNOWN};

	if (insn->op == INLINE_COMPARE_CONST)
		other = (struct inline_value){INLINE_CONSTANT, insn->value};
	else if (insn->op == INLINE_COMPARE && insn->dst < ABI_REG_COUNT &&
		 state->of[insn->dst].base == INLINE_CONSTANT)
		other = state->of[insn->dst];
	else if (insn->op == INLINE_COMPARE && insn->src < ABI_REG_COUNT)
		other = state->of[insn->src];
	return other.base == INLINE_CONSTANT && (uint64_t)other.addend - text->vaddr < text->bytes;
}

/* The indexes of the instructions that lead to that of index site, the last one first. */
static size_t way_find(const struct inline_code *code, size_t site, uint32_t *way)
{
	size_t count = 0;

	for (uint32_t at = code->source[site]; at != INLINE_NO_SOURCE && count < WAY_MAX;
	     at = code->source[at])
		way[count++] = at;
	return count;
}

int inline_size_find(struct inline_code *code, uint64_t site, uint8_t *reg, int64_t *addend)
{
	struct inline_value size = {.base = INLINE_UNKNOWN};
	size_t index = inline_code_index(code, site), count;
	struct inline_state state;
	int guarded = 0;
	uint32_t way[WAY_MAX];

	if (index == code->count)
		return -ENOENT;
	inline_state_init(&state);
	count = way_find(code, index, way);
	for (size_t i = count; i-- > 0;) {
		const struct inline_insn *insn = &code->insns[way[i]];
		uint32_t next = i ? way[i - 1] : (uint32_t)index;

		if (insn->op == INLINE_COMPARE || insn->op == INLINE_COMPARE_CONST || insn->op == INLINE_TEST)
			guarded = compares_code(code, &state, insn);
		if (insn->op == INLINE_COMPARE_CONST && insn->value == LARGEST - 1 && insn->width == 8 &&
		    insn->dst < ABI_REG_COUNT) {
			size = state.of[insn->dst];
			size.addend++;
		} else if (insn->op == INLINE_BRANCH && guarded) {
			int taken = code->insns[next].vaddr == insn->target;
			struct inline_value slow =
				slow_size(code, taken ? insn->vaddr + insn->bytes : insn->target, &state);

			if (slow.base != INLINE_UNKNOWN)
				size = slow;
		}
		inline_state_step(&state, insn);
	}
	if (size.base == INLINE_CONSTANT && size.addend > 0 && size.addend <= LARGEST) {
		*reg = ABI_REG_COUNT;
		*addend = size.addend;
		return 0;
	}
	for (uint8_t r = 0; size.base >= INLINE_NEW && r < ABI_REG_COUNT; r++) {
		int64_t difference = (int64_t)((uint64_t)size.addend - (uint64_t)state.of[r].addend);

		if (state.of[r].base != size.base || difference < INT16_MIN || difference > INT16_MAX)
			continue;
		*reg = r;
		*addend = difference;
		return 0;
	}
	return -ENOENT;
}

uint8_t inline_block_find(const struct inline_code *code, uint64_t site)
{
	struct inline_value block = {.base = INLINE_UNKNOWN};
	size_t index = inline_code_index(code, site), count;
	struct inline_state state;
	uint32_t way[WAY_MAX];

	if (index == code->count)
		return ABI_REG_COUNT;
	inline_state_init(&state);
	count = way_find(code, index, way);
	for (size_t i = count; i-- > 0;) {
		const struct inline_insn *insn = &code->insns[way[i]];

		if (insn->op == INLINE_MASK && insn->dst < ABI_REG_COUNT &&
		    (insn->value == -16384 || insn->value == -4096))
			block = state.of[insn->dst];
		inline_state_step(&state, insn);
	}
	for (uint8_t r = 0; block.base >= INLINE_NEW && r < ABI_REG_COUNT; r++)
		if (state.of[r].base == block.base && state.of[r].addend == block.addend)
			return r;
	return ABI_REG_COUNT;
}

/*
 * What of the registers at vaddr is passed as the second argument to the second function that is called from
 * there on: a realloc that moves a block asks for a new one and copies the old one to it.
 */
static uint8_t copied_from(struct inline_code *code, uint64_t vaddr)
{
	struct inline_state state;
	struct inline_insn insn;
	int calls = 0;

	inline_state_init(&state);
	for (int i = 0; i < SLOW_MAX && inline_code_window(code, vaddr, &insn, 1); i++) {
		struct inline_value from = state.of[ABI_REG_SI];

		if (insn.op == INLINE_CALL && ++calls == 2)
			return from.base >= INLINE_NEW && from.base < INLINE_NEW + ABI_REG_COUNT &&
					       !from.addend
				       ? (uint8_t)(from.base - INLINE_NEW)
				       : ABI_REG_COUNT;
		if (insn.op == INLINE_END || insn.op == INLINE_JUMP_SLOT || insn.op == INLINE_CALL_SLOT)
			break;
		inline_state_step(&state, &insn);
		vaddr = insn.op == INLINE_JUMP ? insn.target : vaddr + insn.bytes;
	}
	return ABI_REG_COUNT;
}

int inline_match_resize(struct inline_code *code, uint64_t vaddr, struct inline_match *out)
{
	struct inline_insn insns[8];
	size_t count = inline_code_window(code, vaddr, insns, 8), i = 1;
	int compared = 0;

	if (!count || insns[0].op != INLINE_TRIPLE)
		return 0;
	for (; i < count && insns[i].op < INLINE_BRANCH; i++)
		if (insns[i].op == INLINE_COMPARE && insns[i].width == 8)
			compared = insns[i].dst == insns[0].dst && insns[i].base == ABI_REG_COUNT;
	/* Else the size becomes what was asked for. */
	if (i + 1 >= count || insns[i].op != INLINE_BRANCH || !insns[i].below || !compared ||
	    insns[i + 1].op != INLINE_COPY || insns[i + 1].width != 8)
		return 0;
	*out = (struct inline_match){.site = insns[i].vaddr, .size_reg = insns[i + 1].src};
	out->reg = copied_from(code, insns[i + 1].vaddr);
	return out->size_reg < ABI_REG_COUNT;
}
