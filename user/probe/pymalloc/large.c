/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds where pymalloc requests from the raw allocator a block that is too large for itself,
 * through a slot or a function that jumps through one. The code after that call counts the block.
 * The request is seen in the raw allocator, and its return address identifies it as pymalloc's.
 */
#include <errno.h>

#include "abi/target.h"
#include "probe/pymalloc/match.h"
#include "probe/pymalloc/search.h"

#define PART_MAX 24 /* instructions of a path into a part that was split off the function */

static void large_add(struct inline_sites *sites, uint64_t vaddr)
{
	for (size_t i = 0; i < sites->large_count && i < INLINE_LARGE_MAX; i++)
		if (sites->large[i] == vaddr)
			return;
	if (sites->large_count < INLINE_LARGE_MAX)
		sites->large[sites->large_count] = vaddr;
	sites->large_count++;
}

/*
 * Is it a call of a function of this file, or through a slot? Calls of malloc itself are sites of
 * their own.
 */
static int is_call(const struct inline_image *image, const struct inline_insn *insn)
{
	uint64_t slot =
		insn->op == INLINE_CALL ? inline_stub_slot(image, insn->target) : insn->target;

	for (size_t i = 0; slot && i < image->import_count; i++)
		if (image->imports[i].slot == slot)
			return 0;
	return insn->op == INLINE_CALL || insn->op == INLINE_CALL_SLOT;
}

static void call_look(struct inline_search *search, const struct inline_insn *insn)
{
	uint64_t after = insn->vaddr + insn->bytes;

	if (is_call(search->code.image, insn) && inline_match_counted(&search->code, after))
		large_add(search->out, after);
}

static void part_look(struct inline_search *search, uint64_t vaddr)
{
	struct inline_insn insn;

	for (int i = 0; i < PART_MAX && inline_code_window(&search->code, vaddr, &insn, 1); i++) {
		if (insn.op == INLINE_JUMP || insn.op == INLINE_JUMP_SLOT || insn.op == INLINE_END)
			return;
		call_look(search, &insn);
		vaddr += insn.bytes;
	}
}

/* Searches the function that was decoded last, and the code that it branches to. */
static void function_look(struct inline_search *search)
{
	const struct inline_code *code = &search->code;

	for (size_t i = 0; i < code->count && search->out->large_count <= INLINE_LARGE_MAX; i++) {
		const struct inline_insn *insn = &code->insns[i];

		call_look(search, insn);
		if ((insn->op == INLINE_BRANCH || insn->op == INLINE_JUMP) &&
		    insn->target - code->start >= code->end - code->start)
			part_look(search, insn->target);
	}
}

/*
 * There are inlined copies, which call malloc itself. The functions are what hooks call
 * (tracemalloc's), and they request large blocks through a slot that holds a hook, too.
 */
static int functions_look(struct inline_search *search)
{
	const uint64_t *functions = search->code.image->object_functions;
	int err = 0;

	for (size_t i = 0; i < INLINE_OBJECT_FUNCTIONS && err != -ENOMEM; i++) {
		err = functions[i] ? inline_code_function(&search->code, functions[i]) : -ENOENT;
		if (!err)
			function_look(search);
	}
	return err == -ENOMEM ? err : 0;
}

int inline_large_find(struct inline_search *search)
{
	struct inline_sites *sites = search->out;
	int err;

	/*
	 * An allocator has few functions. If there are more sites, they are inlined copies, which
	 * call malloc itself.
	 */
	if (sites->found[INLINE_POOL] > INLINE_LARGE_MAX) {
		err = functions_look(search);
		if (sites->large_count > INLINE_LARGE_MAX)
			sites->large_count = 0;
		return err;
	}
	for (size_t i = 0; i < sites->count; i++) {
		err = sites->sites[i].op == ABI_OP_POOL
			      ? inline_code_function(&search->code, sites->sites[i].vaddr)
			      : -ENOENT;

		if (err == -ENOMEM)
			return err;
		if (!err)
			function_look(search);
	}
	if (sites->large_count > INLINE_LARGE_MAX)
		sites->large_count = 0;
	return 0;
}
