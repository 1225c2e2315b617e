/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The function that makes pools is called from wherever a request found all pools of its class full. It returns a block
 * of the pool, of whatever version and however it was compiled, so that its return tells the pool.
 */
#include "probe/plan_growth.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "probe/plan_inline.h"

#define POOL_BYTES_DEFAULT 16384u

uint64_t plan_pool_bits(const struct plan_opts *opts)
{
	uint32_t bytes = opts->pool_bytes ? opts->pool_bytes : POOL_BYTES_DEFAULT;

	return ABI_COOKIE_ADDEND(__builtin_ctz(bytes));
}

/* Is it where a large block is asked of libc, or given back? */
static bool is_raw(const struct plan_site *site)
{
	return site->op == ABI_OP_MALLOC || site->op == ABI_OP_CALLOC || site->op == ABI_OP_REALLOC ||
	       site->op == ABI_OP_END ||
	       (site->op == ABI_OP_FREE && (site->cookie >> 8 & 0xff) == EVENT_API_RAW);
}

static void sites_take(struct plan *plan, const struct inline_sites *found, const struct plan_opts *opts)
{
	plan->count = 0;
	for (size_t i = 0; i < found->count; i++) {
		const struct plan_site *site = &found->sites[i];

		if (site->op == ABI_OP_REFILL) {
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

int plan_growth_sites(struct elf_file *file, const struct plan_opts *opts, size_t room, struct plan *plan)
{
	struct inline_sites found;
	struct plan_site *sites;
	int err = plan_inline(file, &found);

	if (err)
		return err;
	sites = found.found[INLINE_REFILL] ? calloc(found.count + room, sizeof(*sites)) : NULL;
	if (!sites) {
		err = found.found[INLINE_REFILL] ? -ENOMEM : -ENOENT;
		inline_sites_free(&found);
		return err;
	}
	free(plan->sites);
	plan->sites = sites;
	plan->room = found.count + room;
	sites_take(plan, &found, opts);
	snprintf(plan->level, sizeof(plan->level),
		 "pools: %zu function%s make%s them, for %zu places; given up: %zu; large blocks: %s (%zu calls, %zu frees)",
		 found.found[INLINE_REFILL], found.found[INLINE_REFILL] == 1 ? "" : "s",
		 found.found[INLINE_REFILL] == 1 ? "s" : "", found.found[INLINE_POOL],
		 found.given_up[INLINE_REFILL], opts->large_blocks ? "one by one" : "not one by one",
		 found.found[INLINE_RAW], found.found[INLINE_RAW_FREE]);
	inline_sites_free(&found);
	return 0;
}
