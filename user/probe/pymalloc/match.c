/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/pymalloc/match.h"

#include "abi/target.h"
#include "object/insn/machine.h"
#include "object/insn/value.h"

/* struct pool_header, the same in all versions. */
#define POOL_FREEBLOCK 8
#define POOL_NEXTPOOL  16

#define STATE_OFFSET 256 /* object fields are below, the interpreter's counters above */

#define WINDOW 20 /* instructions */
/* Instructions to the call on the path of a pool that is empty: registers are saved first. */
#define CALL_WINDOW 20
/*
 * Instructions from a call to where its block is counted: registers that the call may clobber are
 * reloaded from the stack first.
 */
#define COUNT_WINDOW 16

static int writes(const struct inline_insn *insn, uint8_t reg)
{
	return reg < ABI_REG_COUNT && insn->written >> reg & 1;
}

static int goes_on(const struct inline_insn *insn)
{
	return insn->op < INLINE_BRANCH;
}

/*
 * Words that registers were loaded from, and whether they are one more by now: where no instruction
 * increments memory, a load, an addition and a store do.
 */
struct bumps {
	struct {
		int64_t value;
		uint8_t base, width; /* width 0: not from memory */
		uint8_t added;
	} of[ABI_REG_COUNT];
};

/*
 * Follows one instruction. 1: it completes an increment of *(insn->base + insn->value); *width: its
 * bytes.
 */
static int bumps_step(const struct machine *machine, struct bumps *bumps,
		      const struct inline_insn *insn, uint8_t *width)
{
	int is_load = insn->op == INLINE_LOAD || insn->op == INLINE_LOAD_32;
	int is_store = insn->op == INLINE_STORE || insn->op == INLINE_STORE_32;
	int is_one_more = insn->op == INLINE_ADD && insn->value == 1 && insn->dst == insn->src &&
			  insn->dst < ABI_REG_COUNT;

	*width = insn->op == INLINE_STORE || insn->op == INLINE_LOAD ? 8 : 4;
	if (machine == &machine_x86) {
		*width = insn->width;
		return insn->op == INLINE_BUMP;
	}
	if (is_store && insn->src < ABI_REG_COUNT)
		return bumps->of[insn->src].added && bumps->of[insn->src].base == insn->base &&
		       bumps->of[insn->src].value == insn->value &&
		       bumps->of[insn->src].width == *width;
	for (uint8_t r = 0; r < ABI_REG_COUNT; r++) {
		int is_kept = is_one_more && r == insn->dst && !bumps->of[r].added;

		bumps->of[r].added |= (uint8_t)is_kept;
		if ((writes(insn, r) && !is_kept) || writes(insn, bumps->of[r].base))
			bumps->of[r].width = bumps->of[r].added = 0;
	}
	if (is_load && insn->dst < ABI_REG_COUNT && insn->dst != insn->base) {
		bumps->of[insn->dst].value = insn->value;
		bumps->of[insn->dst].base = insn->base;
		bumps->of[insn->dst].width = *width;
	}
	return 0;
}

/* Is `block = pool->freeblock; ++pool->ref.count` at vaddr, or where it jumps to? */
static int takes_block(struct inline_code *code, uint64_t vaddr, uint8_t pool)
{
	struct bumps bumps = {0};
	struct inline_insn insn;
	int block = 0, counted = 0;

	for (int i = 0; i < 14 && inline_code_window(code, vaddr, &insn, 1); i++) {
		uint8_t width;

		block |=
			insn.op == INLINE_LOAD && insn.base == pool && insn.value == POOL_FREEBLOCK;
		counted |= bumps_step(code->image->machine, &bumps, &insn, &width) &&
			   insn.base == pool && !insn.value && width == 4;
		if (block && counted)
			return 1;
		if (writes(&insn, pool) || (!goes_on(&insn) && insn.op != INLINE_JUMP))
			return 0;
		vaddr = insn.op == INLINE_JUMP ? insn.target : vaddr + insn.bytes;
	}
	return 0;
}

/* The first function that is called within a few instructions of vaddr. */
static uint64_t first_call(struct inline_code *code, uint64_t vaddr)
{
	struct inline_insn insn;

	for (int i = 0; i < CALL_WINDOW && inline_code_window(code, vaddr, &insn, 1); i++) {
		if (insn.op == INLINE_CALL)
			return insn.target;
		if (insn.op == INLINE_JUMP && inline_code_is_start(code, insn.target))
			return insn.target;
		if (insn.op != INLINE_JUMP && !goes_on(&insn))
			return 0;
		vaddr = insn.op == INLINE_JUMP ? insn.target : vaddr + insn.bytes;
	}
	return 0;
}

int inline_match_pool(struct inline_code *code, uint64_t vaddr, struct inline_match *out)
{
	struct inline_insn insns[WINDOW];
	size_t count = inline_code_window(code, vaddr, insns, 8), i = 0;
	uint8_t pool, next = ABI_REG_COUNT;

	if (!count || insns[0].value != POOL_NEXTPOOL || insns[0].base == ABI_REG_COUNT)
		return 0;
	pool = insns[0].base;
	if (insns[0].op == INLINE_LOAD) {
		next = insns[0].dst;
		for (i = 1; i < count; i++) {
			if (insns[i].op == INLINE_COMPARE && insns[i].base == ABI_REG_COUNT &&
			    !insns[i].value &&
			    ((insns[i].dst == pool && insns[i].src == next) ||
			     (insns[i].dst == next && insns[i].src == pool)))
				break;
			if (!goes_on(&insns[i]) || writes(&insns[i], pool) ||
			    writes(&insns[i], next))
				return 0;
		}
	} else if (insns[0].op != INLINE_COMPARE || insns[0].dst != pool) {
		return 0;
	}
	for (i++; i < count && goes_on(&insns[i]); i++)
		if (writes(&insns[i], pool))
			return 0;
	if (i >= count || insns[i].op != INLINE_BRANCH || !(insns[i].equal || insns[i].unequal))
		return 0;
	uint64_t after = insns[i].vaddr + insns[i].bytes;

	if (pool == next || !takes_block(code, insns[i].equal ? after : insns[i].target, pool))
		return 0;
	*out = (struct inline_match){.site = insns[i].vaddr, .reg = pool};
	out->refill = first_call(code, insns[i].equal ? insns[i].target : after);
	return 1;
}

int inline_match_free(struct inline_code *code, uint64_t vaddr, struct inline_match *out)
{
	struct inline_insn insns[WINDOW];
	size_t count = inline_code_window(code, vaddr, insns, WINDOW);
	uint8_t pool, last, block = ABI_REG_COUNT;
	int linked = 0, pushed = 0, tested = 0, lost = 0;

	if (!count || insns[0].op != INLINE_LOAD || insns[0].value != POOL_FREEBLOCK ||
	    insns[0].base == ABI_REG_COUNT)
		return 0;
	pool = insns[0].base;
	last = insns[0].dst;
	for (size_t i = 1; i < count; i++) {
		const struct inline_insn *insn = &insns[i];

		tested |= insn->op == INLINE_BRANCH && insn->src == last;
		if (insn->op == INLINE_BRANCH && tested && pushed) {
			*out = (struct inline_match){.site = insn->vaddr,
						     .reg = lost ? pool : block,
						     .through_pool = lost};
			return insn->equal || insn->unequal;
		}
		if (!goes_on(insn) || writes(insn, pool) || writes(insn, last))
			return 0;
		lost |= writes(insn, block);
		/*
		 * Stores into the block, in any form of its address: the debug hooks' copy has it
		 * as p - 16.
		 */
		linked |= insn->op == INLINE_STORE && insn->src == last && insn->base != pool;
		if (linked && !pushed && insn->op == INLINE_STORE && insn->base == pool &&
		    insn->value == POOL_FREEBLOCK && insn->src < ABI_REG_COUNT) {
			pushed = 1;
			block = insn->src;
		}
		tested |= insn->op == INLINE_TEST && insn->dst == last;
	}
	return 0;
}

/*
 * Is raw_allocated_blocks++ on the path of a block that was returned? It is a static variable; from
 * 3.12 on it is deep in the interpreter's state.
 */
static uint8_t is_counted(struct inline_code *code, uint64_t vaddr, int branches)
{
	struct inline_insn insns[COUNT_WINDOW];
	size_t count = inline_code_window(code, vaddr, insns, COUNT_WINDOW);
	struct bumps bumps = {0};
	struct inline_state state;

	inline_state_init(&state);
	for (size_t i = 0; i < count; i++) {
		uint8_t width, base = insns[i].base;

		if (bumps_step(code->image->machine, &bumps, &insns[i], &width) && width == 8 &&
		    base != code->image->machine->stack_pointer &&
		    (base < ABI_REG_COUNT ? state.of[base].addend : 0) + insns[i].value >=
			    STATE_OFFSET)
			return 1;
		inline_state_step(&state, &insns[i]);
		if (insns[i].op == INLINE_JUMP ||
		    (insns[i].op == INLINE_BRANCH && insns[i].unequal))
			return branches && is_counted(code, insns[i].target, branches - 1);
		if (!goes_on(&insns[i]) && insns[i].op != INLINE_BRANCH)
			return 0;
	}
	return 0;
}

int inline_match_counted(struct inline_code *code, uint64_t vaddr)
{
	return is_counted(code, vaddr, 2);
}

void inline_match_return(struct inline_code *code, uint64_t vaddr, struct inline_match *out)
{
	struct inline_insn insns[WINDOW];
	size_t count = inline_code_window(code, vaddr, insns, WINDOW);
	const struct machine *machine = code->image->machine;
	uint32_t holders = 1u << machine->result;

	*out = (struct inline_match){.site = vaddr,
				     .reg = machine->result,
				     .counted = inline_match_counted(code, vaddr)};
	for (size_t i = 0; i < count && holders; i++) {
		if (insns[i].emulated) {
			out->site = insns[i].vaddr;
			out->reg = (uint8_t)__builtin_ctz(holders);
			return;
		}
		if (!goes_on(&insns[i]) || writes(&insns[i], machine->stack_pointer))
			return;
		uint32_t copy = insns[i].op == INLINE_COPY && insns[i].width == 8 &&
						holders >> insns[i].src & 1
					? 1u << insns[i].dst
					: 0;

		holders = (holders & ~insns[i].written) | copy;
	}
}
