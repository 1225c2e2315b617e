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
#include "plan/plan_growth.h"
#include "plan/plan_inline.h"
#include "plan/plan_symbol.h"
#include "pymalloc/hooks.h"

#define FUNCTIONS 4

/* from the first to the last of three functions of one source file */
#define OBJECT_CODE_MAX (64u << 10)

static const struct function {
	const char *name;
	enum abi_op op;
	unsigned arguments;
	int with_return;
} functions[FUNCTIONS] = {
	{"Malloc", ABI_OP_MALLOC, 1, 1},
	{"Calloc", ABI_OP_CALLOC, 2, 1},
	{"Realloc", ABI_OP_REALLOC, 2, 1},
	{"Free", ABI_OP_FREE, 1, 0},
};

static const struct domain {
	const char *public;
	const char *implementation; /* NULL: those of obj */
	enum event_api api;
} raw = {"PyMem_Raw", "_PyMem_Raw", EVENT_API_RAW},
  obj = {"PyObject_", "_PyObject_", EVENT_API_OBJ}, mem = {"PyMem_", NULL, EVENT_API_MEM},
  /* The debugging hooks, which stand before the implementations and enlarge every block. */
	raw_hooks = {NULL, "_PyMem_DebugRaw", EVENT_API_RAW},
  obj_hooks = {NULL, "_PyMem_Debug", EVENT_API_OBJ};

#define NEW_REFERENCE "_Py_NewReference"
#define OBJECT_FREE   "_PyObject_Free"

static const struct plan_wish singles[] = {
	{"PyTraceMalloc_Track",
	 ABI_OP_TRACK,
	 EVENT_API_TRACK,
	 {ABI_REG_DI, ABI_REG_SI, ABI_REG_DX},
	 0},
	{"PyTraceMalloc_Untrack",
	 ABI_OP_UNTRACK,
	 EVENT_API_TRACK,
	 {ABI_REG_DI, ABI_REG_SI, ABI_REG_COUNT},
	 0},
	{NEW_REFERENCE, ABI_OP_REUSE, EVENT_API_OBJ, {ABI_REG_DI, ABI_REG_COUNT, ABI_REG_COUNT}, 0},
	{"_Py_NewReferenceNoTotal",
	 ABI_OP_REUSE,
	 EVENT_API_OBJ,
	 {ABI_REG_DI, ABI_REG_COUNT, ABI_REG_COUNT},
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

/* vaddrs: where the functions are, NULL: their symbols tell. */
static int add_domain(struct plan *plan, struct elf_file *file, const struct domain *domain,
		      bool implementation, const uint64_t *vaddrs)
{
	/* An implementation gets its context first. */
	static const uint32_t registers[] = {ABI_REG_DI, ABI_REG_SI, ABI_REG_DX};
	int err = 0;

	for (size_t i = 0; i < FUNCTIONS && !err; i++) {
		const struct function *function = &functions[i];
		/* A large block's goes on to the raw allocator and is seen there. */
		bool in_census = implementation && domain == &obj && function->op == ABI_OP_FREE;
		char name[PLAN_NAME_SIZE];
		struct plan_wish wish = {.symbol = name,
					 .op = function->op,
					 .api = domain->api,
					 .with_return = function->with_return};

		if (plan->mode == EVENT_MODE_CENSUS && in_census)
			continue;
		snprintf(name, sizeof(name), "%s%s",
			 implementation ? domain->implementation : domain->public, function->name);
		for (unsigned a = 0; a < 3; a++)
			wish.arguments[a] = a < function->arguments ? registers[a + implementation]
								    : ABI_REG_COUNT;
		err = vaddrs ? plan_function_add(plan, file, &wish, vaddrs[i], 0)
			     : plan_symbol_add(plan, file, &wish);
	}
	return err;
}

/* Are all four there? Where only some are, those that are not go to the missing ones. */
static bool has_implementations(struct plan *plan, struct elf_file *file,
				const struct domain *domain)
{
	char names[FUNCTIONS][PLAN_NAME_SIZE];
	const char *why[FUNCTIONS];
	size_t found = 0, clones = 0;

	for (size_t i = 0; i < FUNCTIONS; i++) {
		struct elf_symbol symbol;

		snprintf(names[i], PLAN_NAME_SIZE, "%s%s", domain->implementation,
			 functions[i].name);
		why[i] = plan_function_find(file, names[i], &symbol);
		found += !why[i];
		clones += why[i] && strcmp(why[i], "no such symbol") != 0;
	}
	for (size_t i = 0; i < FUNCTIONS && found + clones; i++)
		if (why[i])
			plan_missing_add(plan, names[i], why[i]);
	return found == FUNCTIONS;
}

static int hooks_read(void *context, uint64_t vaddr, void *out, size_t bytes)
{
	return elf_file_read(context, vaddr, out, bytes);
}

/*
 * What the program asked for and was given is known to the debugging hooks alone
 * (PYTHONMALLOC=debug, -X dev, debug builds). Where they are not in use their probes cost nothing;
 * where they are not found, sizes are those that they ask for.
 */
static int add_hooks(struct plan *plan, struct elf_file *file)
{
	bool named = has_implementations(plan, file, &raw_hooks) &&
		     has_implementations(plan, file, &obj_hooks);
	size_t first = plan->count;
	struct elf_symbol setup;
	struct hooks hooks;
	int err = 0;

	_Static_assert(HOOKS_FUNCTIONS == FUNCTIONS && HOOKS_FREE == 3,
		       "in the order of functions[]");
	if (!named) {
		err = elf_file_symbol(file, "PyMem_SetupDebugHooks", &setup);
		if (!err)
			err = hooks_find(hooks_read, file, setup.vaddr, setup.size, &hooks);
		if (err == -ENOMEM)
			return err;
		if (err) {
			plan_missing_add(
				plan, "_PyMem_Debug*",
				"neither symbols nor PyMem_SetupDebugHooks() tell where they are");
			/* With them in use, blocks would not begin where the allocators say. */
			plan->complete = 0;
			return 0;
		}
	}
	err = add_domain(plan, file, &raw_hooks, true, named ? NULL : hooks.raw);
	if (!err)
		err = add_domain(plan, file, &obj_hooks, true, named ? NULL : hooks.obj);
	for (size_t i = first; i < plan->count; i++)
		plan->sites[i].cookie |= ABI_COOKIE_ADDEND(EVENT_HOOKS_BEFORE);
	return err;
}

static void describe_level(struct plan *plan, bool raw_deep, bool obj_deep, bool public_only)
{
	char public[128];

	snprintf(public, sizeof(public), "public functions (%s; inlined copies are not seen)",
		 public_only ? "as asked" : "no usable symbols of the implementations");
	if (raw_deep && obj_deep)
		snprintf(plan->level, sizeof(plan->level),
			 "raw, mem, obj: implementations (_PyMem_Raw*, _PyObject_*)");
	else if (raw_deep)
		snprintf(plan->level, sizeof(plan->level),
			 "raw: implementations (_PyMem_Raw*); mem, obj: %s", public);
	else if (obj_deep)
		snprintf(plan->level, sizeof(plan->level),
			 "mem, obj: implementations (_PyObject_*); raw: %s", public);
	else
		snprintf(plan->level, sizeof(plan->level), "raw, mem, obj: %s", public);
}

/* A block goes back to its pool: the heap tells that, too. */
int plan_site_is_pool_free(const struct plan_site *site)
{
	return site->op == ABI_OP_POOL_FREE ||
	       (site->op == ABI_OP_FREE && (site->cookie >> 8 & 0xff) == EVENT_API_OBJ);
}

static size_t makes_pools(const struct inline_sites *found)
{
	return found->found[INLINE_REFILL] + found->found[INLINE_FIRST];
}

/*
 * Every end of a request was found, with its size: then these sites serve as well as the functions,
 * for half the price.
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
 * The object allocator frees a large block by itself: the compiler has put a copy of the raw
 * allocator's function into it.
 */
static bool is_large_free(const struct plan_site *site)
{
	size_t length = strlen(OBJECT_FREE);

	return site->op == ABI_OP_FREE && !strncmp(site->symbol, OBJECT_FREE, length) &&
	       (site->symbol[length] == '+' || site->symbol[length] == '.');
}

/*
 * Beside the implementations' functions, which are probed themselves: in census not that of object
 * frees.
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
 * dict, slice, frames, generators, bound methods. Where its copies of _Py_NewReference are not
 * inlined they call it.
 */
#define REUSE_PLACES_MIN 8u

static void reuse_judge(struct plan *plan, size_t reference_calls)
{
	size_t places = plan->object_sites ? 0 : reference_calls;

	for (size_t i = 0; i < plan->inlined_count; i++)
		places += plan->sites[i].op == ABI_OP_REUSE;
	plan->reuse_unseen |= places < REUSE_PLACES_MIN;
}

/* Py_DEBUG: the copies of _Py_NewReference are not inlined, so that its calls are all there is. */
static bool is_debug_build(struct elf_file *file)
{
	struct elf_symbol symbol;

	return !elf_file_symbol(file, "_Py_NegativeRefcount", &symbol) && symbol.function;
}

static void census_refuse(struct plan *plan)
{
	if (plan->mode != EVENT_MODE_CENSUS)
		return;
	plan->mode = EVENT_MODE_EXACT;
	snprintf(plan->mode_why, sizeof(plan->mode_why),
		 "the frees of large blocks cannot be told from others in this file");
}

/*
 * What was found goes in front of the other sites. functions: the implementations have symbols.
 * -ENOENT: functions are to be probed instead, because no copy was found, or no more than there are
 * functions, and something is missing; of what was found the places where objects begin to live are
 * taken all the same, and the frees that only the code shows. In census all of these have to be
 * known.
 */
static int add_inlined(struct plan *plan, struct elf_file *file, const struct plan_opts *opts,
		       bool functions)
{
	struct inline_sites found;
	struct plan_site *sites;
	bool only_objects;
	int err = plan_inline(file, &found);

	plan->reuse_unseen = err || (found.objects_unknown && !is_debug_build(file));
	if (err) {
		/* Its code has not been looked through, and may have such frees. */
		census_refuse(plan);
		return err;
	}
	only_objects = !inline_sites_have_pymalloc(&found) ||
		       (functions && found.found[INLINE_POOL] <= FUNCTIONS && !is_complete(&found));
	if (only_objects && found.given_up[INLINE_RAW_FREE])
		census_refuse(plan);
	sites = calloc(found.count + PLAN_MAX_ENTRIES, sizeof(*sites));
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
	plan->room = found.count + PLAN_MAX_ENTRIES;
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

static int add_functions(struct plan *plan, struct elf_file *file, const struct plan_opts *opts,
			 bool raw_deep, bool obj_deep)
{
	size_t missing = plan->missing_count;
	int err;

	if (!raw_deep || !obj_deep)
		census_refuse(plan);
	err = add_domain(plan, file, &raw, raw_deep, NULL);
	describe_level(plan, raw_deep, obj_deep, opts->public_only);
	if (!err)
		err = add_domain(plan, file, &obj, obj_deep, NULL);
	if (!err && !obj_deep)
		err = add_domain(plan, file, &mem, false, NULL);
	plan->complete = raw_deep && obj_deep && plan->missing_count == missing;
	return err;
}

/*
 * A large request goes on to the raw allocator, and only where it was called from tells it from a
 * raw one.
 */
static void find_object_code(struct plan *plan, struct elf_file *file)
{
	struct elf_symbol symbol;
	char name[PLAN_NAME_SIZE];
	uint64_t start = UINT64_MAX, end = 0;

	for (size_t i = 0; i < FUNCTIONS; i++) {
		snprintf(name, sizeof(name), "%s%s", obj.implementation, functions[i].name);
		if (functions[i].op == ABI_OP_FREE || plan_function_find(file, name, &symbol))
			continue;
		if (symbol.vaddr < start)
			start = symbol.vaddr;
		if (symbol.vaddr + symbol.size > end)
			end = symbol.vaddr + symbol.size;
	}
	if (end > start && end - start <= OBJECT_CODE_MAX) {
		memset(plan->object_code, 0, sizeof(plan->object_code));
		plan->object_code[0] = (struct abi_code){start, end - start};
	}
}

/*
 * Where the heap grows. What the analysis of the code finds goes first; where it finds nothing, the
 * function that makes pools may have a symbol.
 */
static int add_growth(struct plan *plan, struct elf_file *file, const struct plan_opts *opts)
{
	const struct plan_wish wish = {.symbol = PLAN_POOL_FUNCTION,
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
	err = plan_symbol_add(plan, file, &wish);
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

/* Does what the file exports lead to what is probed? */
static int ends_judge(struct plan *plan, struct elf_file *file)
{
	const char *names[PLAN_ENDS];
	int count = plan_ends_unknown(file, plan->sites, plan->count, plan->mode, names);

	for (int i = 0; i < count; i++)
		plan_missing_add(plan, names[i], "its code leads to no place that is probed");
	plan->ends_unseen = count > 0;
	return count < 0 ? count : 0;
}

static int add_everything(struct plan *plan, struct elf_file *file, const struct plan_opts *opts)
{
	bool raw_deep = !opts->public_only && has_implementations(plan, file, &raw);
	bool obj_deep = !opts->public_only && has_implementations(plan, file, &obj);
	/*
	 * Even where the implementations have symbols the compiler may have put copies of them
	 * elsewhere: a distribution's build whose debug symbols are installed. Where it has not,
	 * none of their functions takes a block from a pool in more than one place.
	 */
	bool growth = opts->mode == EVENT_MODE_GROWTH;
	int err = growth              ? add_growth(plan, file, opts)
		  : opts->public_only ? -ENOENT
				      : add_inlined(plan, file, opts, raw_deep && obj_deep);
	bool inlined = !err;

	plan->reuse_unseen |= !growth && (opts->no_reuse || opts->public_only);
	if (!err && obj_deep)
		find_object_code(plan, file);
	if (err && err != -ENOMEM && !growth)
		err = add_functions(plan, file, opts, raw_deep, obj_deep);
	/* The public functions stand before the hooks. */
	if (!err && !growth && (inlined || (raw_deep && obj_deep)))
		err = add_hooks(plan, file);
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
	plan.room = PLAN_MAX_ENTRIES;
	plan.sites = calloc(plan.room, sizeof(*plan.sites));
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
