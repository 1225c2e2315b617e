/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/pymalloc/sites.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/events.h"
#include "abi/target.h"
#include "object/insn/machine.h"
#include "object/insn/value.h"
#include "probe/place/function_entry.h"
#include "probe/pymalloc/pool.h"
#include "probe/pymalloc/search.h"
#include "probe/pymalloc/size.h"
#include "util/array.h"
#include "util/error.h"

/*
 * Sites in the functions that make pools, and in copies of the allocator that make pools
 * themselves.
 */

#define NEW_POOLS 64 /* instructions where a pool is taken into use, in all functions */

/*
 * Adds the functions that make pools, those that pool sites call when the pool is empty and that
 * search->refills names: sites of INLINE_REFILL. 0; or as inline_site_add().
 */
static int inline_refills_add(struct inline_search *search)
{
	const struct inline_range *text = &search->code.image->text;
	int err = 0;

	for (size_t i = 0; i < search->refill_count && !err; i++) {
		struct probe_spec spec = {"refill",
					  ABI_OP_REFILL,
					  EVENT_API_OBJ,
					  {ABI_REG_COUNT, ABI_REG_COUNT, ABI_REG_COUNT},
					  1};
		uint64_t vaddr = search->refills[i].vaddr, offset = vaddr - text->vaddr;
		struct plan_site site = {0};

		if (offset >= text->bytes || !inline_code_is_start(&search->code, vaddr)) {
			inline_give_up(
				search, INLINE_REFILL, vaddr,
				"called when a pool is empty, but not a function of this file");
			continue;
		}
		err = function_entry_site(search->code.decoder.machine, &spec, text->code + offset,
					  text->bytes - offset < FUNCTION_MAX_CODE
						  ? text->bytes - offset
						  : FUNCTION_MAX_CODE,
					  vaddr, &site);
		if (err)
			return err;
		site.cookie |= ABI_COOKIE_ADDEND(search->pool_bits ? search->pool_bits : 14);
		snprintf(site.why, sizeof(site.why), "makes a pool, called from %u sites",
			 search->refills[i].calls);
		search->out->found[INLINE_REFILL]++;
		err = inline_site_add(search, &site);
	}
	return err;
}

static void new_pool_fill(struct inline_search *search, const struct inline_new_pool *found,
			  struct plan_site *site)
{
	const struct inline_range *text = &search->code.image->text;
	uint64_t offset = found->site - text->vaddr;
	struct inline_insn insn;

	*site = (struct plan_site){
		.vaddr = found->site,
		.op = ABI_OP_NEW_POOL,
		.cookie = ABI_COOKIE(ABI_OP_NEW_POOL, EVENT_API_POOL, found->reg, ABI_REG_COUNT,
				     ABI_REG_COUNT),
		.emulated =
			inline_code_window(&search->code, found->site, &insn, 1) && insn.emulated,
	};
	snprintf(site->why, sizeof(site->why), "a pool is taken into use, in %s",
		 search->code.decoder.machine->register_name(found->reg));
	inline_disassemble(&search->code.decoder, text->code + offset, text->bytes - offset,
			   found->site, site->instruction, sizeof(site->instruction));
}

static bool is_new_pool(const struct inline_new_pool *found, size_t count, uint64_t site)
{
	for (size_t i = 0; i < count; i++)
		if (found[i].site == site)
			return 1;
	return 0;
}

/*
 * A copy of the allocator that makes pools itself has no function to return from: the request's
 * block is the first one of the pool that is taken into use.
 */
static int first_add(struct inline_search *search, const struct inline_new_pool *found)
{
	struct plan_site site = {.vaddr = found->site, .op = ABI_OP_FIRST_BLOCK};

	if (!found->fresh) {
		inline_give_up(search, INLINE_FIRST, found->site,
			       "the first block of a new pool is unknown");
		return 0;
	}
	site.cookie = ABI_COOKIE(ABI_OP_FIRST_BLOCK, EVENT_API_OBJ, found->reg, ABI_REG_COUNT,
				 ABI_REG_COUNT);
	snprintf(site.why, sizeof(site.why), "pool in %s, gives its first block",
		 search->code.decoder.machine->register_name(found->reg));
	search->out->found[INLINE_FIRST]++;
	return inline_site_add(search, &site);
}

/*
 * Marks the site where a copy finds its pool empty: it belongs to the same request as the site
 * where the copy takes another pool into use.
 */
static void own_mark(struct inline_sites *out, uint64_t vaddr, uint8_t own)
{
	for (size_t i = 0; i < out->count; i++)
		if (out->sites[i].vaddr == vaddr && out->sites[i].op == ABI_OP_POOL)
			out->sites[i].cookie =
				(out->sites[i].cookie & ~(0xffull << 32)) | (uint64_t)own << 32;
}

/*
 * out->pools: where these functions, and the copies in search->own, take a pool into use; the
 * latter are sites of INLINE_FIRST, too. 0; or as inline_site_add().
 */
/*
 * Searches the functions that make pools and, where no call of one was found, the copy of the
 * allocator itself.
 */
static int inline_new_pools_add(struct inline_search *search)
{
	struct inline_sites *out = search->out;
	struct inline_new_pool found[NEW_POOLS];
	size_t count = 0, own = 0;
	int err = 0;

	out->pools_complete = 1;
	for (size_t i = 0; i < search->refill_count + search->own_count; i++) {
		int is_own = i >= search->refill_count;
		uint64_t function =
			is_own ? search->own[i - search->refill_count] : search->refills[i].vaddr;
		int got = inline_new_pools(&search->code, function, found + count,
					   NEW_POOLS - count, &out->pools_complete);

		if (got < 0)
			return got;
		if (!got && is_own)
			inline_give_up(search, INLINE_REFILL, function, INLINE_NO_REFILL);
		if (got && is_own)
			own_mark(out, function, search->code.image->machine->stack_pointer);
		out->pools_complete &= got > 0;
		/* A function may have two copies. */
		if (got && is_new_pool(found, count, found[count].site))
			continue;
		if (!is_own)
			own = count + (size_t)got;
		count += (size_t)got;
	}
	out->pools = count ? calloc(count, sizeof(*out->pools)) : NULL;
	if (count && !out->pools)
		return -ENOMEM;
	for (; out->pool_count < count && !err; out->pool_count++) {
		new_pool_fill(search, &found[out->pool_count], &out->pools[out->pool_count]);
		err = out->pool_count < own ? 0 : first_add(search, &found[out->pool_count]);
	}
	return err;
}

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

/*
 * Is there at vaddr the load of pool->nextpool of `if (pool != pool->nextpool)` that precedes
 * taking a block?
 */
static int inline_match_pool(struct inline_code *code, uint64_t vaddr, struct inline_match *out)
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

/* Is there at vaddr the load of pool->freeblock of a free? */
static int inline_match_free(struct inline_code *code, uint64_t vaddr, struct inline_match *out)
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

/*
 * Does the code at vaddr, after a call that returned a block, count the block as one from the raw
 * allocator?
 */
static int inline_match_counted(struct inline_code *code, uint64_t vaddr)
{
	return is_counted(code, vaddr, 2);
}

/*
 * Picks the instruction at which to read the result of the call that returns to vaddr. Always finds
 * one.
 */
static void inline_match_return(struct inline_code *code, uint64_t vaddr, struct inline_match *out)
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

/*
 * Candidates are found as bytes, which is cheap. Each is then decoded at its address, and one with
 * the right shape must be an instruction of its function.
 */

/*
 * Where code calls malloc, calloc, realloc and free of libc: through the stubs of the procedure
 * linkage table, or through the slots themselves.
 */

static const struct inline_import *import_of(const struct inline_image *image, uint64_t slot)
{
	for (size_t i = 0; i < image->import_count; i++)
		if (image->imports[i].slot == slot)
			return &image->imports[i];
	return NULL;
}

uint64_t inline_stub_slot(const struct inline_image *image, uint64_t vaddr)
{
	for (size_t r = 0; r < INLINE_STUB_RANGES; r++) {
		const struct inline_range *range = &image->stubs[r];
		uint64_t at = vaddr - range->vaddr;

		if (at < range->bytes)
			return image->machine->stub_slot(range->code + at,
							 range->bytes - (size_t)at, vaddr);
	}
	return 0;
}

static const struct inline_import *stub_at(const struct inline_image *image, uint64_t vaddr)
{
	return import_of(image, inline_stub_slot(image, vaddr));
}

static uint64_t arguments_cookie(const struct machine *machine, enum abi_op op, enum event_api api)
{
	const uint8_t *arguments = machine->arguments;

	switch (op) {
	case ABI_OP_CALLOC:
	case ABI_OP_REALLOC:
		return ABI_COOKIE(op, api, arguments[0], arguments[1], ABI_REG_COUNT);
	default:
		return ABI_COOKIE(op, api, arguments[0], ABI_REG_COUNT, ABI_REG_COUNT);
	}
}

/*
 * Is it the site of another request? One instruction cannot both end a request and begin the next.
 */
static bool is_raw_call(struct inline_search *search, uint64_t vaddr)
{
	struct inline_insn insn;

	return inline_code_window(&search->code, vaddr, &insn, 1) &&
	       (insn.op == INLINE_CALL || insn.op == INLINE_JUMP) &&
	       stub_at(search->code.image, insn.target);
}

static bool is_record_call(const struct inline_sites *sites, uint64_t vaddr)
{
	for (size_t i = 0; i < sites->record_call_count; i++)
		if (sites->record_calls[i] == vaddr)
			return 1;
	return 0;
}

/* Adds a call of a function of libc, or a jump to it in place of a call. */
static int raw_add(struct inline_search *search, uint64_t vaddr, size_t bytes, enum abi_op op,
		   int is_call)
{
	struct plan_site site = {
		.vaddr = vaddr, .op = op, .with_return = op != ABI_OP_FREE && !is_call};
	struct inline_match match = {0};
	enum event_api api = EVENT_API_RAW;
	int err = 0;

	search->out->found[op == ABI_OP_FREE ? INLINE_RAW_FREE : INLINE_RAW]++;
	if (is_call && op != ABI_OP_FREE) {
		inline_match_return(&search->code, vaddr + bytes, &match);
		if (!inline_is_instruction(search, match.site, &err) ||
		    is_raw_call(search, match.site)) {
			match.site = vaddr + bytes;
			match.reg = search->code.image->machine->result;
		}
		if (match.counted)
			api = EVENT_API_LARGE;
	}
	site.cookie = arguments_cookie(search->code.image->machine, op, api);
	snprintf(site.why, sizeof(site.why), "%s libc%s", is_call ? "call into" : "jump to",
		 api == EVENT_API_LARGE ? ", for pymalloc" : "");
	err = inline_site_add(search, &site);
	if (err || !match.site)
		return err;
	site = (struct plan_site){.vaddr = match.site, .op = ABI_OP_END};
	site.cookie = ABI_COOKIE(ABI_OP_END, api, match.reg, ABI_REG_COUNT, ABI_REG_COUNT);
	snprintf(site.why, sizeof(site.why), "after the call, block in %s",
		 search->code.decoder.machine->register_name(match.reg));
	return inline_site_add(search, &site);
}

/* Calls of libc's allocator. 0; or as inline_site_add(). */
static int inline_raws_find(struct inline_search *search)
{
	const struct inline_image *image = search->code.image;
	struct machine_found found;
	int err = 0;

	for (size_t i = 0;
	     !err && (i = image->machine->look(MACHINE_CALL, &image->text, i, NULL, &found));) {
		const struct inline_import *import = found.through_slot
							     ? import_of(image, found.target)
							     : stub_at(image, found.target);

		if (!import || is_record_call(search->out, found.vaddr))
			continue;
		if (inline_is_instruction(search, found.vaddr, &err))
			err = raw_add(search, found.vaddr, found.bytes, import->op, found.is_call);
		else
			inline_give_up(search,
				       import->op == ABI_OP_FREE ? INLINE_RAW_FREE : INLINE_RAW,
				       found.vaddr, "decoding its function does not lead to it");
	}
	return err;
}

/*
 * Finds where pymalloc requests from the raw allocator a block that is too large for itself,
 * through a slot or a function that jumps through one. The code after that call counts the block.
 * The request is seen in the raw allocator, and its return address identifies it as pymalloc's.
 */

#define PART_MAX 24 /* instructions of a path into a part that was split off the function */

static void large_add(struct inline_sites *sites, uint64_t vaddr)
{
	for (size_t i = 0; i < sites->large_count && i < INLINE_LARGE_MAX; i++)
		if (sites->large[i] == vaddr)
			return;
	if (sites->large_count < INLINE_LARGE_MAX)
		sites->large[sites->large_count] = vaddr;
	sites->large_count++;
}

/*
 * Is it a call of a function of this file, or through a slot? Calls of malloc itself are sites of
 * their own.
 */
static bool is_call(const struct inline_image *image, const struct inline_insn *insn)
{
	uint64_t slot =
		insn->op == INLINE_CALL ? inline_stub_slot(image, insn->target) : insn->target;

	for (size_t i = 0; slot && i < image->import_count; i++)
		if (image->imports[i].slot == slot)
			return 0;
	return insn->op == INLINE_CALL || insn->op == INLINE_CALL_SLOT;
}

static void call_look(struct inline_search *search, const struct inline_insn *insn)
{
	uint64_t after = insn->vaddr + insn->bytes;

	if (is_call(search->code.image, insn) && inline_match_counted(&search->code, after))
		large_add(search->out, after);
}

static void part_look(struct inline_search *search, uint64_t vaddr)
{
	struct inline_insn insn;

	for (int i = 0; i < PART_MAX && inline_code_window(&search->code, vaddr, &insn, 1); i++) {
		if (insn.op == INLINE_JUMP || insn.op == INLINE_JUMP_SLOT || insn.op == INLINE_END)
			return;
		call_look(search, &insn);
		vaddr += insn.bytes;
	}
}

/* Searches the function that was decoded last, and the code that it branches to. */
static void function_look(struct inline_search *search)
{
	const struct inline_code *code = &search->code;

	for (size_t i = 0; i < code->count && search->out->large_count <= INLINE_LARGE_MAX; i++) {
		const struct inline_insn *insn = &code->insns[i];

		call_look(search, insn);
		if ((insn->op == INLINE_BRANCH || insn->op == INLINE_JUMP) &&
		    insn->target - code->start >= code->end - code->start)
			part_look(search, insn->target);
	}
}

/*
 * There are inlined copies, which call malloc itself. The functions are what hooks call
 * (tracemalloc's), and they request large blocks through a slot that holds a hook, too.
 */
static int functions_look(struct inline_search *search)
{
	const uint64_t *functions = search->code.image->object_functions;
	int err = 0;

	for (size_t i = 0; i < INLINE_OBJECT_FUNCTIONS && err != -ENOMEM; i++) {
		err = functions[i] ? inline_code_function(&search->code, functions[i]) : -ENOENT;
		if (!err)
			function_look(search);
	}
	return err == -ENOMEM ? err : 0;
}

/* The return addresses of calls that request large blocks through a slot. 0; -ENOMEM. */
static int inline_large_find(struct inline_search *search)
{
	struct inline_sites *sites = search->out;
	int err;

	/*
	 * An allocator has few functions. If there are more sites, they are inlined copies, which
	 * call malloc itself.
	 */
	if (sites->found[INLINE_POOL] > INLINE_LARGE_MAX) {
		err = functions_look(search);
		if (sites->large_count > INLINE_LARGE_MAX)
			sites->large_count = 0;
		return err;
	}
	for (size_t i = 0; i < sites->count; i++) {
		err = sites->sites[i].op == ABI_OP_POOL
			      ? inline_code_function(&search->code, sites->sites[i].vaddr)
			      : -ENOENT;

		if (err == -ENOMEM)
			return err;
		if (!err)
			function_look(search);
	}
	if (sites->large_count > INLINE_LARGE_MAX)
		sites->large_count = 0;
	return 0;
}

#define SITES_MAX 4096

void inline_give_up(struct inline_search *search, enum inline_kind kind, uint64_t vaddr,
		    const char *why)
{
	struct inline_sites *out = search->out;

	out->given_up[kind]++;
	out->given_up_count++;
	if (out->given_up_listed == ARRAY_SIZE(out->given_up_list))
		return;
	out->given_up_list[out->given_up_listed].vaddr = vaddr;
	out->given_up_list[out->given_up_listed++].why = why;
}

bool inline_is_instruction(struct inline_search *search, uint64_t vaddr, int *err)
{
	int result = inline_code_function(&search->code, vaddr);

	if (result == -ENOMEM)
		*err = result;
	return !result && inline_code_index(&search->code, vaddr) < search->code.count;
}

int inline_site_add(struct inline_search *search, const struct plan_site *site)
{
	const struct inline_range *text = &search->code.image->text;
	struct inline_sites *out = search->out;
	uint64_t offset = site->vaddr - text->vaddr;
	struct inline_insn insn;

	if (out->count == SITES_MAX)
		return error_set(-ENOTSUP, "more than %u places look like an allocator's",
				 SITES_MAX);
	if (out->count == out->capacity) {
		size_t capacity = out->capacity ? 2 * out->capacity : 128;
		struct plan_site *sites = realloc(out->sites, capacity * sizeof(*sites));

		if (!sites)
			return -ENOMEM;
		out->sites = sites;
		out->capacity = capacity;
	}
	struct plan_site *added = &out->sites[out->count++];
	*added = *site;
	added->emulated = inline_code_window(&search->code, site->vaddr, &insn, 1) && insn.emulated;
	inline_disassemble(&search->code.decoder, text->code + offset, text->bytes - offset,
			   site->vaddr, added->instruction, sizeof(added->instruction));
	return 0;
}

static int pool_add(struct inline_search *search, const struct inline_match *match)
{
	struct plan_site site = {.vaddr = match->site, .op = ABI_OP_POOL};
	uint8_t reg = ABI_REG_COUNT;
	int64_t addend = 0;

	if (!inline_size_find(&search->code, match->site, &reg, &addend)) {
		search->out->exact++;
		snprintf(site.why, sizeof(site.why),
			 reg < ABI_REG_COUNT ? "pool in %s, size is %s%+lld"
					     : "pool in %s, size is%.0s %lld",
			 search->code.decoder.machine->register_name(match->reg),
			 search->code.decoder.machine->register_name(reg), (long long)addend);
	} else {
		snprintf(site.why, sizeof(site.why), "pool in %s, size rounded to its class",
			 search->code.decoder.machine->register_name(match->reg));
	}
	site.cookie = ABI_COOKIE(ABI_OP_POOL, EVENT_API_OBJ, match->reg, reg, ABI_REG_COUNT) |
		      ABI_COOKIE_ADDEND(addend);
	int err = inline_site_add(search, &site);
	if (err)
		return err;
	search->out->found[INLINE_POOL]++;
	for (size_t i = 0; match->refill && i < INLINE_REFILLS; i++) {
		if (i == search->refill_count)
			search->refills[search->refill_count++].vaddr = match->refill;
		if (search->refills[i].vaddr != match->refill)
			continue;
		search->refills[i].calls++;
		return 0;
	}
	if (search->own_count < INLINE_REFILLS)
		search->own[search->own_count++] = match->site;
	else
		inline_give_up(search, INLINE_REFILL, match->site, INLINE_NO_REFILL);
	return 0;
}

static int free_add(struct inline_search *search, const struct inline_match *match)
{
	struct plan_site site = {.vaddr = match->site, .op = ABI_OP_FREE};
	const struct inline_code *code = &search->code;
	size_t index = inline_code_index(code, match->site);

	/*
	 * The pool is the block's address without its low bits. Their number gives the size of
	 * pools.
	 */
	for (size_t i = index; i-- > 0 && index - i < 48 && !search->pool_bits;)
		if (code->insns[i].op == INLINE_MASK &&
		    (code->insns[i].value == -16384 || code->insns[i].value == -4096))
			search->pool_bits = code->insns[i].value == -16384 ? 14 : 12;
	if (match->through_pool)
		site.op = ABI_OP_POOL_FREE;
	site.cookie = ABI_COOKIE(site.op, EVENT_API_OBJ, match->reg, ABI_REG_COUNT, ABI_REG_COUNT);
	snprintf(site.why, sizeof(site.why), "%s in %s, a block goes back to its pool",
		 match->through_pool ? "pool" : "block",
		 search->code.decoder.machine->register_name(match->reg));
	search->out->found[INLINE_POOL_FREE]++;
	return inline_site_add(search, &site);
}

static int resize_add(struct inline_search *search, const struct inline_match *match)
{
	struct plan_site site = {.vaddr = match->site, .op = ABI_OP_RESIZE};
	uint8_t reg = match->reg;

	/* The block may be reloaded from the stack before it is copied. */
	if (reg == ABI_REG_COUNT)
		reg = inline_block_find(&search->code, match->site);
	if (reg == ABI_REG_COUNT) {
		inline_give_up(search, INLINE_RESIZE, match->site,
			       "the address of the block is unknown");
		return 0;
	}
	site.cookie =
		ABI_COOKIE(ABI_OP_RESIZE, EVENT_API_OBJ, reg, match->size_reg, ABI_REG_COUNT) |
		ABI_COOKIE_ADDEND(match->above);
	snprintf(site.why, sizeof(site.why), "block in %s may be resized in place, size in %s",
		 search->code.decoder.machine->register_name(reg),
		 search->code.decoder.machine->register_name(match->size_reg));
	search->out->found[INLINE_RESIZE]++;
	return inline_site_add(search, &site);
}

/* Three times the size, which was computed from the pool's size class. */
static int resizes_find(struct inline_search *search)
{
	const struct inline_image *image = search->code.image;
	struct machine_found found;
	int err = 0;

	for (size_t i = 0;
	     !err && (i = image->machine->look(MACHINE_TRIPLE, &image->text, i, NULL, &found));) {
		struct inline_match match;

		if (!inline_match_resize(&search->code, found.vaddr, &match))
			continue;
		int is_triple = inline_is_instruction(search, found.vaddr, &err);
		if (is_triple && !inline_match_classed(&search->code, found.vaddr))
			continue;
		if (is_triple && inline_is_instruction(search, match.site, &err))
			err = resize_add(search, &match);
		else
			inline_give_up(search, INLINE_RESIZE, match.site,
				       "decoding its function does not lead to it");
	}
	return err;
}

static int pools_find(struct inline_search *search)
{
	const struct inline_image *image = search->code.image;
	struct machine_found found;
	int err = 0;

	for (size_t i = 0;
	     !err && (i = image->machine->look(MACHINE_POOL, &image->text, i, NULL, &found));) {
		struct inline_match match;

		if (found.is_next ? !inline_match_pool(&search->code, found.vaddr, &match)
				  : !inline_match_free(&search->code, found.vaddr, &match))
			continue;
		if (!inline_is_instruction(search, found.vaddr, &err) ||
		    !inline_is_instruction(search, match.site, &err))
			inline_give_up(search, found.is_next ? INLINE_POOL : INLINE_POOL_FREE,
				       match.site, "decoding its function does not lead to it");
		else
			err = found.is_next ? pool_add(search, &match) : free_add(search, &match);
	}
	return err;
}

/* Finds the other sites of a file that has pymalloc. */
static int rest_find(struct inline_search *search)
{
	int err = inline_refills_add(search);

	return err
		?: inline_new_pools_add(search)
		?: inline_raws_find(search)
		?: resizes_find(search)
		?: inline_large_find(search);
}

bool inline_sites_have_pymalloc(const struct inline_sites *sites)
{
	return sites->found[INLINE_POOL] && sites->found[INLINE_POOL_FREE];
}

int inline_sites_find(const struct inline_image *image, struct inline_sites *out)
{
	struct inline_sites sites = {0};
	struct inline_search search = {.out = &sites};
	int err = inline_code_open(&search.code, image);

	err = err ?: pools_find(&search) ?: inline_records_find(&search);
	if (!err && inline_sites_have_pymalloc(&sites))
		err = rest_find(&search);
	err = err ?: inline_objects_find(&search);
	inline_code_close(&search.code);
	if (err) {
		inline_sites_free(&sites);
		return err;
	}
	*out = sites;
	return 0;
}

void inline_sites_free(struct inline_sites *sites)
{
	free(sites->sites);
	free(sites->pools);
	memset(sites, 0, sizeof(*sites));
}
