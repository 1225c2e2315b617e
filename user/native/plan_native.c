/* SPDX-License-Identifier: Apache-2.0 */
#include "native/plan_native.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/events.h"
#include "base/error.h"
#include "elf/elf_file.h"
#include "machine/function_entry.h"
#include "machine/machine.h"
#include "native/native_code.h"
#include "native/native_ends.h"
#include "plan/function_option.h"
#include "plan/plan_symbol.h"

#define STUB_BYTES 16 /* of the procedure linkage table */
#define CALLS_WHY  "; no return probe: it calls another allocator"

#define THROWS_WHY     "it may throw, so it must have no return probe"
#define THROWS_MISSING "it may throw, and its ends are not all found"
#define USERS_WHY      "--alloc does not ask for a return probe"
#define USERS_MISSING                                                                              \
	"its ends are not all found (return-probe in --alloc asks for a return probe instead)"

/* A function that the file defines. */
struct candidate {
	const char *symbol;
	struct native_call call;
	uint8_t throws, user, return_probe;
	uint64_t vaddr, size;
};

struct planner {
	struct elf_file *file;
	struct inline_decoder decoder;
	struct native_function *table;
	size_t table_count;
	struct candidate *candidates;
	size_t count;
	const struct candidate *caller; /* the function whose code is inspected */
	int jumps; /* callees to match: 1 functions of the same meaning, 0 any that allocate */
	size_t passed_on;
	int unreadable; /* -errno: a symbol table could not be read */
	struct plan plan;
};

static struct candidate *candidate_at(const struct planner *planner, uint64_t vaddr)
{
	for (size_t i = 0; i < planner->count; i++)
		if (planner->candidates[i].vaddr == vaddr)
			return &planner->candidates[i];
	return NULL;
}

/* Adds the function as a candidate if the file has it; aliases become one candidate. */
static void candidate_add(struct planner *planner, const struct candidate *wanted)
{
	struct candidate *known;
	struct elf_symbol symbol;
	const char *why = NULL;
	int err = elf_file_symbol(planner->file, wanted->symbol, &symbol);

	/* A user's function that no file has is reported once all files were inspected. */
	if (err) {
		if (err != -ENOENT)
			planner->unreadable = err;
		return;
	}
	if (symbol.ifunc)
		why = "its implementation is selected at run time (IFUNC)";
	else if (symbol.function) {
		known = candidate_at(planner, symbol.vaddr);
		if (!known) {
			known = &planner->candidates[planner->count++];
			*known = *wanted;
			known->vaddr = symbol.vaddr;
			known->size = symbol.size;
		} else if (!known->user &&
			   memcmp(&known->call, &wanted->call, sizeof(known->call))) {
			why = "it shares its code with a function of another meaning";
		}
	}
	if (why)
		plan_missing_add(&planner->plan, wanted->symbol, why);
}

static int candidates_find(struct planner *planner, const struct plan_native_opts *opts)
{
	size_t allocs = opts ? opts->alloc_count : 0;

	planner->candidates = calloc(planner->table_count + allocs, sizeof(*planner->candidates));
	if (!planner->candidates)
		return -ENOMEM;
	/* The user's functions come first, so that they override the table. */
	for (size_t i = 0; i < allocs; i++) {
		const struct plan_alloc *alloc = &opts->allocs[i];

		if (function_option_is_in(alloc->file, elf_file_path(planner->file)))
			candidate_add(
				planner,
				&(struct candidate){.symbol = alloc->symbol,
						    .call = alloc->call,
						    .user = 1,
						    .return_probe = (uint8_t)alloc->return_probe});
	}
	for (size_t i = 0; i < planner->table_count; i++)
		candidate_add(planner, &(struct candidate){.symbol = planner->table[i].symbol,
							   .call = planner->table[i].call,
							   .throws = planner->table[i].throws});
	return 0;
}

static int is_free(const struct native_call *call)
{
	return call->op == ABI_OP_FREE;
}

static int is_realloc(const struct native_call *call)
{
	return call->op == ABI_OP_REALLOC || call->op == ABI_OP_REALLOCARRAY;
}

/* Is a request of a, which only jumps to b, the same as b's? */
static int is_same(const struct native_call *a, const struct native_call *b)
{
	return a->op == b->op || (is_realloc(a) && is_realloc(b));
}

static const struct native_function *table_find(const struct planner *planner, const char *name)
{
	for (size_t i = 0; i < planner->table_count; i++)
		if (!strcmp(planner->table[i].symbol, name))
			return &planner->table[i];
	return NULL;
}

static const struct native_call *import_call(struct planner *planner, uint64_t slot)
{
	const struct native_function *function;
	const char *name;

	if (elf_file_import_at(planner->file, slot, &name))
		return NULL;
	function = table_find(planner, name);
	return function ? &function->call : NULL;
}

/* struct native_ends.returns: for functions of another file, which is planned by the same rules. */
static int has_return(void *context, const char *name)
{
	const struct native_function *function = table_find(context, name);

	return function && function->call.op && !is_free(&function->call) && !function->throws;
}

/* native_known_fn: a function of this file, or one that the dynamic linker finds by its name. */
static int callee_known(void *context, uint64_t target, int slot)
{
	struct planner *planner = context;
	const struct native_call *call = NULL, *wanted = &planner->caller->call;
	const struct candidate *local = slot ? NULL : candidate_at(planner, target);
	uint8_t stub[STUB_BYTES];
	int bytes;

	if (local == planner->caller)
		return 0;
	if (local) {
		call = &local->call;
	} else {
		bytes = slot ? 0 : elf_file_read(planner->file, target, stub, sizeof(stub));
		if (bytes > 0)
			target = native_stub_slot(&planner->decoder, stub, (size_t)bytes, target);
		call = target ? import_call(planner, target) : NULL;
	}
	if (!call)
		return 0;
	return planner->jumps ? is_same(wanted, call) : call->op && !is_free(call);
}

/* Can code of this file throw an exception? */
static int can_throw(struct elf_file *file)
{
	static const char *const names[] = {"__cxa_throw", "_ZSt17__throw_bad_allocv",
					    "_ZSt15get_new_handlerv", "_Unwind_RaiseException"};
	struct elf_symbol symbol;
	uint64_t slot;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (elf_file_import_slots(file, names[i], &slot, 1) ||
		    !elf_file_symbol(file, names[i], &symbol))
			return 1;
	return 0;
}

static int ends_add(struct planner *planner, const struct candidate *candidate,
		    const struct probe_spec *spec)
{
	const struct native_ends ends = {
		.spec = spec,
		.vaddr = candidate->vaddr,
		.size = candidate->size,
		.why = candidate->user ? USERS_WHY : THROWS_WHY,
		.missing = candidate->user ? USERS_MISSING : THROWS_MISSING,
		.returns = candidate->user ? has_return : NULL,
		.context = planner,
	};
	size_t count = planner->plan.count;
	int err = native_ends_add(&planner->plan, planner->file, &planner->decoder, &ends);

	if (!candidate->throws && planner->plan.count > count)
		planner->plan.sites[count].cookie |= ABI_COOKIE_ADDEND(ABI_NATIVE_RETURNS);
	return err;
}

/*
 * A user's function that leaves its stack has requests that never end. 1: it does, and is added to
 * plan->missing.
 */
static int switches(struct planner *planner, const struct candidate *candidate)
{
	const char *name = native_switches(planner->file, &planner->decoder, candidate->symbol,
					   candidate->vaddr);
	char why[96];

	if (name) {
		snprintf(why, sizeof(why), "it leaves its stack (%s), and may never return", name);
		plan_missing_add(&planner->plan, candidate->symbol, why);
	}
	return name != NULL;
}

static int site_add(struct planner *planner, const struct candidate *candidate, int calls)
{
	struct probe_spec spec = {.symbol = candidate->symbol,
				  .op = candidate->call.op,
				  .api = EVENT_API_NATIVE,
				  .with_return = !is_free(&candidate->call)};
	size_t count = planner->plan.count;
	int err, throws = candidate->throws && (calls || can_throw(planner->file));
	int by_ends = (throws && !calls) ||
		      (candidate->user && !candidate->return_probe && spec.with_return);

	if (candidate->user && spec.with_return && switches(planner, candidate))
		return 0;
	if (throws || by_ends)
		spec.with_return = PLAN_ENTRY_STACK;
	if (throws && calls)
		spec.op = ABI_OP_CALLER;
	for (size_t i = 0; i < NATIVE_ARGUMENTS; i++)
		spec.arguments[i] = spec.op == ABI_OP_CALLER
					    ? ABI_REG_COUNT
					    : plan_argument_register(candidate->call.arguments[i]);
	if (by_ends)
		return ends_add(planner, candidate, &spec);
	err = plan_function_add(&planner->plan, planner->file, &spec, candidate->vaddr,
				candidate->size);
	if (throws && planner->plan.count > count)
		strncat(planner->plan.sites[count].why, CALLS_WHY,
			sizeof(planner->plan.sites[count].why) -
				strlen(planner->plan.sites[count].why) - 1);
	return err;
}

static int candidate_plan(struct planner *planner, const struct candidate *candidate)
{
	uint8_t bytes[FUNCTION_MAX_CODE];
	size_t size = candidate->size && candidate->size < sizeof(bytes) ? candidate->size
									 : sizeof(bytes);
	int read = elf_file_read(planner->file, candidate->vaddr, bytes, size), calls = 0;
	struct native_code code = {.decoder = &planner->decoder,
				   .bytes = bytes,
				   .count = read > 0 ? (size_t)read : 0,
				   .vaddr = candidate->vaddr,
				   .known = callee_known,
				   .context = planner};

	planner->caller = candidate;
	if (!candidate->user) {
		planner->jumps = 1;
		if (native_only_jumps(&code, candidate->call.op == ABI_OP_REALLOCARRAY)) {
			planner->passed_on++;
			return 0;
		}
		planner->jumps = 0;
		/* If the size is unknown, the bytes may include another function's. */
		calls = candidate->size && (candidate->throws || !candidate->call.op) &&
			native_calls_known(&code);
	}
	if (candidate->call.op)
		return site_add(planner, candidate, calls);
	if (!calls)
		plan_missing_add(&planner->plan, candidate->symbol,
				 "the size of its block is not an argument");
	return 0;
}

static int sites_find(struct planner *planner)
{
	struct plan *plan = &planner->plan;
	int err = 0;

	plan->capacity = planner->count + NATIVE_ENDS_MAX;
	plan->sites = calloc(plan->capacity, sizeof(*plan->sites));
	if (!plan->sites)
		return -ENOMEM;
	for (size_t i = 0; i < planner->count && !err; i++)
		err = candidate_plan(planner, &planner->candidates[i]);
	snprintf(plan->level, sizeof(plan->level),
		 "%zu functions of allocators; %zu are not probed: they only jump to another",
		 planner->count, planner->passed_on);
	return err;
}

int plan_native(struct elf_file *file, const struct plan_native_opts *opts, struct plan *out)
{
	struct planner planner = {.file = file, .plan = {.mode = EVENT_MODE_EXACT}};
	int err = native_table_new(&planner.table, &planner.table_count);

	if (!err)
		err = candidates_find(&planner, opts);
	if (!err && !planner.count && !planner.plan.missing_count)
		err = planner.unreadable
			      ?: error_set(-ENOENT, "%s defines no allocator", elf_file_path(file));
	if (!err && planner.unreadable)
		plan_missing_add(&planner.plan, "(other functions)",
				 error_reason(planner.unreadable));
	if (!err)
		err = inline_decoder_open(&planner.decoder, machine_own());
	if (!err)
		err = sites_find(&planner);
	inline_decoder_close(&planner.decoder);
	free(planner.candidates);
	free(planner.table);
	if (err)
		plan_free(&planner.plan);
	else
		*out = planner.plan;
	return err;
}
