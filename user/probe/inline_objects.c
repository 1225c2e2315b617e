/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where objects begin to live. Every copy of _Py_NewReference asks whether somebody wants to know of it,
 *
 *	up to 3.12	if (tracemalloc's config.tracing) _PyTraceMalloc_NewReference(object);
 *	from 3.13 on	if (_PyRuntime.ref_tracer.tracer_func) tracer_func(object, CREATE, tracer_data);
 *
 * and the branch that this ends in is the site: the way that is hardly ever taken passes the object.
 *
 * The function itself, which is exported, tells where that flag is and what is called; where it is inlined everywhere
 * (3.8) the flag has a symbol, and what is called is what most of the ways call. The flag is asked for by others, too:
 * only what calls the same with an object is a copy. (_Py_Dealloc calls the tracer with DESTROY.)
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "abi/events.h"
#include "abi/target.h"
#include "probe/inline_search.h"
#include "probe/inline_value.h"
#include "probe/x86.h"

#define ENTRY_MAX  12 /* instructions of _Py_NewReference before the flag is read */
#define TEST_MAX   16 /* from reading the flag to the branch */
#define SLOW_MAX   32 /* from there to the call */
#define CALLEES    8
#define FLAGS_MAX  (1 + INLINE_TRACING_SLOTS)
#define THE_TRACER 0 /* in place of a callee: whatever is in the flag */

/* The flag is at slot; or, where it has an offset, there is the address of the structure that it is in. */
struct flag {
	uint64_t slot;
	int64_t offset;
	int indirect;
};

struct guard {
	uint64_t site;
	uint64_t callee;
	int64_t event; /* of THE_TRACER: which one */
	uint8_t reg;   /* the object is in it, plus addend; ABI_REG_COUNT: it is in none */
	int64_t addend;
};

static int is_flag(const struct inline_insn *insn, uint8_t base, int64_t at)
{
	if (insn->base != base)
		return 0;
	if (insn->op == INLINE_LOAD || insn->op == INLINE_LOAD_32)
		return insn->value == at;
	return insn->op == INLINE_COMPARE_CONST && insn->dst == ABI_REG_COUNT && !insn->value &&
	       insn->target == (uint64_t)at;
}

/* The first call from vaddr on, with what is known of the registers at the branch. 0: there is none. */
static int slow_way(struct inline_code *code, uint64_t vaddr, const struct flag *flag, uint8_t tracer,
		    struct guard *guard)
{
	struct inline_state state;
	struct inline_insn insn;
	uint32_t tracers[2] = {INLINE_UNKNOWN, INLINE_UNKNOWN}; /* values that are the flag's */

	inline_state_init(&state);
	if (tracer < ABI_REG_COUNT)
		tracers[0] = state.of[tracer].base;
	for (int i = 0; i < SLOW_MAX && inline_code_window(code, vaddr, &insn, 1); i++) {
		struct inline_value object = state.of[ABI_REG_DI];

		if (insn.op == INLINE_END)
			return 0;
		if (insn.op == INLINE_CALL_SLOT || insn.op == INLINE_JUMP_SLOT) {
			uint32_t called = insn.src < ABI_REG_COUNT ? state.of[insn.src].base : INLINE_UNKNOWN;

			if ((insn.target != flag->slot || flag->indirect) &&
			    (called < INLINE_NEW || (called != tracers[0] && called != tracers[1])))
				return 0;
			if (state.of[ABI_REG_SI].base != INLINE_CONSTANT)
				return 0;
			guard->callee = THE_TRACER;
			guard->event = state.of[ABI_REG_SI].addend;
		} else if (insn.op == INLINE_CALL ||
			   (insn.op == INLINE_JUMP && inline_code_is_start(code, insn.target))) {
			guard->callee = insn.target;
			guard->event = 0;
		}
		if (insn.op == INLINE_CALL || insn.op == INLINE_CALL_SLOT || insn.op == INLINE_JUMP_SLOT ||
		    (insn.op == INLINE_JUMP && guard->callee == insn.target)) {
			guard->reg = object.base >= INLINE_NEW && object.base < INLINE_NEW + ABI_REG_COUNT
					     ? (uint8_t)(object.base - INLINE_NEW)
					     : ABI_REG_COUNT;
			guard->addend = object.addend;
			return 1;
		}
		inline_state_step(&state, &insn);
		if (insn.op == INLINE_LOAD && !flag->indirect &&
		    is_flag(&insn, ABI_REG_COUNT, (int64_t)flag->slot) && insn.dst < ABI_REG_COUNT)
			tracers[1] = state.of[insn.dst].base;
		/* Compared with the likeliest tracer: the way of any other. */
		if (insn.op == INLINE_JUMP || (insn.op == INLINE_BRANCH && insn.unequal))
			vaddr = insn.target;
		else if (insn.op == INLINE_BRANCH && !insn.equal)
			return 0;
		else
			vaddr += insn.bytes;
	}
	return 0;
}

/* Is the flag, or the slot that leads to it, read at vaddr, and is what follows a guard? */
static int guard_match(struct inline_code *code, uint64_t vaddr, const struct flag *flag, struct guard *out)
{
	uint8_t base = ABI_REG_COUNT, tracer = ABI_REG_COUNT;
	int read = 0, tested = 0;
	struct inline_insn insn;

	*out = (struct guard){0};
	for (int i = 0; i < TEST_MAX && inline_code_window(code, vaddr, &insn, 1); i++) {
		uint64_t next = vaddr + insn.bytes;

		if (!i && flag->indirect) {
			if (insn.op != INLINE_LOAD || !is_flag(&insn, ABI_REG_COUNT, (int64_t)flag->slot))
				return 0;
			base = insn.dst;
		} else if (!read &&
			   is_flag(&insn, base, flag->indirect ? flag->offset : (int64_t)flag->slot)) {
			read = 1;
			tracer = insn.dst;
			tested = insn.op == INLINE_COMPARE_CONST;
		} else if (insn.op == INLINE_BRANCH && tested && (insn.equal || insn.unequal)) {
			out->site = vaddr;
			return slow_way(code, insn.equal ? next : insn.target, flag, tracer, out);
		} else if (insn.op == INLINE_TEST && read && tracer < ABI_REG_COUNT && insn.dst == tracer) {
			tested = 1;
		} else if (insn.op == INLINE_COMPARE || insn.op == INLINE_COMPARE_CONST ||
			   insn.op == INLINE_TEST) {
			tested = 0;
		} else if (insn.op >= INLINE_BRANCH && insn.op != INLINE_JUMP && insn.op != INLINE_BRANCH) {
			return 0;
		} else if ((!read && insn.written >> base & 1) ||
			   (read && !tested && insn.written >> tracer & 1)) {
			return 0;
		}
		if (!i && !read && !flag->indirect)
			return 0;
		vaddr = insn.op == INLINE_JUMP ? insn.target : next;
	}
	return 0;
}

/* What _Py_NewReference reads first, at one place or through a slot, and calls with its argument. */
static int seed_find(struct inline_code *code, uint64_t function, struct flag *flag, uint64_t *callee)
{
	struct inline_insn insns[ENTRY_MAX];
	size_t count = inline_code_window(code, function, insns, ENTRY_MAX);
	struct guard guard;

	for (size_t i = 0; i < count && insns[i].op <= INLINE_BRANCH; i++) {
		const struct inline_insn *insn = &insns[i];

		*flag = (struct flag){.slot = (uint64_t)(insn->op == INLINE_COMPARE_CONST
								 ? (int64_t)insn->target
								 : insn->value)};
		if (!is_flag(insn, ABI_REG_COUNT, (int64_t)flag->slot))
			continue;
		for (size_t j = i; j < count && insns[j].op < INLINE_BRANCH; j++) {
			flag->indirect = j > i;
			flag->offset = insns[j].op == INLINE_COMPARE_CONST ? (int64_t)insns[j].target
									   : insns[j].value;
			if (guard_match(code, insn->vaddr, flag, &guard) && guard.reg < ABI_REG_COUNT &&
			    !guard.event && !guard.addend) {
				*callee = guard.callee;
				return 0;
			}
		}
	}
	return -ENOENT;
}

/* The instruction whose 32-bit displacement is at that index and leads to the address; UINT64_MAX: none. */
static uint64_t reader_find(struct inline_search *search, size_t index, uint64_t address, int *err)
{
	const struct inline_range *text = &search->code.image->text;
	const uint8_t *code = text->code;
	uint64_t after = text->vaddr + index + 4;
	int32_t distance;

	memcpy(&distance, code + index, sizeof(distance));
	/* An immediate of one byte may follow. */
	if (index < 3 || address - after - (uint64_t)(int64_t)distance > 1 || (code[index - 1] & 0xc7) != 5)
		return UINT64_MAX;
	if (code[index - 2] != 0x8b && code[index - 2] != 0x83)
		return UINT64_MAX;
	if ((code[index - 3] & 0xf0) == 0x40 && inline_is_instruction(search, after - 7, err))
		return after - 7;
	return inline_is_instruction(search, after - 6, err) ? after - 6 : UINT64_MAX;
}

static int is_known(const struct inline_sites *sites, uint64_t vaddr)
{
	for (size_t i = sites->count; i-- > 0 && sites->sites[i].op == ABI_OP_REUSE;)
		if (sites->sites[i].vaddr == vaddr)
			return 1;
	return 0;
}

static int object_add(struct inline_search *search, const struct guard *guard)
{
	struct plan_site site = {.vaddr = guard->site, .op = ABI_OP_REUSE};
	int err = 0;

	if (is_known(search->out, guard->site))
		return 0;
	if (guard->reg == ABI_REG_COUNT || guard->addend < INT16_MIN || guard->addend > INT16_MAX) {
		inline_give_up(search, INLINE_OBJECT, guard->site, "an object begins to live in no register");
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
	site.cookie = ABI_COOKIE(ABI_OP_REUSE, EVENT_API_OBJ, guard->reg, ABI_REG_COUNT, ABI_REG_COUNT) |
		      ABI_COOKIE_ADDEND(guard->addend);
	snprintf(site.why, sizeof(site.why), "object is %s%+lld, begins to live",
		 x86_register_name(guard->reg), (long long)guard->addend);
	search->out->found[INLINE_OBJECT]++;
	return inline_site_add(search, &site);
}

/* Calls with every guard of the flag that there is. */
typedef int (*guard_fn)(void *context, const struct guard *guard);

static int guards_walk(struct inline_search *search, const struct flag *flag, guard_fn each, void *context)
{
	const struct inline_range *text = &search->code.image->text;
	int err = 0;

	for (size_t i = 3; i + 4 <= text->bytes && !err; i++) {
		uint64_t reader = reader_find(search, i, flag->slot, &err);
		struct guard guard;

		if (reader != UINT64_MAX && !err && guard_match(&search->code, reader, flag, &guard))
			err = each(context, &guard);
	}
	return err;
}

struct copies {
	struct inline_search *search;
	uint64_t callee;
};

static int copy_add(void *context, const struct guard *guard)
{
	struct copies *copies = context;

	return guard->callee == copies->callee && !guard->event ? object_add(copies->search, guard) : 0;
}

struct census {
	struct {
		uint64_t callee;
		size_t calls;
	} callees[CALLEES];
};

static int callee_count(void *context, const struct guard *guard)
{
	struct census *census = context;

	if (guard->callee == THE_TRACER || guard->reg == ABI_REG_COUNT)
		return 0;
	for (size_t i = 0; i < CALLEES; i++) {
		if (census->callees[i].calls && census->callees[i].callee != guard->callee)
			continue;
		census->callees[i].callee = guard->callee;
		census->callees[i].calls++;
		break;
	}
	return 0;
}

/* What most of the guards call. 0; -ENOENT; or an error. */
static int callee_find(struct inline_search *search, const struct flag *flags, size_t count, uint64_t *callee)
{
	struct census census = {0};
	size_t best = 0;

	for (size_t i = 0; i < count; i++) {
		int err = guards_walk(search, &flags[i], callee_count, &census);

		if (err)
			return err;
	}
	for (size_t i = 1; i < CALLEES; i++)
		if (census.callees[i].calls > census.callees[best].calls)
			best = i;
	*callee = census.callees[best].callee;
	return census.callees[best].calls ? 0 : -ENOENT;
}

int inline_objects_find(struct inline_search *search)
{
	const struct inline_image *image = search->code.image;
	struct copies copies = {.search = search};
	struct flag flags[FLAGS_MAX];
	size_t count = 0;
	int err;

	if (image->new_reference) {
		err = seed_find(&search->code, image->new_reference, &flags[count++], &copies.callee);
	} else {
		if (image->tracing)
			flags[count++] = (struct flag){.slot = image->tracing};
		for (size_t i = 0; i < INLINE_TRACING_SLOTS; i++)
			if (image->tracing_slots[i])
				flags[count++] =
					(struct flag){image->tracing_slots[i], image->tracing_offset, 1};
		err = callee_find(search, flags, count, &copies.callee);
	}
	for (size_t i = 0; i < count && !err; i++)
		err = guards_walk(search, &flags[i], copy_add, &copies);
	return err && err != -ENOENT ? err : inline_object_calls(search);
}
