/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sites where objects begin to live: the copies of _Py_NewReference, each found by its check
 * (pymalloc/guard.h).
 *
 * The function itself, which is exported, shows the flag that it checks and the function that it
 * calls. Where it is always inlined (3.8), the flag has a symbol, and the callee is the one that
 * most checks call. Other code checks the flag, too: only a check that makes the same call with an
 * object is a copy. (_Py_Dealloc calls the tracer with DESTROY.)
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "abi/events.h"
#include "abi/target.h"
#include "machine/machine.h"
#include "pymalloc/guard.h"
#include "pymalloc/search.h"

#define CALLEES   8
#define FLAGS_MAX (1 + INLINE_TRACING_SLOTS)

static int is_known(const struct inline_sites *sites, uint64_t vaddr)
{
	for (size_t i = sites->count; i-- > 0 && sites->sites[i].op == ABI_OP_REUSE;)
		if (sites->sites[i].vaddr == vaddr)
			return 1;
	return 0;
}

static int object_add(struct inline_search *search, const struct inline_guard *guard)
{
	struct plan_site site = {.vaddr = guard->site, .op = ABI_OP_REUSE};
	int err = 0;

	if (is_known(search->out, guard->site))
		return 0;
	if (guard->reg == ABI_REG_COUNT || guard->addend < INT16_MIN || guard->addend > INT16_MAX) {
		inline_give_up(search, INLINE_OBJECT, guard->site,
			       "no register holds the object that begins to live");
		return 0;
	}
	if (!inline_is_instruction(search, guard->site, &err)) {
		inline_give_up(search, INLINE_OBJECT, guard->site,
			       "decoding its function does not lead to it");
		return err;
	}
	if (!guard->addend && inline_is_new(&search->code, guard->site, guard->reg)) {
		search->out->always_new++;
		return 0;
	}
	site.cookie =
		ABI_COOKIE(ABI_OP_REUSE, EVENT_API_OBJ, guard->reg, ABI_REG_COUNT, ABI_REG_COUNT) |
		ABI_COOKIE_ADDEND(guard->addend);
	snprintf(site.why, sizeof(site.why), "object is %s%+lld, begins to live",
		 search->code.decoder.machine->register_name(guard->reg), (long long)guard->addend);
	search->out->found[INLINE_OBJECT]++;
	return inline_site_add(search, &site);
}

/* Does an instruction of the decoded function, before the reader, give its register that value? */
static int is_held(const struct inline_code *code, const struct inline_reader *reader)
{
	struct inline_state state;

	if (reader->base >= ABI_REG_COUNT)
		return 1;
	inline_state_init(&state);
	for (size_t i = 0; i < code->count && code->insns[i].vaddr < reader->vaddr; i++) {
		const struct inline_value *value = &state.of[reader->base];

		inline_state_step(&state, &code->insns[i]);
		if (value->base == reader->held.base && value->addend == reader->held.addend)
			return 1;
	}
	return 0;
}

/*
 * Finds a guard at an instruction that calls callee. Decodes its function last, because that is
 * slow.
 */
static int guard_find(struct inline_search *search, const struct inline_reader *reader,
		      const struct inline_address *flag, uint64_t callee,
		      struct inline_guard *guard, int *err)
{
	return inline_guard_match(&search->code, reader, flag, callee, guard) &&
	       (callee == INLINE_GUARD_ANY || (guard->callee == callee && !guard->event)) &&
	       inline_is_instruction(search, reader->vaddr, err) && is_held(&search->code, reader);
}

/*
 * Calls each with every guard of the flag. callee: the function that guards call, or
 * INLINE_GUARD_ANY: then any tail call is accepted.
 */
typedef int (*guard_fn)(void *context, const struct inline_guard *guard);

static int guards_walk(struct inline_search *search, const struct inline_address *flag,
		       uint64_t callee, guard_fn each, void *context)
{
	const struct inline_image *image = search->code.image;
	struct machine_found found;
	int err = 0;

	for (size_t i = 0;
	     !err && (i = image->machine->look(MACHINE_READER, &image->text, i, flag, &found));) {
		struct inline_reader reader = {found.vaddr, found.base, {INLINE_CONSTANT, 0}};
		struct inline_reader before = {found.vaddr - 1, ABI_REG_COUNT, {0}};
		struct inline_guard guard;

		if (flag->slot)
			reader.held.base = INLINE_HELD | flag->slot;
		reader.held.addend = (int64_t)((uint64_t)flag->offset - (uint64_t)found.value);
		if ((found.prefixed && guard_find(search, &before, flag, callee, &guard, &err)) ||
		    guard_find(search, &reader, flag, callee, &guard, &err))
			err = each(context, &guard);
	}
	return err;
}

struct copies {
	struct inline_search *search;
	uint64_t callee;
};

static int copy_add(void *context, const struct inline_guard *guard)
{
	struct copies *copies = context;

	return object_add(copies->search, guard);
}

struct callee_counts {
	struct {
		uint64_t callee;
		size_t calls;
	} callees[CALLEES];
};

static int callee_count(void *context, const struct inline_guard *guard)
{
	struct callee_counts *counts = context;

	if (guard->callee == INLINE_GUARD_TRACER || guard->reg == ABI_REG_COUNT)
		return 0;
	for (size_t i = 0; i < CALLEES; i++) {
		if (counts->callees[i].calls && counts->callees[i].callee != guard->callee)
			continue;
		counts->callees[i].callee = guard->callee;
		counts->callees[i].calls++;
		break;
	}
	return 0;
}

/* The function that most guards call. 0; -ENOENT; or an error. */
static int callee_find(struct inline_search *search, const struct inline_address *flags,
		       size_t count, uint64_t *callee)
{
	struct callee_counts counts = {0};
	size_t best = 0;

	for (size_t i = 0; i < count; i++) {
		int err = guards_walk(search, &flags[i], INLINE_GUARD_ANY, callee_count, &counts);

		if (err)
			return err;
	}
	for (size_t i = 1; i < CALLEES; i++)
		if (counts.callees[i].calls > counts.callees[best].calls)
			best = i;
	*callee = counts.callees[best].callee;
	return counts.callees[best].calls ? 0 : -ENOENT;
}

int inline_objects_find(struct inline_search *search)
{
	const struct inline_image *image = search->code.image;
	struct copies copies = {.search = search};
	struct inline_address flags[FLAGS_MAX];
	size_t count = 0;
	int err;

	if (image->new_reference) {
		search->new_reference = inline_code_body(&search->code, image->new_reference);
		err = inline_guard_seed(&search->code, search->new_reference, &flags[count++],
					&copies.callee);
	} else {
		if (image->tracing)
			flags[count++] = (struct inline_address){.offset = (int64_t)image->tracing};
		for (size_t i = 0; i < INLINE_TRACING_SLOTS; i++)
			if (image->tracing_slots[i])
				flags[count++] = (struct inline_address){image->tracing_slots[i],
									 image->tracing_offset,
									 image->tracing_offset};
		err = callee_find(search, flags, count, &copies.callee);
	}
	for (size_t i = 0; i < count && !err; i++)
		err = guards_walk(search, &flags[i], copies.callee, copy_add, &copies);
	if (err && err != -ENOENT)
		return err;
	search->out->objects_unknown = err == -ENOENT;
	return inline_object_calls(search);
}
