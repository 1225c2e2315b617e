/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where objects begin to live that never come from a free list: those of types that have none, which is to be seen where
 * their type is put into them just before, and those in functions that do nothing but allocate. Their block has been seen
 * when it was allocated, and a probe would cost a trap for nothing.
 */
#include "abi/target.h"
#include "probe/inline_search.h"

#define WAY_MAX     24 /* instructions followed back from the site */
#define OBJECT_TYPE 8  /* ob_type */

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

int inline_is_new(const struct inline_code *code, uint64_t site, uint8_t reg)
{
	uint8_t type = ABI_REG_COUNT; /* register that it was put into the object from */
	size_t index = inline_code_index(code, site);
	uint32_t at;

	if (is_in_new_function(code->image, site))
		return 1;
	if (index == code->count)
		return 0;
	at = code->source[index];
	for (int i = 0; i < WAY_MAX && at != INLINE_NO_SOURCE; i++, at = code->source[at]) {
		const struct inline_insn *insn = &code->insns[at];

		if (type < ABI_REG_COUNT && insn->written >> type & 1)
			return insn->op == INLINE_CONST && is_new_type(code->image, (uint64_t)insn->value);
		if (type == ABI_REG_COUNT && insn->base == reg && insn->value == OBJECT_TYPE) {
			if (insn->op == INLINE_STORE_CONST)
				return is_new_type(code->image, insn->target);
			if (insn->op == INLINE_STORE)
				type = insn->src;
		}
		if (type == ABI_REG_COUNT && insn->written >> reg & 1)
			return 0;
	}
	return 0;
}
