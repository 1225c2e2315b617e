/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How large the block is that was asked for, at the point where a pool gives it.
 *
 * On the way there pymalloc has found that the size is one of 1 to 512: less one it is not above 511, and compilers have
 * other ways to ask that. Where it did not, the size is a constant, and the way not taken at the guard of the slot passes it,
 * in the second argument, to whatever is in the slot. Where ways meet behind that, the size class is still to be made of
 * the size, (size - 1) >> 4, to find the pool.
 *
 * So the way is followed back as long as there is only one, and then carried out forward: what each register
 * holds is kept as "a value that came up at some point, plus so much" or as a constant. The size is known if
 * at the site some register holds it, but for a constant difference.
 */
#include <errno.h>
#include <string.h>

#include "abi/target.h"
#include "pymalloc/match.h"
#include "x86/value.h"

#define WAY_MAX  96  /* instructions followed back */
#define SLOW_MAX 24  /* and along the slow path */
#define LARGEST  512 /* that pymalloc serves */
#define ASKED_MAX                                                                                            \
	8 /* instructions from the branch of a realloc to where the size becomes what was asked for */
#define CLASS_BITS 4  /* of a size less one, that are not in its size class */
#define CLASS_NEAR 12 /* instructions from making the size class to the site */

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

/* What the way from a comparison on says of a register: it is not more than last, and not less than first. */
struct bounds {
	struct inline_value of; /* UNKNOWN: nothing was compared last */
	uint64_t with;
};

/* The size, if the branch, taken or not, leaves no value but those of the sizes that pymalloc serves, perhaps with 0. */
static struct inline_value bounded_size(const struct bounds *bounds, const struct inline_insn *branch,
					int taken)
{
	static const uint8_t others[] = {[INLINE_BELOW] = INLINE_ABOVE_EQUAL,
					 [INLINE_ABOVE_EQUAL] = INLINE_BELOW,
					 [INLINE_ABOVE] = INLINE_BELOW_EQUAL,
					 [INLINE_BELOW_EQUAL] = INLINE_ABOVE};
	uint8_t order = taken ? branch->order : others[branch->order];
	struct inline_value size = bounds->of;
	uint64_t first = 0, last = UINT64_MAX;

	if (order == INLINE_BELOW || order == INLINE_BELOW_EQUAL)
		last = bounds->with - (order == INLINE_BELOW);
	else if (order == INLINE_ABOVE || order == INLINE_ABOVE_EQUAL)
		first = bounds->with + (order == INLINE_ABOVE);
	if (size.base == INLINE_UNKNOWN || (last - first != LARGEST - 1 && last - first != LARGEST))
		return (struct inline_value){.base = INLINE_UNKNOWN};
	size.addend = (int64_t)((uint64_t)size.addend + LARGEST - last);
	return size;
}

/* Of what a size class is made: what is a size less one. */
static struct inline_value classed_size(const struct inline_state *state, const struct inline_insn *insn)
{
	struct inline_value size = {.base = INLINE_UNKNOWN};

	if (insn->dst < ABI_REG_COUNT &&
	    ((insn->op == INLINE_SHIFT && insn->value == CLASS_BITS) ||
	     (insn->op == INLINE_MASK && (int32_t)insn->value == -(1 << CLASS_BITS)))) {
		size = state->of[insn->dst];
		size.addend++;
	}
	return size;
}

/* Where the size is once the way is gone. 0; -ENOENT. */
static int size_locate(const struct inline_state *state, const struct inline_value *size, uint8_t *reg,
		       int64_t *addend)
{
	if (size->base == INLINE_CONSTANT && size->addend > 0 && size->addend <= LARGEST) {
		*reg = ABI_REG_COUNT;
		*addend = size->addend;
		return 0;
	}
	for (uint8_t r = 0; size->base >= INLINE_NEW && r < ABI_REG_COUNT; r++) {
		int64_t difference = (int64_t)((uint64_t)size->addend - (uint64_t)state->of[r].addend);

		if (state->of[r].base != size->base || difference < INT16_MIN || difference > INT16_MAX)
			continue;
		*reg = r;
		*addend = difference;
		return 0;
	}
	return -ENOENT;
}

/* What is known of the size on the way to a site. */
struct way_size {
	struct inline_state state;
	struct inline_value size; /* by what was compared, or passed */
	struct inline_value
		classed; /* by the size class that was made last, of a few instructions before the site */
	struct bounds bounds;
	int guarded;
};

/* next: the address that control goes on to. */
static void way_step(struct inline_code *code, struct way_size *way, const struct inline_insn *insn,
		     uint64_t next)
{
	struct inline_value found = {.base = INLINE_UNKNOWN};
	int taken = next == insn->target;

	if (insn->op == INLINE_COMPARE || insn->op == INLINE_COMPARE_CONST || insn->op == INLINE_TEST) {
		way->guarded = compares_code(code, &way->state, insn);
		way->bounds.of.base = INLINE_UNKNOWN;
	}
	if (insn->op == INLINE_COMPARE_CONST && insn->width == 8 && insn->dst < ABI_REG_COUNT)
		way->bounds = (struct bounds){way->state.of[insn->dst], (uint64_t)insn->value};
	else if (insn->op == INLINE_BRANCH && insn->order)
		found = bounded_size(&way->bounds, insn, taken);
	else if (insn->op == INLINE_BRANCH && way->guarded)
		found = slow_size(code, taken ? insn->vaddr + insn->bytes : insn->target, &way->state);
	if (found.base != INLINE_UNKNOWN)
		way->size = found;
	found = classed_size(&way->state, insn);
	if (found.base != INLINE_UNKNOWN)
		way->classed = found;
	inline_state_step(&way->state, insn);
}

int inline_size_find(struct inline_code *code, uint64_t site, uint8_t *reg, int64_t *addend)
{
	size_t index = inline_code_index(code, site), count;
	struct way_size way = {.size = {.base = INLINE_UNKNOWN},
			       .classed = {.base = INLINE_UNKNOWN},
			       .bounds = {.of = {.base = INLINE_UNKNOWN}}};
	uint32_t at[WAY_MAX];

	if (index == code->count)
		return -ENOENT;
	inline_state_init(&way.state);
	count = way_find(code, index, at);
	for (size_t i = count; i-- > 0;) {
		if (i == CLASS_NEAR)
			way.classed.base = INLINE_UNKNOWN;
		way_step(code, &way, &code->insns[at[i]], code->insns[i ? at[i - 1] : index].vaddr);
	}
	/* The class is what the pool was found by; what was compared may have been something else. */
	if (way.classed.base >= INLINE_NEW && !size_locate(&way.state, &way.classed, reg, addend))
		return 0;
	return size_locate(&way.state, &way.size, reg, addend);
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

/*
 * The register that holds what was asked for: if the block moves, that becomes the size, in the register of it, behind the
 * branch or on the way to it.
 */
static uint8_t asked_find(struct inline_code *code, uint64_t moved, const struct inline_insn *before,
			  size_t count, uint8_t size)
{
	struct inline_insn insn;
	uint8_t asked = ABI_REG_COUNT;

	for (size_t i = 0; i < count; i++) {
		if (before[i].op == INLINE_COPY && before[i].width == 8 && before[i].dst == size)
			asked = before[i].src;
		else if (asked < ABI_REG_COUNT && before[i].written >> asked & 1)
			asked = ABI_REG_COUNT;
	}
	for (int i = 0; i < ASKED_MAX && asked == ABI_REG_COUNT && inline_code_window(code, moved, &insn, 1);
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
	/* Three times the size below what was asked for, taken four times: the one way or the other. */
	if ((compared->dst != insns[0].dst && !out->above) ||
	    (branch->order != (out->above ? INLINE_ABOVE : INLINE_BELOW) &&
	     branch->order != (out->above ? INLINE_BELOW_EQUAL : INLINE_ABOVE_EQUAL)))
		return 0;
	moved = branch->order == INLINE_BELOW || branch->order == INLINE_ABOVE ? branch->vaddr + branch->bytes
									       : branch->target;
	out->size_reg = asked_find(code, moved, insns + 1, i - 1, insns[0].src);
	out->reg = copied_from(code, moved);
	return out->size_reg < ABI_REG_COUNT;
}

int inline_match_classed(const struct inline_code *code, uint64_t vaddr)
{
	size_t index = inline_code_index(code, vaddr);
	uint32_t at;

	if (index == code->count)
		return 0;
	at = code->source[index];
	for (int i = 0; i < CLASS_NEAR && at != INLINE_NO_SOURCE; i++, at = code->source[at])
		if (code->insns[at].op == INLINE_SHIFT_LEFT && code->insns[at].value == CLASS_BITS &&
		    code->insns[at].dst == code->insns[index].src)
			return 1;
	return 0;
}
