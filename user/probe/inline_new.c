/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where objects begin to live that never come from a free list: those of types that have none, which is to be seen where
 * their type is put into them just before, and those in functions that do nothing but allocate. Their block has been seen
 * when it was allocated, and a probe would cost a trap for nothing.
 */
#include "abi/target.h"
#include "probe/inline_search.h"

#define WAY_MAX         32 /* instructions followed back from the site */
#define OBJECT_TYPE     8  /* ob_type */
#define IS_IN(set, reg) ((reg) < ABI_REG_COUNT && (set) >> (reg)&1)

static int is_new_type(const struct inline_image *image, uint64_t type)
{
	for (size_t i = 0; i < INLINE_NEW_TYPES; i++)
		if (type && image->new_types[i] == type)
			return 1;
	return 0;
}

static int is_in_new_function(const struct inline_image *image, uint64_t site)
{
	for (size_t i = 0; i < INLINE_NEW_FUNCTIONS; i++)
		if (site - image->new_functions[i].vaddr < image->new_functions[i].bytes)
			return 1;
	return 0;
}

/* The address of a type that is read from a slot which the dynamic linker fills. */
static int is_new_slot(const struct inline_image *image, uint64_t slot)
{
	for (size_t i = 0; i < INLINE_NEW_TYPES; i++)
		if (slot && image->new_slots[i] == slot)
			return 1;
	return 0;
}

static size_t ways_into(const struct inline_code *code, uint64_t vaddr)
{
	size_t count = 0;

	for (size_t i = 0; i < code->count; i++)
		count += (code->insns[i].op == INLINE_BRANCH || code->insns[i].op == INLINE_JUMP) &&
			 code->insns[i].target == vaddr;
	for (size_t i = 0; i < code->jump_count; i++)
		count += code->jumps[i].target == vaddr &&
			 (code->jumps[i].source < code->start || code->jumps[i].source >= code->end);
	return count;
}

/*
 * Where control comes from. A branch over one instruction (of a type's reference count, where it is immortal) and what it
 * leaps over count as one way.
 */
static uint32_t way_back(const struct inline_code *code, uint32_t at)
{
	uint32_t from = code->source[at];

	if (from != INLINE_NO_SOURCE || at < 2 || code->source[at - 1] != at - 2 ||
	    code->insns[at - 1].op >= INLINE_BRANCH || code->insns[at - 2].op != INLINE_BRANCH ||
	    code->insns[at - 2].target != code->insns[at].vaddr ||
	    ways_into(code, code->insns[at].vaddr) != 1)
		return from;
	return at - 1;
}

/* Is what the register holds before the instruction at that index a type without a free list? */
static int is_new_held(const struct inline_code *code, uint32_t at, uint8_t reg)
{
	at = way_back(code, at);
	for (int i = 0; i < WAY_MAX && at != INLINE_NO_SOURCE; i++, at = way_back(code, at)) {
		const struct inline_insn *insn = &code->insns[at];

		if (!IS_IN(insn->written, reg))
			continue;
		if (insn->op == INLINE_CONST)
			return is_new_type(code->image, (uint64_t)insn->value);
		if (insn->op == INLINE_LOAD && insn->base == ABI_REG_COUNT)
			return is_new_slot(code->image, (uint64_t)insn->value);
		if (insn->op != INLINE_COPY)
			return 0;
		reg = insn->src;
	}
	return 0;
}

int inline_is_new(const struct inline_code *code, uint64_t site, uint8_t reg)
{
	size_t index = inline_code_index(code, site);
	uint32_t way[WAY_MAX], at, objects; /* objects: the registers that hold the object, a bit each */
	int count = 0, is_new = 0;

	if (is_in_new_function(code->image, site))
		return 1;
	if (index == code->count)
		return 0;
	/* Back to where it comes from, which register it may be in there; then forth again, through all that get it. */
	for (at = way_back(code, (uint32_t)index); count < WAY_MAX && at != INLINE_NO_SOURCE;
	     at = way_back(code, at)) {
		const struct inline_insn *insn = &code->insns[at];

		if (IS_IN(insn->written, reg)) {
			if (insn->op != INLINE_COPY || insn->src >= ABI_REG_COUNT)
				break;
			reg = insn->src;
		}
		way[count++] = at;
	}
	objects = 1u << reg;
	while (count--) {
		const struct inline_insn *insn = &code->insns[way[count]];
		int is_type = IS_IN(objects, insn->base) && insn->value == OBJECT_TYPE;

		if (insn->op == INLINE_STORE_CONST && is_type)
			is_new = is_new_type(code->image, insn->target);
		else if (insn->op == INLINE_STORE && is_type)
			is_new = is_new_held(code, way[count], insn->src);
		if (insn->op == INLINE_COPY && IS_IN(objects, insn->src))
			objects |= 1u << insn->dst;
		else
			objects &= ~insn->written;
	}
	return is_new;
}
