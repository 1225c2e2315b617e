/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control is followed from the entry: along both paths of a branch, into jumps, past calls.
 * Functions that do not return (__cxa_throw) are known by name. After an unknown one the walk may
 * continue into code of another function. That gives extra ends, which the check of the stack
 * pointer sorts out.
 */
#include "native/native_ends.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "abi/events.h"
#include "abi/target.h"
#include "machine/machine.h"
#include "native/native_code.h"
#include "plan/plan_symbol.h"

#define INSNS_MAX   1024 /* of one function and those that it jumps to */
#define PENDING_MAX 64   /* branches to follow later */
#define ENDS_MAX    32   /* of one function */
#define INSN_BYTES  16
#define STUB_BYTES  16

struct walk {
	struct elf_file *file;
	struct inline_decoder *decoder;
	const struct native_ends *ends_of; /* NULL: search for switches */
	const char *switches;              /* the function that switches stacks */
	size_t reported_ends;              /* ends that other functions' return probes report */
	uint64_t seen[INSNS_MAX], pending[PENDING_MAX], ends[ENDS_MAX];
	size_t seen_count, pending_count, end_count;
};

/* 1: vaddr is new, and seen from now on; 0: seen before; -E2BIG. */
static int walk_enter(struct walk *walk, uint64_t vaddr)
{
	for (size_t i = 0; i < walk->seen_count; i++)
		if (walk->seen[i] == vaddr)
			return 0;
	if (walk->seen_count == INSNS_MAX)
		return -E2BIG;
	walk->seen[walk->seen_count++] = vaddr;
	return 1;
}

static int pending_add(struct walk *walk, uint64_t vaddr)
{
	if (walk->pending_count == PENDING_MAX)
		return -E2BIG;
	walk->pending[walk->pending_count++] = vaddr;
	return 0;
}

/* The name of the imported function that a stub or a slot leads to. NULL: none. */
static const char *import_of(struct walk *walk, const struct inline_insn *insn)
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

static int is_noreturn(const char *name)
{
	static const char *const names[] = {"__cxa_throw", "_ZSt17__throw_bad_allocv",
					    "_Unwind_Resume", "abort", "__stack_chk_fail"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
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

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (name && !strcmp(name, names[i]))
			return names[i];
	return NULL;
}

/* The name of the function that is called or jumped to, in any file. */
static const char *callee_of(struct walk *walk, const struct inline_insn *insn)
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
static int jump_follow(struct walk *walk, const struct inline_insn *insn, uint64_t *vaddr)
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
static int insn_follow(struct walk *walk, uint64_t *vaddr)
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

static int ends_find(struct walk *walk, uint64_t entry)
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

const char *native_switches(struct elf_file *file, struct inline_decoder *decoder, const char *name,
			    uint64_t vaddr)
{
	struct walk walk = {.file = file, .decoder = decoder};

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
	int bytes;

	for (size_t i = 0; i < plan->count; i++)
		if (plan->sites[i].vaddr == vaddr && plan->sites[i].op == ABI_OP_END)
			return 0;
	*site = (struct plan_site){.vaddr = vaddr,
				   .op = ABI_OP_END,
				   .cookie = ABI_COOKIE(ABI_OP_END, EVENT_API_NATIVE, ABI_RESULT,
							ABI_REG_COUNT, ABI_REG_COUNT)};
	if (elf_file_offset(file, vaddr, &site->offset))
		return -ENOENT;
	bytes = elf_file_read(file, vaddr, code, sizeof(code));
	inline_disassemble(decoder, code, bytes > 0 ? (size_t)bytes : 0, vaddr, site->instruction,
			   sizeof(site->instruction));
	snprintf(site->symbol, sizeof(site->symbol), "%s", ends->spec->symbol);
	snprintf(site->why, sizeof(site->why), "ret (two traps): %s", ends->why);
	plan->count++;
	return 0;
}

int native_ends_add(struct plan *plan, struct elf_file *file, struct inline_decoder *decoder,
		    const struct native_ends *ends)
{
	struct walk walk = {.file = file, .decoder = decoder, .ends_of = ends};
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
