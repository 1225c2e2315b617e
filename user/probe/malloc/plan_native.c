/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/malloc/plan_native.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/events.h"
#include "abi/target.h"
#include "object/elf/elf_file.h"
#include "object/insn/insn.h"
#include "object/insn/machine.h"
#include "probe/malloc/native_code.h"
#include "probe/place/function_entry.h"
#include "probe/python/function_option.h"
#include "probe/python/plan.h"
#include "probe/python/plan_symbol.h"
#include "util/array.h"
#include "util/error.h"

/* --- native ends ------------------------------------------------------------------------------ */

/*
 * The ends of a function that must have no return probe: every ret that control can reach from its
 * entry, including those in functions that it jumps to. At an end the stack pointer has its value
 * at the entry; inside a call it is lower. That tells an end from another function's ret.
 */

/*
 * Control is followed from the entry: along both paths of a branch, into jumps, past calls.
 * Functions that do not return (__cxa_throw) are known by name. After an unknown one the walk may
 * continue into code of another function. That gives extra ends, which the check of the stack
 * pointer sorts out.
 */

#define NATIVE_ENDS_MAX 128 /* for all functions of a file */

/* A function, and the reasons that its sites get. */
struct native_ends {
	const struct probe_spec *spec;
	uint64_t vaddr, size;
	const char *why;     /* of its sites: it has no return probe */
	const char *missing; /* of its entry in plan->missing: not all of its ends are found */
	/*
	 * Does the function of this name, in another file, have a return probe? That probe reports
	 * the end of a function that jumps to it. NULL: none has.
	 */
	bool (*returns)(void *context, const char *name);
	void *context;
};

#define INSNS_MAX   1024 /* of one function and those that it jumps to */
#define PENDING_MAX 64   /* branches to follow later */
#define ENDS_MAX    32   /* of one function */
#define INSN_BYTES  16
#define STUB_BYTES  16

struct native_ends_walk {
	struct elf_file *file;
	struct inline_decoder *decoder;
	const struct native_ends *ends_of; /* NULL: search for switches */
	const char *switches;              /* the function that switches stacks */
	size_t reported_ends;              /* ends that other functions' return probes report */
	uint64_t seen[INSNS_MAX], pending[PENDING_MAX], ends[ENDS_MAX];
	size_t seen_count, pending_count, end_count;
};

/* 1: vaddr is new, and seen from now on; 0: seen before; -E2BIG. */
static int walk_enter(struct native_ends_walk *walk, uint64_t vaddr)
{
	for (size_t i = 0; i < walk->seen_count; i++)
		if (walk->seen[i] == vaddr)
			return 0;
	if (walk->seen_count == INSNS_MAX)
		return -E2BIG;
	walk->seen[walk->seen_count++] = vaddr;
	return 1;
}

static int pending_add(struct native_ends_walk *walk, uint64_t vaddr)
{
	if (walk->pending_count == PENDING_MAX)
		return -E2BIG;
	walk->pending[walk->pending_count++] = vaddr;
	return 0;
}

/* The name of the imported function that a stub or a slot leads to. NULL: none. */
static const char *import_of(struct native_ends_walk *walk, const struct inline_insn *insn)
{
	uint8_t stub[STUB_BYTES];
	uint64_t slot = insn->target;
	const char *name;

	if (insn->op == INLINE_CALL || insn->op == INLINE_JUMP) {
		int bytes = elf_file_read(walk->file, insn->target, stub, sizeof(stub));

		slot = bytes > 0
			       ? native_stub_slot(walk->decoder, stub, (size_t)bytes, insn->target)
			       : 0;
	}
	return slot && !elf_file_import_at(walk->file, slot, &name) ? name : NULL;
}

static bool is_noreturn(const char *name)
{
	static const char *const names[] = {"__cxa_throw", "_ZSt17__throw_bad_allocv",
					    "_Unwind_Resume", "abort", "__stack_chk_fail"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (name && !strcmp(name, names[i]))
			return 1;
	return 0;
}

/* Returns a static name, or NULL. */
static const char *switcher_find(const char *name)
{
	static const char *const names[] = {
		"swapcontext",       "setcontext",         "longjmp",       "_longjmp",
		"siglongjmp",        "__longjmp_chk",      "jump_fcontext", "ontop_fcontext",
		"co_switch",         "coro_transfer",      "slp_switch",    "g_switchstack",
		"PyGreenlet_Switch", "aco_yield",          "aco_yield1",    "pth_yield",
		"st_thread_yield",   "_st_md_cxt_restore", "pthread_exit",  "__libc_longjmp",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (name && !strcmp(name, names[i]))
			return names[i];
	return NULL;
}

/* The name of the function that is called or jumped to, in any file. */
static const char *callee_of(struct native_ends_walk *walk, const struct inline_insn *insn)
{
	const char *name = import_of(walk, insn);
	struct elf_symbol symbol;

	if (name || (insn->op != INLINE_CALL && insn->op != INLINE_JUMP) ||
	    elf_file_symbol_at(walk->file, insn->target, &symbol) || symbol.vaddr != insn->target)
		return name;
	return symbol.name;
}

/*
 * Follows a jump, out of the function or within it. *vaddr: the target, 0 if the path ends. 0;
 * -ENOENT the target is unknown.
 */
static int jump_follow(struct native_ends_walk *walk, const struct inline_insn *insn,
		       uint64_t *vaddr)
{
	const char *name = import_of(walk, insn);
	struct elf_symbol symbol;

	*vaddr = insn->target;
	if (!name)
		return insn->op == INLINE_JUMP ? 0 : -ENOENT;
	*vaddr = 0;
	if (is_noreturn(name))
		return 0;
	if (walk->ends_of && walk->ends_of->returns &&
	    walk->ends_of->returns(walk->ends_of->context, name)) {
		walk->reported_ends++;
		return 0;
	}
	if (elf_file_symbol(walk->file, name, &symbol) || !symbol.function || symbol.ifunc)
		return -ENOENT;
	*vaddr = symbol.vaddr;
	return 0;
}

/* Follows one instruction: *vaddr becomes the next address, or 0 where the path ends. 0; -errno. */
static int insn_follow(struct native_ends_walk *walk, uint64_t *vaddr)
{
	struct inline_insn insn;
	uint8_t code[INSN_BYTES];
	int bytes = elf_file_read(walk->file, *vaddr, code, sizeof(code)), err = 0;
	size_t length =
		bytes > 0 ? inline_decode(walk->decoder, code, (size_t)bytes, *vaddr, &insn) : 0;
	int returns = length && walk->decoder->machine->is_return(walk->decoder->insn);
	uint64_t next = *vaddr + length;

	if (!length)
		return -ENOENT;
	if (!walk->ends_of && insn.op >= INLINE_JUMP && !walk->switches)
		walk->switches = switcher_find(callee_of(walk, &insn));
	if (returns) {
		if (walk->end_count == ENDS_MAX)
			return -E2BIG;
		walk->ends[walk->end_count++] = *vaddr;
		next = 0;
	} else if (insn.op == INLINE_BRANCH) {
		err = pending_add(walk, insn.target);
	} else if (insn.op == INLINE_JUMP || insn.op == INLINE_JUMP_SLOT) {
		err = jump_follow(walk, &insn, &next);
	} else if (insn.op == INLINE_END ||
		   ((insn.op == INLINE_CALL || insn.op == INLINE_CALL_SLOT) &&
		    is_noreturn(import_of(walk, &insn)))) {
		next = 0;
	}
	*vaddr = next;
	return err;
}

static int ends_find(struct native_ends_walk *walk, uint64_t entry)
{
	int err = pending_add(walk, entry);

	while (!err && walk->pending_count) {
		uint64_t vaddr = walk->pending[--walk->pending_count];

		while (!err && vaddr) {
			err = walk_enter(walk, vaddr);
			if (err <= 0)
				break;
			err = insn_follow(walk, &vaddr);
		}
	}
	return err ? err : walk->end_count + walk->reported_ends ? 0 : -ENOENT;
}

/*
 * Does the function switch to another stack, or jump out of its callers? Returns the name of the
 * function that does so (swapcontext, longjmp, jump_fcontext, ...): name itself, or one that it
 * calls directly. Static; NULL: no such call is seen.
 */
static const char *native_switches(struct elf_file *file, struct inline_decoder *decoder,
				   const char *name, uint64_t vaddr)
{
	struct native_ends_walk walk = {.file = file, .decoder = decoder};

	/* Code after a jump with an unknown target is not searched. */
	ends_find(&walk, vaddr);
	return switcher_find(name) ?: walk.switches;
}

/* Adds an end; functions may share one. 0; -ENOENT its address is not in the file. */
static int end_add(struct plan *plan, struct elf_file *file, struct inline_decoder *decoder,
		   const struct native_ends *ends, uint64_t vaddr)
{
	struct plan_site *site = &plan->sites[plan->count];
	uint8_t code[INSN_BYTES];

	for (size_t i = 0; i < plan->count; i++)
		if (plan->sites[i].vaddr == vaddr && plan->sites[i].op == ABI_OP_END)
			return 0;
	*site = (struct plan_site){.vaddr = vaddr,
				   .op = ABI_OP_END,
				   .cookie = ABI_COOKIE(ABI_OP_END, EVENT_API_NATIVE, ABI_RESULT,
							ABI_REG_COUNT, ABI_REG_COUNT)};
	if (elf_file_offset(file, vaddr, &site->offset))
		return -ENOENT;
	int bytes = elf_file_read(file, vaddr, code, sizeof(code));
	inline_disassemble(decoder, code, bytes > 0 ? (size_t)bytes : 0, vaddr, site->instruction,
			   sizeof(site->instruction));
	snprintf(site->symbol, sizeof(site->symbol), "%s", ends->spec->symbol);
	snprintf(site->why, sizeof(site->why), "ret (two traps): %s", ends->why);
	plan->count++;
	return 0;
}

/*
 * Adds the entry's site, without a return, and an ABI_OP_END (block) for each ret. The function is
 * added to plan->missing instead if a jump's target is unknown, or if there are more ends than the
 * plan has capacity for. 0, -ENOMEM.
 */
static int native_ends_add(struct plan *plan, struct elf_file *file, struct inline_decoder *decoder,
			   const struct native_ends *ends)
{
	struct native_ends_walk walk = {.file = file, .decoder = decoder, .ends_of = ends};
	int err = ends_find(&walk, ends->vaddr);
	const struct probe_spec *spec = ends->spec;
	size_t count = plan->count;

	/* The entry takes one site more. */
	if (err || plan->capacity - plan->count <= walk.end_count) {
		plan_missing_add(plan, spec->symbol, ends->missing);
		return 0;
	}
	err = plan_function_add(plan, file, spec, ends->vaddr, ends->size);
	if (err || plan->count == count)
		return err;
	for (size_t i = 0; i < walk.end_count && !err; i++)
		err = end_add(plan, file, decoder, ends, walk.ends[i]);
	if (err) {
		plan->count = count;
		plan_missing_add(plan, spec->symbol, "one of its ends is not in the file");
	}
	return 0;
}

/* --- plan native ------------------------------------------------------------------------------ */

#define STUB_BYTES 16 /* of the procedure linkage table */
#define CALLS_WHY  "; no return probe: it calls another allocator"

#define THROWS_WHY     "it may throw, so it must have no return probe"
#define THROWS_MISSING "it may throw, and its ends are not all found"
#define USERS_WHY      "--alloc does not ask for a return probe"
#define USERS_MISSING                                                                              \
	"its ends are not all found (return-probe in --alloc asks for a return probe instead)"

/* A function that the file defines. */
struct native_candidate {
	const char *symbol;
	struct native_call call;
	uint8_t throws, user, return_probe;
	uint64_t vaddr, size;
};

struct native_planner {
	struct elf_file *file;
	struct inline_decoder decoder;
	struct native_function *table;
	size_t table_count;
	struct native_candidate *candidates;
	size_t count;
	const struct native_candidate *caller; /* the function whose code is inspected */
	int jumps; /* callees to match: 1 functions of the same meaning, 0 any that allocate */
	size_t passed_on;
	int unreadable; /* -errno: a symbol table could not be read */
	struct plan plan;
};

static struct native_candidate *candidate_at(const struct native_planner *planner, uint64_t vaddr)
{
	for (size_t i = 0; i < planner->count; i++)
		if (planner->candidates[i].vaddr == vaddr)
			return &planner->candidates[i];
	return NULL;
}

/* Adds the function as a candidate if the file has it; aliases become one candidate. */
static void candidate_add(struct native_planner *planner, const struct native_candidate *wanted)
{
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
		struct native_candidate *known = candidate_at(planner, symbol.vaddr);
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

static int candidates_find(struct native_planner *planner, const struct plan_native_opts *opts)
{
	size_t allocs = opts ? opts->alloc_count : 0;

	planner->candidates = calloc(planner->table_count + allocs, sizeof(*planner->candidates));
	if (!planner->candidates)
		return -ENOMEM;
	/* The user's functions come first, so that they override the table. */
	for (size_t i = 0; i < allocs; i++) {
		const struct plan_alloc *alloc = &opts->allocs[i];

		if (function_option_is_in(alloc->file, elf_file_path(planner->file)))
			candidate_add(planner,
				      &(struct native_candidate){
					      .symbol = alloc->symbol,
					      .call = alloc->call,
					      .user = 1,
					      .return_probe = (uint8_t)alloc->return_probe});
	}
	for (size_t i = 0; i < planner->table_count; i++)
		candidate_add(planner,
			      &(struct native_candidate){.symbol = planner->table[i].symbol,
							 .call = planner->table[i].call,
							 .throws = planner->table[i].throws});
	return 0;
}

static bool is_free(const struct native_call *call)
{
	return call->op == ABI_OP_FREE;
}

static bool is_realloc(const struct native_call *call)
{
	return call->op == ABI_OP_REALLOC || call->op == ABI_OP_REALLOCARRAY;
}

/* Is a request of a, which only jumps to b, the same as b's? */
static bool is_same(const struct native_call *a, const struct native_call *b)
{
	return a->op == b->op || (is_realloc(a) && is_realloc(b));
}

static const struct native_function *table_find(const struct native_planner *planner,
						const char *name)
{
	for (size_t i = 0; i < planner->table_count; i++)
		if (!strcmp(planner->table[i].symbol, name))
			return &planner->table[i];
	return NULL;
}

static const struct native_call *import_call(struct native_planner *planner, uint64_t slot)
{
	const char *name;

	if (elf_file_import_at(planner->file, slot, &name))
		return NULL;
	const struct native_function *function = table_find(planner, name);
	return function ? &function->call : NULL;
}

/* struct native_ends.returns: for functions of another file, which is planned by the same rules. */
static bool has_return(void *context, const char *name)
{
	const struct native_function *function = table_find(context, name);

	return function && function->call.op && !is_free(&function->call) && !function->throws;
}

/* native_known_fn: a function of this file, or one that the dynamic linker finds by its name. */
static int callee_known(void *context, uint64_t target, int slot)
{
	struct native_planner *planner = context;
	const struct native_call *call = NULL, *wanted = &planner->caller->call;
	const struct native_candidate *local = slot ? NULL : candidate_at(planner, target);
	uint8_t stub[STUB_BYTES];

	if (local == planner->caller)
		return 0;
	if (local) {
		call = &local->call;
	} else {
		int bytes = slot ? 0 : elf_file_read(planner->file, target, stub, sizeof(stub));
		if (bytes > 0)
			target = native_stub_slot(&planner->decoder, stub, (size_t)bytes, target);
		call = target ? import_call(planner, target) : NULL;
	}
	if (!call)
		return 0;
	return planner->jumps ? is_same(wanted, call) : call->op && !is_free(call);
}

/* Can code of this file throw an exception? */
static bool can_throw(struct elf_file *file)
{
	static const char *const names[] = {"__cxa_throw", "_ZSt17__throw_bad_allocv",
					    "_ZSt15get_new_handlerv", "_Unwind_RaiseException"};
	struct elf_symbol symbol;
	uint64_t slot;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (elf_file_import_slots(file, names[i], &slot, 1) ||
		    !elf_file_symbol(file, names[i], &symbol))
			return 1;
	return 0;
}

static int ends_add(struct native_planner *planner, const struct native_candidate *candidate,
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
static int switches(struct native_planner *planner, const struct native_candidate *candidate)
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

static int site_add(struct native_planner *planner, const struct native_candidate *candidate,
		    int calls)
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

static int candidate_plan(struct native_planner *planner, const struct native_candidate *candidate)
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

static int sites_find(struct native_planner *planner)
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
	struct native_planner planner = {.file = file, .plan = {.mode = EVENT_MODE_EXACT}};
	int err = native_table_new(&planner.table, &planner.table_count);

	err = err ?: candidates_find(&planner, opts);
	if (!err && !planner.count && !planner.plan.missing_count)
		err = planner.unreadable
			      ?: error_set(-ENOENT, "%s defines no allocator", elf_file_path(file));
	if (!err && planner.unreadable)
		plan_missing_add(&planner.plan, "(other functions)",
				 error_reason(planner.unreadable));
	err = err ?: inline_decoder_open(&planner.decoder, machine_own()) ?: sites_find(&planner);
	inline_decoder_close(&planner.decoder);
	free(planner.candidates);
	free(planner.table);
	if (err)
		plan_free(&planner.plan);
	else
		*out = planner.plan;
	return err;
}
