/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The function that makes pools is called wherever a request finds all pools of its class full. A
 * probe on the instruction in it that takes the pool into use costs one trap. Where that
 * instruction is not recognised, or is not emulated, the function's return is probed: it returns
 * one of the pool's blocks.
 */
#include "probe/python/plan_growth.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "probe/python/plan_inline.h"
#include "util/error.h"

#define POOL_BYTES_DEFAULT 16384u

uint64_t plan_pool_bits(const struct plan_opts *opts)
{
	uint32_t bytes = opts->pool_bytes ? opts->pool_bytes : POOL_BYTES_DEFAULT;

	return ABI_COOKIE_ADDEND(__builtin_ctz(bytes));
}

/* Is a large block requested from libc, or returned to it, at this site? */
static bool is_raw(const struct plan_site *site)
{
	return site->op == ABI_OP_MALLOC || site->op == ABI_OP_CALLOC ||
	       site->op == ABI_OP_REALLOC || site->op == ABI_OP_END ||
	       (site->op == ABI_OP_FREE && (site->cookie >> 8 & 0xff) == EVENT_API_RAW);
}

static void pools_add(struct plan *plan, const struct inline_sites *found,
		      const struct plan_opts *opts)
{
	for (size_t i = 0; i < found->pool_count; i++) {
		struct plan_site *pool = &plan->sites[plan->count++];

		*pool = found->pools[i];
		pool->cookie |= plan_pool_bits(opts);
	}
}

void plan_pools_take(struct plan *plan, const struct inline_sites *found,
		     const struct plan_opts *opts)
{
	if (found->pools_complete)
		pools_add(plan, found, opts);
}

static void sites_take(struct plan *plan, const struct inline_sites *found,
		       const struct plan_opts *opts, bool by_return)
{
	plan->count = 0;
	if (!by_return)
		pools_add(plan, found, opts);
	for (size_t i = 0; i < found->count; i++) {
		const struct plan_site *site = &found->sites[i];

		if (by_return && site->op == ABI_OP_REFILL) {
			struct plan_site *pool = &plan->sites[plan->count++];

			*pool = *site;
			pool->op = ABI_OP_NEW_POOL;
			pool->cookie = ABI_COOKIE(ABI_OP_NEW_POOL, EVENT_API_POOL, ABI_REG_COUNT,
						  ABI_REG_COUNT, ABI_REG_COUNT) |
				       plan_pool_bits(opts);
		} else if (opts->large_blocks && is_raw(site)) {
			plan->sites[plan->count++] = *site;
			plan->large_blocks = 1;
		}
	}
}

int plan_growth_sites(struct elf_file *file, const struct plan_opts *opts, size_t capacity,
		      struct plan *plan)
{
	struct inline_sites found;
	struct plan_site *sites;
	int err = plan_inline(file, &found);
	/*
	 * A copy that neither calls such a function nor is one could make pools that are not seen.
	 */

	if (err)
		return err;
	if (!inline_sites_have_pymalloc(&found)) {
		inline_sites_free(&found);
		return error_set(-ENOENT, "no copy of pymalloc is recognised in its code");
	}
	bool functions = found.found[INLINE_REFILL] && !found.given_up[INLINE_REFILL];
	bool known = found.pools_complete || functions ||
		     (found.pool_count && !found.found[INLINE_REFILL]);
	sites = known ? calloc(found.count + found.pool_count + capacity, sizeof(*sites)) : NULL;
	if (!sites) {
		err = known ? -ENOMEM : -ENOENT;
		inline_sites_free(&found);
		return err;
	}
	free(plan->sites);
	plan->sites = sites;
	plan->capacity = found.count + found.pool_count + capacity;
	bool by_return = functions && !found.pools_complete;
	size_t places = by_return ? found.found[INLINE_REFILL] : found.pool_count;
	sites_take(plan, &found, opts, by_return);
	plan->inlined_count = plan->count;
	snprintf(
		plan->level, sizeof(plan->level),
		"pools: taken into use in %zu place%s, %s; large blocks: %s (%zu calls, %zu frees)",
		places, places == 1 ? "" : "s",
		by_return ? "seen as their functions return" : "seen there",
		plan->large_blocks ? "one by one" : "not one by one", found.found[INLINE_RAW],
		found.found[INLINE_RAW_FREE]);
	inline_sites_free(&found);
	return 0;
}
