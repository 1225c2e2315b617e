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
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/events.h"
#include "base/error.h"
#include "elf/elf_file.h"
#include "plan/plan.h"
#include "plan/plan_ends.h"
#include "plan/plan_finalize.h"
#include "plan/plan_functions.h"
#include "plan/plan_growth.h"
#include "plan/plan_inline_sites.h"
#include "plan/plan_symbol.h"

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
int plan_site_is_pool_free(const struct plan_site *site)
{
	return site->op == ABI_OP_POOL_FREE ||
	       (site->op == ABI_OP_FREE && (site->cookie >> 8 & 0xff) == EVENT_API_OBJ);
}

int plan_site_is_pooled(const struct plan_site *site)
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

int plan_site_is_new_pool(const struct plan_site *site)
{
	return site->op == ABI_OP_NEW_POOL;
}

int plan_site_is_passed_on(const struct plan_site *site)
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
	int err;

	if (!opts->public_only && !opts->free_threaded)
		named = plan_functions_named(plan, file);
	/*
	 * Even where the implementations have symbols, the compiler may have inlined copies of them
	 * elsewhere, as in a distribution's build with debug symbols installed. Where it has not,
	 * each of these functions takes a block from a pool in at most one place.
	 */
	err = growth                ? add_growth(plan, file, opts)
	      : opts->public_only   ? -ENOENT
	      : opts->free_threaded ? plan_slot_functions_add(plan, file)
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
	for (size_t i = 0; i < sizeof(singles) / sizeof(singles[0]) && !err; i++)
		if (singles[i].op != ABI_OP_REUSE ||
		    !(opts->no_reuse || growth ||
		      (plan->object_sites && !strcmp(singles[i].symbol, NEW_REFERENCE))))
			err = plan_symbol_add(plan, file, &singles[i]);
	if (!err)
		err = plan_finalize_add(plan, file);
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

void plan_free(struct plan *plan)
{
	if (!plan)
		return;
	plan_free(plan->memory);
	free(plan->memory);
	elf_file_close(plan->memory_file);
	free(plan->sites);
	free(plan->missing);
	memset(plan, 0, sizeof(*plan));
}
