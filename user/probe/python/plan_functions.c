/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/python/plan_functions.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "abi/events.h"
#include "object/insn/machine.h"
#include "probe/pymalloc/hooks.h"
#include "probe/python/plan_slots.h"
#include "probe/python/plan_symbol.h"
#include "util/array.h"

#define FUNCTIONS PLAN_FUNCTIONS

/* The largest span from the first to the last of three functions of one source file. */
#define OBJECT_CODE_MAX (64u << 10)

const char *const plan_function_names[FUNCTIONS] = {"Malloc", "Calloc", "Realloc", "Free"};

static const struct allocator_function {
	enum abi_op op;
	unsigned arguments;
	int with_return;
} functions[FUNCTIONS] = {
	{ABI_OP_MALLOC, 1, 1},
	{ABI_OP_CALLOC, 2, 1},
	{ABI_OP_REALLOC, 2, 1},
	{ABI_OP_FREE, 1, 0},
};

static const struct domain {
	const char *public;
	const char *implementation; /* NULL: mem uses obj's */
	enum event_api api;
} raw = {"PyMem_Raw", "_PyMem_Raw", EVENT_API_RAW},
  obj = {"PyObject_", "_PyObject_", EVENT_API_OBJ}, mem = {"PyMem_", NULL, EVENT_API_MEM},
  /* The debugging hooks run before the implementations and enlarge every block. */
	raw_hooks = {NULL, "_PyMem_DebugRaw", EVENT_API_RAW},
  obj_hooks = {NULL, "_PyMem_Debug", EVENT_API_OBJ};

/* Without the GIL. */
static const struct domain free_threaded[] = {{"PyMem_Raw", "_PyMem_Raw", EVENT_API_RAW},
					      {"PyMem_", "_PyMem_Mi", EVENT_API_MEM},
					      {"PyObject_", "_PyObject_Mi", EVENT_API_OBJ}};

/* vaddrs: the functions' addresses; NULL: look up their symbols. */
static int add_domain(struct plan *plan, struct elf_file *file, const struct domain *domain,
		      bool implementation, const uint64_t *vaddrs)
{
	/* The first argument of an implementation is the slot's context. */
	static const uint32_t registers[] = {ABI_ARGUMENT_1, ABI_ARGUMENT_2, ABI_ARGUMENT_3};
	int err = 0;

	for (size_t i = 0; i < FUNCTIONS && !err; i++) {
		const struct allocator_function *function = &functions[i];
		/* A large block's free reaches the raw allocator and is seen there. */
		bool in_census = implementation && domain == &obj && function->op == ABI_OP_FREE;
		char name[PLAN_NAME_SIZE];
		struct probe_spec spec = {.symbol = name,
					  .op = function->op,
					  .api = domain->api,
					  .with_return = function->with_return};

		if (plan->mode == EVENT_MODE_CENSUS && in_census)
			continue;
		snprintf(name, sizeof(name), "%s%s",
			 implementation ? domain->implementation : domain->public,
			 plan_function_names[i]);
		for (unsigned a = 0; a < 3; a++)
			spec.arguments[a] = a < function->arguments ? registers[a + implementation]
								    : ABI_REG_COUNT;
		err = vaddrs ? plan_function_add(plan, file, &spec, vaddrs[i], 0)
			     : plan_symbol_add(plan, file, &spec);
	}
	return err;
}

/* Do all four implementations have symbols? If only some have, the others become missing. */
static bool has_implementations(struct plan *plan, struct elf_file *file,
				const struct domain *domain)
{
	char names[FUNCTIONS][PLAN_NAME_SIZE];
	const char *why[FUNCTIONS];
	size_t found = 0, clones = 0;

	for (size_t i = 0; i < FUNCTIONS; i++) {
		struct elf_symbol symbol;

		snprintf(names[i], PLAN_NAME_SIZE, "%s%s", domain->implementation,
			 plan_function_names[i]);
		why[i] = plan_function_find(file, names[i], &symbol);
		found += !why[i];
		clones += why[i] && strcmp(why[i], "no such symbol") != 0;
	}
	for (size_t i = 0; i < FUNCTIONS && found + clones; i++)
		if (why[i])
			plan_missing_add(plan, names[i], why[i]);
	return found == FUNCTIONS;
}

struct plan_named plan_functions_named(struct plan *plan, struct elf_file *file)
{
	struct plan_named named;

	named.raw = has_implementations(plan, file, &raw);
	named.obj = has_implementations(plan, file, &obj);
	return named;
}

static int hooks_read(void *context, uint64_t vaddr, void *out, size_t bytes)
{
	return elf_file_read(context, vaddr, out, bytes);
}

/*
 * Only the debugging hooks (PYTHONMALLOC=debug, -X dev, debug builds) know the size that the
 * program requested and the address that it received. Where they are not in use, their probes cost
 * nothing. Where they are not found, sizes include what the hooks add.
 */
int plan_hooks_add(struct plan *plan, struct elf_file *file)
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
		/* The code that is understood is x86-64's. */
		err = machine_own() == &machine_x86
			      ? elf_file_symbol(file, "PyMem_SetupDebugHooks", &setup)
			      : -ENOENT;
		err = err ?: hooks_find(hooks_read, file, setup.vaddr, setup.size, &hooks);
		if (err == -ENOMEM)
			return err;
		if (err) {
			plan_missing_add(plan, "_PyMem_Debug*",
					 "found neither by symbols nor by the code of "
					 "PyMem_SetupDebugHooks()");
			/* If they are in use, blocks do not begin where the allocators say. */
			plan->complete = 0;
			return 0;
		}
	}
	err = add_domain(plan, file, &raw_hooks, true, named ? NULL : hooks.raw)
		      ?: add_domain(plan, file, &obj_hooks, true, named ? NULL : hooks.obj);
	for (size_t i = first; i < plan->count; i++)
		plan->sites[i].cookie |= ABI_COOKIE_ADDEND(EVENT_HOOKS_BEFORE);
	return err;
}

static void describe_level(struct plan *plan, struct plan_named named, bool public_only)
{
	char public[128];

	snprintf(public, sizeof(public), "public functions (%s; inlined copies are not seen)",
		 public_only ? "as asked" : "no usable symbols of the implementations");
	if (named.raw && named.obj)
		snprintf(plan->level, sizeof(plan->level),
			 "raw, mem, obj: implementations (_PyMem_Raw*, _PyObject_*)");
	else if (named.raw)
		snprintf(plan->level, sizeof(plan->level),
			 "raw: implementations (_PyMem_Raw*); mem, obj: %s", public);
	else if (named.obj)
		snprintf(plan->level, sizeof(plan->level),
			 "mem, obj: implementations (_PyObject_*); raw: %s", public);
	else
		snprintf(plan->level, sizeof(plan->level), "raw, mem, obj: %s", public);
}

int plan_functions_add(struct plan *plan, struct elf_file *file, const struct plan_opts *opts,
		       struct plan_named named)
{
	size_t missing = plan->missing_count;

	if (!named.raw || !named.obj)
		plan_census_refuse(plan);
	int err = add_domain(plan, file, &raw, named.raw, NULL);
	describe_level(plan, named, opts->public_only);
	err = err ?: add_domain(plan, file, &obj, named.obj, NULL);
	if (!err && !named.obj)
		err = add_domain(plan, file, &mem, false, NULL);
	plan->complete =
		named.raw && named.obj && plan->missing_count == missing && !plan->missing_dropped;
	return err;
}

int plan_slot_functions_add(struct plan *plan, struct elf_file *file)
{
	size_t missing = plan->missing_count, count = ARRAY_SIZE(free_threaded);
	size_t found = 0;
	int err = 0;

	for (size_t i = 0; i < count && !err; i++) {
		const struct domain *domain = &free_threaded[i];
		uint64_t vaddrs[FUNCTIONS];

		err = plan_slots_find(file, domain->public, vaddrs);
		found += !err;
		if (!err || err == -ENOENT)
			err = add_domain(plan, file, domain, !err, err ? NULL : vaddrs);
	}
	if (err)
		return err;
	snprintf(plan->level, sizeof(plan->level), "raw, mem, obj: %s",
		 found == count ? "the functions that their slots hold at the start"
				: "public functions (inlined copies are not seen)");
	plan->complete = found == count && plan->missing_count == missing && !plan->missing_dropped;
	return 0;
}

/* A large request reaches the raw allocator, and only its caller tells it from a raw request. */
void plan_object_code_find(struct plan *plan, struct elf_file *file)
{
	struct elf_symbol symbol;
	char name[PLAN_NAME_SIZE];
	uint64_t start = UINT64_MAX, end = 0;

	for (size_t i = 0; i < FUNCTIONS; i++) {
		snprintf(name, sizeof(name), "%s%s", obj.implementation, plan_function_names[i]);
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
