/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sites in the functions that make pools, and in copies of the allocator that make pools
 * themselves.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "abi/events.h"
#include "object/insn/machine.h"
#include "probe/place/function_entry.h"
#include "probe/pymalloc/pool.h"
#include "probe/pymalloc/search.h"

#define NEW_POOLS 64 /* instructions where a pool is taken into use, in all functions */

/* Adds the functions that make pools: those that pool sites call when the pool is empty. */
int inline_refills_add(struct inline_search *search)
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

static int is_new_pool(const struct inline_new_pool *found, size_t count, uint64_t site)
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
 * Searches the functions that make pools and, where no call of one was found, the copy of the
 * allocator itself.
 */
int inline_new_pools_add(struct inline_search *search)
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
