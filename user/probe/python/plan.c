/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which functions of a Python runtime are probed.
 *
 * A request goes from a public function (PyObject_Malloc) through the domain's slot to an
 * implementation (_PyObject_Malloc), which takes the slot's context before the arguments. The
 * implementations see every request, also those of inlined copies of the public functions, but they
 * are static: a stripped file does not name them. The slots of mem and obj hold the same
 * implementations.
 */
#include "probe/python/plan.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/events.h"
#include "object/elf/elf_file.h"
#include "probe/pymalloc/sites.h"
#include "probe/python/plan_ends.h"
#include "probe/python/plan_finalize.h"
#include "probe/python/plan_functions.h"
#include "probe/python/plan_inline.h"
#include "probe/python/plan_symbol.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/error.h"

/*
 * Growth mode's part of the planner: which sites of the analysed code are probed if only pools are
 * of interest.
 */

/*
 * The function that makes pools is called wherever a request finds all pools of its class full. A
 * probe on the instruction in it that takes the pool into use costs one trap. Where that
 * instruction is not recognised, or is not emulated, the function's return is probed: it returns
 * one of the pool's blocks.
 */

#define PLAN_POOL_FUNCTION "allocate_from_new_pool" /* Objects/obmalloc.c, 3.9 and later */

#define POOL_BYTES_DEFAULT 16384u

/* The cookie's addend for ABI_OP_NEW_POOL. */
static uint64_t plan_pool_bits(const struct plan_opts *opts)
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

/*
 * Adds to other sites those where a pool is taken into use, if all are known; plan has the capacity
 * for them.
 */
static void plan_pools_take(struct plan *plan, const struct inline_sites *found,
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

/*
 * Replaces plan's sites by those of the functions that make pools and, if requested, those of large
 * blocks, with capacity for as many more, and describes them. 0; -ENOENT, -ENOTSUP no such function
 * is found; -ENOMEM.
 */
static int plan_growth_sites(struct elf_file *file, const struct plan_opts *opts, size_t capacity,
			     struct plan *plan)
{
	_cleanup_(inline_sites_free) struct inline_sites found = {0};
	int err = plan_inline(file, &found);

	if (err)
		return err;
	if (!inline_sites_have_pymalloc(&found))
		return error_set(-ENOENT, "no copy of pymalloc is recognised in its code");
	/*
	 * A copy that neither calls such a function nor is one could make pools that are not seen.
	 */
	bool functions = found.found[INLINE_REFILL] && !found.given_up[INLINE_REFILL];
	bool known = found.pools_complete || functions ||
		     (found.pool_count && !found.found[INLINE_REFILL]);
	if (!known)
		return -ENOENT;
	struct plan_site *sites = calloc(found.count + found.pool_count + capacity, sizeof(*sites));
	if (!sites)
		return -ENOMEM;
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
	return 0;
}

/* --- plan inline sites ------------------------------------------------------------------------ */

/* Which of the sites that the code analysis finds (probe/pymalloc/sites.h) are probed. */

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

/*
 * Replaces plan's sites by those that the analysis finds, with capacity for PLAN_MAX_ENTRIES more,
 * and describes them. functions: all implementations have symbols.
 *
 * 0; -ENOMEM; -ENOENT, -ENOTSUP: probe the functions instead. That is so if the analysis finds no
 * copy of pymalloc, or if the implementations have symbols, there are no more copies than
 * functions, and something is missing. The plan then has only the sites where objects begin to
 * live and, in census mode, the frees of large blocks that no symbol shows. Where those frees are
 * not all known, the plan's mode falls back from census to exact.
 */
static int plan_inline_sites(struct plan *plan, struct elf_file *file, const struct plan_opts *opts,
			     bool functions)
{
	_cleanup_(inline_sites_free) struct inline_sites found = {0};
	int err = plan_inline(file, &found);

	plan->reuse_unseen = err || (found.objects_unknown && !is_debug_build(file));
	if (err) {
		/* Its code was not analysed, and may have such frees. */
		plan_census_refuse(plan);
		return err;
	}
	bool only_objects =
		!inline_sites_have_pymalloc(&found) ||
		(functions && found.found[INLINE_POOL] <= PLAN_FUNCTIONS && !is_complete(&found));
	if (only_objects && found.given_up[INLINE_RAW_FREE])
		plan_census_refuse(plan);
	struct plan_site *sites =
		calloc(found.count + found.pool_count + PLAN_MAX_ENTRIES, sizeof(*sites));
	if (!sites)
		return -ENOMEM;
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
	return only_objects ? -ENOENT : 0;
}

/* --- plan ------------------------------------------------------------------------------------- */

#define NEW_REFERENCE "_Py_NewReference"

static const struct probe_spec singles[] = {
	{"PyTraceMalloc_Track",
	 ABI_OP_TRACK,
	 EVENT_API_TRACK,
	 {ABI_ARGUMENT_1, ABI_ARGUMENT_2, ABI_ARGUMENT_3},
	 0},
	{"PyTraceMalloc_Untrack",
	 ABI_OP_UNTRACK,
	 EVENT_API_TRACK,
	 {ABI_ARGUMENT_1, ABI_ARGUMENT_2, ABI_REG_COUNT},
	 0},
	{NEW_REFERENCE,
	 ABI_OP_REUSE,
	 EVENT_API_OBJ,
	 {ABI_ARGUMENT_1, ABI_REG_COUNT, ABI_REG_COUNT},
	 0},
	{"_Py_NewReferenceNoTotal",
	 ABI_OP_REUSE,
	 EVENT_API_OBJ,
	 {ABI_ARGUMENT_1, ABI_REG_COUNT, ABI_REG_COUNT},
	 0},
	{"Py_Exit",
	 ABI_OP_FINALIZE,
	 EVENT_API_RAW,
	 {ABI_REG_COUNT, ABI_REG_COUNT, ABI_REG_COUNT},
	 0},
	{"Py_FinalizeEx",
	 ABI_OP_FINALIZE,
	 EVENT_API_RAW,
	 {ABI_REG_COUNT, ABI_REG_COUNT, ABI_REG_COUNT},
	 0},
};

/* A block goes back to its pool. A heap walk shows that, too. */
bool plan_site_is_pool_free(const struct plan_site *site)
{
	return site->op == ABI_OP_POOL_FREE ||
	       (site->op == ABI_OP_FREE && (site->cookie >> 8 & 0xff) == EVENT_API_OBJ);
}

bool plan_site_is_pooled(const struct plan_site *site)
{
	uint32_t api = site->cookie >> 8 & 0xff;

	switch (site->op) {
	case ABI_OP_POOL:
	case ABI_OP_REFILL:
	case ABI_OP_FIRST_BLOCK:
	case ABI_OP_RESIZE:
	case ABI_OP_REUSE:
		return 1;
	case ABI_OP_MALLOC:
	case ABI_OP_CALLOC:
	case ABI_OP_REALLOC:
		return api == EVENT_API_OBJ || api == EVENT_API_MEM;
	default:
		return 0;
	}
}

bool plan_site_is_new_pool(const struct plan_site *site)
{
	return site->op == ABI_OP_NEW_POOL;
}

bool plan_site_is_passed_on(const struct plan_site *site)
{
	return (site->cookie >> 8 & 0xff) != EVENT_API_NATIVE && !plan_site_is_pooled(site) &&
	       !plan_site_is_pool_free(site) &&
	       (site->op == ABI_OP_END || site->op == ABI_OP_FREE ||
		(site->op >= ABI_OP_MALLOC && site->op <= ABI_OP_REALLOC));
}

/*
 * Adds the sites where the heap grows: those that the code analysis finds, otherwise the function
 * that makes pools, if it has a symbol.
 */
static int add_growth(struct plan *plan, struct elf_file *file, const struct plan_opts *opts)
{
	const struct probe_spec spec = {.symbol = PLAN_POOL_FUNCTION,
					.op = ABI_OP_NEW_POOL,
					.api = EVENT_API_POOL,
					.arguments = {ABI_REG_COUNT, ABI_REG_COUNT, ABI_REG_COUNT},
					.with_return = 1};
	int err = plan_growth_sites(file, opts, PLAN_MAX_ENTRIES, plan);
	size_t count = plan->count;

	if (!err)
		return 0;
	if (err == -ENOMEM)
		return err;
	err = plan_symbol_add(plan, file, &spec);
	if (err)
		return err;
	if (plan->count == count)
		return error_set(-ENOTSUP, "the function of %s that makes pools is not found",
				 elf_file_path(file));
	plan->sites[count].cookie |= plan_pool_bits(opts);
	snprintf(plan->level, sizeof(plan->level), "pools: %s%s", PLAN_POOL_FUNCTION,
		 opts->large_blocks ? "; large blocks: the calls of malloc and free are not found"
				    : "");
	return 0;
}

static void describe_objects(struct plan *plan)
{
	size_t length = strlen(plan->level), count = 0;

	for (size_t i = 0; i < plan->count; i++)
		count += plan->sites[i].op == ABI_OP_REUSE;
	snprintf(plan->level + length, sizeof(plan->level) - length,
		 "; %zu take an object into use", count);
	length = strlen(plan->level);
	if (count && plan->always_new)
		snprintf(plan->level + length, sizeof(plan->level) - length,
			 " (and %zu one in a new block only)", plan->always_new);
}

/* Checks that the file's exported allocators lead to probed sites. */
static int ends_judge(struct plan *plan, struct elf_file *file)
{
	const char *names[PLAN_ENDS];
	int count = plan_ends_unknown(file, plan->sites, plan->count, plan->mode, names);

	for (int i = 0; i < count; i++)
		plan_missing_add(plan, names[i], "its code does not lead to a probed site");
	plan->ends_unseen = count > 0;
	return count < 0 ? count : 0;
}

static int add_everything(struct plan *plan, struct elf_file *file, const struct plan_opts *opts)
{
	struct plan_named named = {0};
	bool growth = opts->mode == EVENT_MODE_GROWTH, inlined;

	if (!opts->public_only && !opts->free_threaded)
		named = plan_functions_named(plan, file);
	/*
	 * Even where the implementations have symbols, the compiler may have inlined copies of them
	 * elsewhere, as in a distribution's build with debug symbols installed. Where it has not,
	 * each of these functions takes a block from a pool in at most one place.
	 */
	int err = growth              ? add_growth(plan, file, opts)
		  : opts->public_only ? -ENOENT
		  : opts->free_threaded
			  ? plan_slot_functions_add(plan, file)
			  : plan_inline_sites(plan, file, opts, named.raw && named.obj);
	inlined = !err;
	plan->reuse_unseen |= !growth && (opts->no_reuse || opts->public_only);
	if (!err && named.obj)
		plan_object_code_find(plan, file);
	if (err && err != -ENOMEM && !growth)
		err = plan_functions_add(plan, file, opts, named);
	/* The public functions run before the hooks, and see what the program asked for. */
	if (!err && !growth && (inlined || (named.raw && named.obj)))
		err = plan_hooks_add(plan, file);
	if (err)
		return err;
	if (!plan->count)
		return error_set(-ENOENT, "%s has no symbol of Python's allocators",
				 elf_file_path(file));
	for (size_t i = 0; i < ARRAY_SIZE(singles) && !err; i++)
		if (singles[i].op != ABI_OP_REUSE ||
		    !(opts->no_reuse || growth ||
		      (plan->object_sites && !strcmp(singles[i].symbol, NEW_REFERENCE))))
			err = plan_symbol_add(plan, file, &singles[i]);
	err = err ?: plan_finalize_add(plan, file);
	if (!err && !growth && !opts->public_only)
		err = ends_judge(plan, file);
	if (!growth)
		describe_objects(plan);
	return err;
}

int plan_python(struct elf_file *file, const struct plan_opts *opts, struct plan *out)
{
	struct plan plan = {0};
	int err;

	plan.mode = opts->mode ? opts->mode : EVENT_MODE_EXACT;
	plan.capacity = PLAN_MAX_ENTRIES;
	plan.sites = calloc(plan.capacity, sizeof(*plan.sites));
	if (!plan.sites)
		err = error_set(-ENOMEM, "no memory for the probe plan");
	else
		err = add_everything(&plan, file, opts);
	if (err) {
		plan_free(&plan);
		return err;
	}
	*out = plan;
	return 0;
}

int plan_share(struct plan *out, struct plan *plan)
{
	if (!plan->users) {
		plan->users = malloc(sizeof(*plan->users));
		if (!plan->users)
			return error_set(-ENOMEM, "no memory for the probe plan");
		*plan->users = 1;
	}
	++*plan->users;
	*out = *plan;
	return 0;
}

void plan_free(struct plan *plan)
{
	if (!plan)
		return;
	plan_free(plan->memory);
	free(plan->memory);
	elf_file_close(plan->memory_file);
	if (!plan->users || !--*plan->users) {
		free(plan->sites);
		free(plan->missing);
		free(plan->users);
	}
	memset(plan, 0, sizeof(*plan));
}
