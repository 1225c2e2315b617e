/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where objects begin to live. Every copy of _Py_NewReference asks whether somebody wants to know
 * of it,
 *
 * 	up to 3.12	if (tracemalloc's config.tracing) _PyTraceMalloc_NewReference(object);
 * 	from 3.13 on	if (_PyRuntime.ref_tracer.tracer_func)
 * 				tracer_func(object, CREATE, tracer_data);
 *
 * and the branch that this ends in is the site: the way that is hardly ever taken passes the
 * object.
 *
 * The function itself, which is exported, tells where that flag is and what is called; where it is
 * inlined everywhere (3.8) the flag has a symbol, and what is called is what most of the ways call.
 * The flag is asked for by others, too: only what calls the same with an object is a copy.
 * (_Py_Dealloc calls the tracer with DESTROY.)
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "abi/events.h"
#include "abi/target.h"
#include "pymalloc/search.h"
#include "x86/value.h"
#include "x86/x86.h"

#define ENTRY_MAX 12 /* instructions of _Py_NewReference before the flag is read */
#define TEST_MAX  16 /* from reading the flag to the branch */
#define SLOW_MAX  32 /* from there to the call */
#define CALLEES   8
/* bytes from taking up the address of a structure to reading the flag in it */
#define READ_NEAR     96
#define FLAGS_MAX     (1 + INLINE_TRACING_SLOTS)
#define STRUCTURE_MAX (1u << 20) /* bytes of the one that the flag is in */
#define ANY           UINT64_MAX
#define THE_TRACER    0 /* in place of a callee: whatever is in the flag */

struct guard {
	uint64_t site;
	uint64_t callee;
	int64_t event; /* of THE_TRACER: which one */
	uint8_t reg;   /* the object is in it, plus addend; ABI_REG_COUNT: it is in none */
	int64_t addend;
};

static int is_same(const struct inline_address *a, const struct inline_address *b)
{
	return a->slot == b->slot && a->offset == b->offset;
}

/* Does it ask whether there is a flag, or fetch it? */
static int reads_flag(const struct inline_state *state, const struct inline_insn *insn,
		      const struct inline_address *flag)
{
	struct inline_address at;

	return insn->op != INLINE_COMPARE && !(insn->op == INLINE_COMPARE_CONST && insn->value) &&
	       inline_state_reads(state, insn, &at) && is_same(&at, flag);
}

/* The way on which somebody is told of the object. */
struct slow_way {
	struct inline_state objects; /* what registers hold, from the branch on */
	struct inline_state reading; /* the same, with what was known before it */
	uint64_t tracers[2];         /* values that are the flag's */
	uint64_t wanted;             /* the callee, or ANY */
};

/*
 * A jump to where a function begins calls it in place of its own function's return, unless that is
 * a part that was split off: if it is known what is called (wanted), nothing else is.
 */
static int is_tail_call(const struct inline_code *code, const struct inline_insn *insn,
			uint64_t wanted)
{
	return insn->op == INLINE_JUMP && inline_code_is_start(code, insn->target) &&
	       (wanted == ANY || wanted == insn->target);
}

/*
 * Does the instruction call, directly or by the flag? 0; 1 and the guard's callee is filled;
 * -ENOENT: it calls something else.
 */
static int slow_call(struct inline_code *code, const struct slow_way *way,
		     const struct inline_insn *insn, const struct inline_address *flag,
		     struct guard *guard)
{
	if (insn->op == INLINE_CALL || is_tail_call(code, insn, way->wanted)) {
		guard->callee = insn->target;
		guard->event = 0;
		return 1;
	}
	if (insn->op == INLINE_CALL_SLOT || insn->op == INLINE_JUMP_SLOT) {
		uint64_t called = insn->src < ABI_REG_COUNT ? way->objects.of[insn->src].base
							    : INLINE_UNKNOWN;

		if (!reads_flag(&way->reading, insn, flag) &&
		    (called < INLINE_NEW ||
		     (called != way->tracers[0] && called != way->tracers[1])))
			return -ENOENT;
		if (way->objects.of[ABI_REG_SI].base != INLINE_CONSTANT)
			return -ENOENT;
		guard->callee = THE_TRACER;
		guard->event = way->objects.of[ABI_REG_SI].addend;
		return 1;
	}
	return 0;
}

/*
 * The first call from vaddr on, with what is known of the registers at the branch. 0: there is
 * none.
 */
static int slow_way(struct inline_code *code, uint64_t vaddr, const struct inline_address *flag,
		    const struct inline_state *reading, uint8_t tracer, struct guard *guard)
{
	struct slow_way way = {.reading = *reading,
			       .tracers = {INLINE_UNKNOWN, INLINE_UNKNOWN},
			       .wanted = guard->callee};
	struct inline_insn insn;

	inline_state_init(&way.objects);
	if (tracer < ABI_REG_COUNT)
		way.tracers[0] = way.objects.of[tracer].base;
	for (int i = 0; i < SLOW_MAX && inline_code_window(code, vaddr, &insn, 1); i++) {
		struct inline_value object = way.objects.of[ABI_REG_DI];
		int is_flag = reads_flag(&way.reading, &insn, flag);
		int calls = slow_call(code, &way, &insn, flag, guard);

		if (calls < 0 || insn.op == INLINE_END)
			return 0;
		if (calls) {
			guard->reg = object.base >= INLINE_NEW &&
						     object.base < INLINE_NEW + ABI_REG_COUNT
					     ? (uint8_t)(object.base - INLINE_NEW)
					     : ABI_REG_COUNT;
			guard->addend = object.addend;
			return 1;
		}
		inline_state_step(&way.objects, &insn);
		inline_state_step(&way.reading, &insn);
		if (is_flag && insn.dst < ABI_REG_COUNT)
			way.tracers[1] = way.objects.of[insn.dst].base;
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

/*
 * What the instruction leaves in the registers. Of an address that only a later one than the first
 * takes up nothing is known, so that each guard is found from one place.
 */
static void reading_step(struct inline_state *state, const struct inline_insn *insn, int first)
{
	int is_address = insn->op == INLINE_CONST ||
			 (insn->op == INLINE_LOAD && insn->base == ABI_REG_COUNT);

	inline_state_step(state, insn);
	if (!first && is_address && insn->dst < ABI_REG_COUNT)
		inline_state_forget(state, insn->dst);
}

/*
 * Does the instruction at vaddr read the flag, or take up the address from which the flag is read
 * then, and is what follows a guard?
 */
static int guard_match(struct inline_code *code, uint64_t vaddr, const struct inline_address *flag,
		       uint64_t callee, struct guard *out)
{
	struct inline_state state;
	struct inline_insn insn;
	uint8_t tracer = ABI_REG_COUNT;
	int read = 0, tested = 0;

	*out = (struct guard){.callee = callee};
	inline_state_init(&state);
	for (int i = 0; i < TEST_MAX && inline_code_window(code, vaddr, &insn, 1); i++) {
		uint64_t next = vaddr + insn.bytes;

		if (!read && (!i || insn.base < ABI_REG_COUNT) && reads_flag(&state, &insn, flag)) {
			if (insn.op >= INLINE_BRANCH)
				return 0;
			read = 1;
			tracer = insn.dst;
			tested = insn.op == INLINE_COMPARE_CONST;
		} else if (insn.op == INLINE_BRANCH && tested && (insn.equal || insn.unequal)) {
			out->site = vaddr;
			return slow_way(code, insn.equal ? next : insn.target, flag, &state, tracer,
					out);
		} else if (insn.op == INLINE_TEST && read && tracer < ABI_REG_COUNT &&
			   insn.dst == tracer) {
			tested = 1;
		} else if (insn.op == INLINE_COMPARE || insn.op == INLINE_COMPARE_CONST ||
			   insn.op == INLINE_TEST) {
			tested = 0;
		} else if ((insn.op >= INLINE_BRANCH && insn.op != INLINE_JUMP &&
			    insn.op != INLINE_BRANCH) ||
			   (read && !tested && insn.written >> tracer & 1)) {
			return 0;
		}
		reading_step(&state, &insn, !i);
		vaddr = insn.op == INLINE_JUMP ? insn.target : next;
	}
	return 0;
}

/*
 * What _Py_NewReference, which begins at vaddr, asks first, and what it calls then with its
 * argument.
 */
static int seed_find(struct inline_code *code, uint64_t vaddr, struct inline_address *flag,
		     uint64_t *callee)
{
	struct inline_insn insns[ENTRY_MAX];
	size_t count = inline_code_window(code, vaddr, insns, ENTRY_MAX);
	struct guard guard;

	for (size_t i = 0; i < count && insns[i].op <= INLINE_BRANCH; i++) {
		struct inline_state state;

		inline_state_init(&state);
		for (size_t j = i; j < count && insns[j].op < INLINE_BRANCH; j++) {
			if (inline_state_reads(&state, &insns[j], flag) &&
			    guard_match(code, insns[i].vaddr, flag, ANY, &guard) &&
			    guard.reg < ABI_REG_COUNT && !guard.event && !guard.addend) {
				*callee = guard.callee;
				return 0;
			}
			reading_step(&state, &insns[j], j == i);
		}
	}
	return -ENOENT;
}

/* Is there soon a displacement of so much? */
static int displacement_follows(const struct inline_range *text, size_t index, uint64_t distance)
{
	size_t end = index + READ_NEAR < text->bytes ? index + READ_NEAR : text->bytes;
	uint32_t wide = (uint32_t)distance;

	if (!distance)
		return 1;
	for (; index < end; index++)
		if ((distance <= INT8_MAX && text->code[index] == distance) ||
		    (end - index >= sizeof(wide) &&
		     !memcmp(text->code + index, &wide, sizeof(wide))))
			return 1;
	return 0;
}

/*
 * Does the operand at that index speak of the flag: of where it is, of the slot that leads there,
 * or of the structure that it is in? *prefix: bytes of its instruction before it, but for a prefix.
 */
static int is_operand(const struct inline_range *text, size_t index,
		      const struct inline_address *flag, unsigned *before)
{
	const uint8_t *code = text->code + index;
	uint64_t wanted = flag->slot ? flag->slot : (uint64_t)flag->offset, target;
	int32_t distance;
	int is_address;

	memcpy(&distance, code, sizeof(distance));
	*before = 2;
	target = text->vaddr + index + 4 + (uint64_t)(int64_t)distance;
	if ((code[-1] & 0xc7) == 5 &&
	    (code[-2] == 0x8b || code[-2] == 0x83)) /* of 0x83 an immediate follows */
		return target + (code[-2] == 0x83) == wanted;
	is_address = (code[-1] & 0xc7) == 5 && code[-2] == 0x8d;
	if (!is_address && code[-2] == 0xc7 && (code[-1] & 0xf8) == 0xc0) {
		is_address = 1;
		target = (uint64_t)(int64_t)distance;
	} else if (!is_address && (code[-1] & 0xf8) == 0xb8) {
		is_address = 1;
		target = (uint32_t)distance;
		*before = 1;
	}
	return is_address && !flag->slot && wanted - target < STRUCTURE_MAX &&
	       displacement_follows(text, index + sizeof(distance), wanted - target);
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
		inline_give_up(search, INLINE_OBJECT, guard->site,
			       "an object begins to live in no register");
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
		 x86_register_name(guard->reg), (long long)guard->addend);
	search->out->found[INLINE_OBJECT]++;
	return inline_site_add(search, &site);
}

/*
 * A guard at an instruction; not one that calls something else. It is asked last which that is: the
 * function is decoded.
 */
static int guard_find(struct inline_search *search, uint64_t reader,
		      const struct inline_address *flag, uint64_t callee, struct guard *guard,
		      int *err)
{
	return guard_match(&search->code, reader, flag, callee, guard) &&
	       (callee == ANY || (guard->callee == callee && !guard->event)) &&
	       inline_is_instruction(search, reader, err);
}

/*
 * Calls with every guard of the flag that there is. callee: that they call, or ANY: tail calls of
 * whatever it is are believed.
 */
typedef int (*guard_fn)(void *context, const struct guard *guard);

static int guards_walk(struct inline_search *search, const struct inline_address *flag,
		       uint64_t callee, guard_fn each, void *context)
{
	const struct inline_range *text = &search->code.image->text;
	int err = 0;

	for (size_t i = 3; i + 4 <= text->bytes && !err; i++) {
		struct guard guard;
		unsigned before;
		uint64_t reader;

		if (!is_operand(text, i, flag, &before))
			continue;
		reader = text->vaddr + i - before;
		if (((text->code[i - before - 1] & 0xf0) == 0x40 &&
		     guard_find(search, reader - 1, flag, callee, &guard, &err)) ||
		    guard_find(search, reader, flag, callee, &guard, &err))
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

	return object_add(copies->search, guard);
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
static int callee_find(struct inline_search *search, const struct inline_address *flags,
		       size_t count, uint64_t *callee)
{
	struct census census = {0};
	size_t best = 0;

	for (size_t i = 0; i < count; i++) {
		int err = guards_walk(search, &flags[i], ANY, callee_count, &census);

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
	struct inline_address flags[FLAGS_MAX];
	size_t count = 0;
	int err;

	if (image->new_reference) {
		search->new_reference = inline_code_body(&search->code, image->new_reference);
		err = seed_find(&search->code, search->new_reference, &flags[count++],
				&copies.callee);
	} else {
		if (image->tracing)
			flags[count++] = (struct inline_address){.offset = (int64_t)image->tracing};
		for (size_t i = 0; i < INLINE_TRACING_SLOTS; i++)
			if (image->tracing_slots[i])
				flags[count++] = (struct inline_address){image->tracing_slots[i],
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
