/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_inline_sites.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan_functions.h"
#include "plan/plan_growth.h"
#include "plan/plan_inline.h"
#include "plan/plan_symbol.h"

#define OBJECT_FREE "_PyObject_Free"

static size_t makes_pools(const struct inline_sites *found)
{
	return found->found[INLINE_REFILL] + found->found[INLINE_FIRST];
}

/*
 * Was every site found where a request ends, with its size? Then these sites serve as well as the
 * functions, for half the price.
 */
static bool is_complete(const struct inline_sites *found)
{
	return found->exact == found->found[INLINE_POOL] && makes_pools(found) &&
	       found->found[INLINE_RESIZE] && found->found[INLINE_RAW] &&
	       found->found[INLINE_RAW_FREE] &&
	       found->given_up_count == found->given_up[INLINE_OBJECT];
}

static bool is_wanted(const struct plan *plan, const struct plan_opts *opts,
		      const struct plan_site *site)
{
	if (site->op == ABI_OP_REUSE)
		return !opts->no_reuse;
	return plan->mode != EVENT_MODE_CENSUS || !plan_site_is_pool_free(site);
}

/*
 * Does the object allocator free a large block here? The compiler has inlined a copy of the raw
 * allocator's function.
 */
static bool is_large_free(const struct plan_site *site)
{
	size_t length = strlen(OBJECT_FREE);

	return site->op == ABI_OP_FREE && !strncmp(site->symbol, OBJECT_FREE, length) &&
	       (site->symbol[length] == '+' || site->symbol[length] == '.');
}

/*
 * Sites to probe in addition to the implementations. In census mode the object allocator's free is
 * not probed, so the large frees in it are.
 */
static bool is_wanted_beside(const struct plan *plan, const struct plan_site *site)
{
	return site->op == ABI_OP_REUSE || (plan->mode == EVENT_MODE_CENSUS && is_large_free(site));
}

static void describe_inlined(struct plan *plan, const struct inline_sites *found)
{
	snprintf(
		plan->level, sizeof(plan->level),
		"raw, mem, obj: where requests end: %zu places take a block from a pool (%zu with "
		"its exact size), %zu give one back, %zu resize one; %zu functions make pools; %zu "
		"calls for large blocks, %zu frees; given up: %zu",
		found->found[INLINE_POOL], found->exact, found->found[INLINE_POOL_FREE],
		found->found[INLINE_RESIZE], makes_pools(found), found->found[INLINE_RAW],
		found->found[INLINE_RAW_FREE], found->given_up_count);
}

static void add_given_up(struct plan *plan, const struct inline_sites *found)
{
	for (size_t i = 0; i < found->given_up_listed; i++) {
		char place[PLAN_NAME_SIZE];

		snprintf(place, sizeof(place), "0x%llx",
			 (unsigned long long)found->given_up_list[i].vaddr);
		plan_missing_add(plan, place, found->given_up_list[i].why);
	}
}

/*
 * Every CPython takes objects from free lists in more places than these: of float, tuple, list,
 * dict, slice, frames, generators, bound methods. A copy of _Py_NewReference is either inlined
 * there or called.
 */
#define REUSE_PLACES_MIN 8u

static void reuse_judge(struct plan *plan, size_t reference_calls)
{
	size_t places = plan->object_sites ? 0 : reference_calls;

	for (size_t i = 0; i < plan->inlined_count; i++)
		places += plan->sites[i].op == ABI_OP_REUSE;
	plan->reuse_unseen |= places < REUSE_PLACES_MIN;
}

/* Py_DEBUG: _Py_NewReference is never inlined, so its calls are all there is. */
static bool is_debug_build(struct elf_file *file)
{
	struct elf_symbol symbol;

	return !elf_file_symbol(file, "_Py_NegativeRefcount", &symbol) && symbol.function;
}

int plan_inline_sites(struct plan *plan, struct elf_file *file, const struct plan_opts *opts,
		      bool functions)
{
	struct inline_sites found;
	struct plan_site *sites;
	bool only_objects;
	int err = plan_inline(file, &found);

	plan->reuse_unseen = err || (found.objects_unknown && !is_debug_build(file));
	if (err) {
		/* Its code was not analysed, and may have such frees. */
		plan_census_refuse(plan);
		return err;
	}
	only_objects =
		!inline_sites_have_pymalloc(&found) ||
		(functions && found.found[INLINE_POOL] <= PLAN_FUNCTIONS && !is_complete(&found));
	if (only_objects && found.given_up[INLINE_RAW_FREE])
		plan_census_refuse(plan);
	sites = calloc(found.count + found.pool_count + PLAN_MAX_ENTRIES, sizeof(*sites));
	if (!sites) {
		inline_sites_free(&found);
		return -ENOMEM;
	}
	free(plan->sites);
	plan->sites = sites;
	plan->count = 0;
	for (size_t i = 0; i < found.count; i++)
		if (is_wanted(plan, opts, &found.sites[i]) &&
		    (!only_objects || is_wanted_beside(plan, &found.sites[i])))
			sites[plan->count++] = found.sites[i];
	plan->inlined_count = plan->count;
	plan->always_new = found.always_new;
	plan->object_sites = found.object_sites;
	reuse_judge(plan, found.reference_calls);
	plan->capacity = found.count + found.pool_count + PLAN_MAX_ENTRIES;
	if (opts->pools && !only_objects)
		plan_pools_take(plan, &found, opts);
	for (size_t i = 0; i < found.record_count; i++)
		plan->record_calls[i] = (uint32_t)found.records[i];
	if (!found.records_known)
		plan_missing_add(plan, "tracemalloc",
				 "where it allocates its own records is not found: they count as "
				 "blocks of the program");
	for (size_t i = 0; i < found.large_count && !only_objects; i++)
		plan->object_code[i] = (struct abi_code){found.large[i], 1};
	if (!only_objects) {
		plan->complete = found.given_up_count == found.given_up[INLINE_OBJECT] +
								 found.given_up[INLINE_POOL_FREE] +
								 found.given_up[INLINE_RAW_FREE];
		describe_inlined(plan, &found);
		add_given_up(plan, &found);
	}
	inline_sites_free(&found);
	return only_objects ? -ENOENT : 0;
}
