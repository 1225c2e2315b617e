/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allocate_from_new_pool (up to 3.8 a part of pymalloc_alloc) ends with
 *
 * 	pool->ref.count = 1;
 * 	if (pool->szidx == size) { pool->freeblock = *(block *)pool->freeblock; … }
 * 	else { pool->szidx = size; …; pool->freeblock = …; }
 *
 * The compiler may have removed one branch. So the shape is a 32-bit store of 1 through a register,
 * followed by a store of pool->freeblock through the same register. The probe is on the branch or
 * jump between them, which is emulated.
 */
#include "probe/pymalloc/pool.h"

#include <errno.h>

#include "abi/target.h"

#define POOL_FREEBLOCK 8
#define POOL_SZIDX     36
#define PATH           24 /* instructions from the first store to the second */

static int writes(const struct inline_insn *insn, uint8_t reg)
{
	return insn->written >> reg & 1;
}

/* Does the register hold 1 before the instruction of that index, on the only path to it? */
static bool is_one(const struct inline_code *code, size_t index, uint8_t reg)
{
	uint32_t at = code->source[index];

	for (int i = 0; i < PATH && reg < ABI_REG_COUNT && at != INLINE_NO_SOURCE;
	     i++, at = code->source[at])
		if (writes(&code->insns[at], reg))
			return code->insns[at].op == INLINE_CONST && code->insns[at].value == 1;
	return 0;
}

/* *reg = 1, 32 bits: the register, else ABI_REG_COUNT. */
static uint8_t counted_register(const struct inline_code *code, size_t index)
{
	const struct inline_insn *insn = &code->insns[index];
	int is_constant = insn->op == INLINE_STORE_CONST && insn->width == 4 && insn->target == 1;

	if (insn->value || insn->base >= ABI_REG_COUNT)
		return ABI_REG_COUNT;
	return is_constant || (insn->op == INLINE_STORE_32 && is_one(code, index, insn->src))
		       ? insn->base
		       : ABI_REG_COUNT;
}

/* Is pool->freeblock stored on the path from vaddr? */
static bool is_filled(struct inline_code *code, uint64_t vaddr, uint8_t pool)
{
	struct inline_insn insn;

	for (int i = 0; i < PATH && inline_code_window(code, vaddr, &insn, 1); i++) {
		if (insn.op == INLINE_STORE && insn.base == pool && insn.value == POOL_FREEBLOCK)
			return 1;
		if (writes(&insn, pool) || insn.op > INLINE_JUMP)
			return 0;
		vaddr = insn.op == INLINE_JUMP ? insn.target : vaddr + insn.bytes;
	}
	return 0;
}

/*
 * The instruction to probe: the first emulated one that is only reached from the store, otherwise
 * the one after the store or, if that is reached from elsewhere, too, the store.
 */
static size_t site_index(const struct inline_code *code, size_t store, uint8_t pool)
{
	for (size_t i = store + 1; i < code->count && code->source[i] == i - 1; i++) {
		if (code->insns[i].emulated)
			return i;
		if (code->insns[i].op >= INLINE_BRANCH || writes(&code->insns[i], pool))
			break;
	}
	return code->source[store + 1] == store ? store + 1 : store;
}

/* Is the pool's size class not stored between those two instructions? */
static bool is_fresh(const struct inline_code *code, size_t store, size_t site, uint8_t pool)
{
	for (size_t i = store; i < site; i++)
		if (code->insns[i].op == INLINE_STORE_32 && code->insns[i].base == pool &&
		    code->insns[i].value == POOL_SZIDX)
			return 0;
	return 1;
}

int inline_new_pools(struct inline_code *code, uint64_t vaddr, struct inline_new_pool *out,
		     size_t capacity, int *emulated)
{
	size_t count = 0;
	int err = inline_code_function(code, vaddr);

	if (err)
		return err == -ENOMEM ? err : 0;
	for (size_t i = 0; i + 1 < code->count && count < capacity; i++) {
		const struct inline_insn *insn = &code->insns[i];
		uint8_t pool = counted_register(code, i);

		if (pool == ABI_REG_COUNT || !is_filled(code, insn->vaddr + insn->bytes, pool))
			continue;
		size_t site = site_index(code, i, pool);
		*emulated &= code->insns[site].emulated;
		out[count++] =
			(struct inline_new_pool){.site = code->insns[site].vaddr,
						 .reg = pool,
						 .fresh = (uint8_t)is_fresh(code, i, site, pool)};
	}
	return (int)count;
}
