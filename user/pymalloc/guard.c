/* SPDX-License-Identifier: Apache-2.0 */
#include "pymalloc/guard.h"

#include <errno.h>

#include "abi/target.h"
#include "machine/machine.h"
#include "machine/value.h"

#define ENTRY_MAX 12 /* instructions of _Py_NewReference before it reads the flag */
#define TEST_MAX  16 /* from reading the flag to the branch */
#define SLOW_MAX  32 /* from there to the call */

static int is_same(const struct inline_address *a, const struct inline_address *b)
{
	return a->slot == b->slot && a->offset == b->offset;
}

/* Does it compare the flag with 0, or load it? */
static int reads_flag(const struct inline_state *state, const struct inline_insn *insn,
		      const struct inline_address *flag)
{
	struct inline_address at;

	return insn->op != INLINE_COMPARE && !(insn->op == INLINE_COMPARE_CONST && insn->value) &&
	       inline_state_reads(state, insn, &at) && is_same(&at, flag);
}

/* The path on which the tracer is called with the object. */
struct slow_path {
	struct inline_state objects; /* the registers, from the branch on */
	struct inline_state reading; /* the same, with what was known before the branch */
	uint64_t tracers[2];         /* values loaded from the flag */
	uint64_t wanted;             /* the callee, or INLINE_GUARD_ANY */
};

/*
 * A jump to a function's start is a tail call, unless it leads to a part that was split off. If the
 * callee is known (wanted), only a jump to it is a tail call.
 */
static int is_tail_call(const struct inline_code *code, const struct inline_insn *insn,
			uint64_t wanted)
{
	return insn->op == INLINE_JUMP && inline_code_is_start(code, insn->target) &&
	       (wanted == INLINE_GUARD_ANY || wanted == insn->target);
}

/*
 * Does the instruction call, directly or by the flag? 0; 1, and the guard's callee is set; -ENOENT
 * it calls something else.
 */
static int slow_call(struct inline_code *code, const struct slow_path *path,
		     const struct inline_insn *insn, const struct inline_address *flag,
		     struct inline_guard *guard)
{
	if (insn->op == INLINE_CALL || is_tail_call(code, insn, path->wanted)) {
		guard->callee = insn->target;
		guard->event = 0;
		return 1;
	}
	if (insn->op == INLINE_CALL_SLOT || insn->op == INLINE_JUMP_SLOT) {
		uint64_t called = insn->src < ABI_REG_COUNT ? path->objects.of[insn->src].base
							    : INLINE_UNKNOWN;
		uint8_t event = code->image->machine->arguments[1];

		if (!reads_flag(&path->reading, insn, flag) &&
		    (called < INLINE_NEW ||
		     (called != path->tracers[0] && called != path->tracers[1])))
			return -ENOENT;
		if (path->objects.of[event].base != INLINE_CONSTANT)
			return -ENOENT;
		guard->callee = INLINE_GUARD_TRACER;
		guard->event = path->objects.of[event].addend;
		return 1;
	}
	return 0;
}

/*
 * Follows the code from vaddr to its first call, with the registers at the branch. 0: no call is
 * found.
 */
static int slow_path(struct inline_code *code, uint64_t vaddr, const struct inline_address *flag,
		     const struct inline_state *reading, uint8_t tracer, struct inline_guard *guard)
{
	struct slow_path path = {.reading = *reading,
				 .tracers = {INLINE_UNKNOWN, INLINE_UNKNOWN},
				 .wanted = guard->callee};
	struct inline_insn insn;

	inline_state_init(&path.objects);
	if (tracer < ABI_REG_COUNT)
		path.tracers[0] = path.objects.of[tracer].base;
	for (int i = 0; i < SLOW_MAX && inline_code_window(code, vaddr, &insn, 1); i++) {
		struct inline_value object = path.objects.of[code->image->machine->arguments[0]];
		int is_flag = reads_flag(&path.reading, &insn, flag);
		int calls = slow_call(code, &path, &insn, flag, guard);

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
		inline_state_step(&path.objects, &insn);
		inline_state_step(&path.reading, &insn);
		if (is_flag && insn.dst < ABI_REG_COUNT)
			path.tracers[1] = path.objects.of[insn.dst].base;
		/* After a comparison with the likeliest tracer: take the path of any other. */
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
 * Updates the registers. An address that a later instruction than the first loads is forgotten, so
 * that each guard is found from one place only.
 */
static void reading_step(struct inline_state *state, const struct inline_insn *insn, int first)
{
	int is_address = insn->op == INLINE_CONST ||
			 (insn->op == INLINE_LOAD && insn->base == ABI_REG_COUNT);

	inline_state_step(state, insn);
	if (!first && is_address && insn->dst < ABI_REG_COUNT)
		inline_state_forget(state, insn->dst);
}

int inline_guard_match(struct inline_code *code, const struct inline_reader *reader,
		       const struct inline_address *flag, uint64_t callee, struct inline_guard *out)
{
	uint64_t vaddr = reader->vaddr;
	struct inline_state state;
	struct inline_insn insn;
	uint8_t tracer = ABI_REG_COUNT;
	int read = 0, tested = 0;

	*out = (struct inline_guard){.callee = callee};
	inline_state_init(&state);
	if (reader->base < ABI_REG_COUNT)
		state.of[reader->base] = reader->held;
	for (int i = 0; i < TEST_MAX && inline_code_window(code, vaddr, &insn, 1); i++) {
		uint64_t next = vaddr + insn.bytes;

		if (!read && (!i || insn.base < ABI_REG_COUNT) && reads_flag(&state, &insn, flag)) {
			if (insn.op >= INLINE_BRANCH)
				return 0;
			read = 1;
			tracer = insn.dst;
			tested = insn.op == INLINE_COMPARE_CONST;
		} else if (insn.op == INLINE_BRANCH && (insn.equal || insn.unequal) &&
			   (insn.src < ABI_REG_COUNT ? read && insn.src == tracer : tested)) {
			out->site = vaddr;
			return slow_path(code, insn.equal ? next : insn.target, flag, &state,
					 tracer, out);
		} else if (insn.op == INLINE_TEST && read && tracer < ABI_REG_COUNT &&
			   insn.dst == tracer) {
			tested = 1;
		} else if (insn.op == INLINE_COMPARE || insn.op == INLINE_COMPARE_CONST ||
			   insn.op == INLINE_TEST) {
			tested = 0;
		} else if ((insn.op >= INLINE_BRANCH && insn.op != INLINE_JUMP &&
			    insn.op != INLINE_BRANCH) ||
			   (read && !tested &&
			    (tracer >= ABI_REG_COUNT || insn.written >> tracer & 1))) {
			return 0;
		}
		reading_step(&state, &insn, !i);
		vaddr = insn.op == INLINE_JUMP ? insn.target : next;
	}
	return 0;
}

int inline_guard_seed(struct inline_code *code, uint64_t vaddr, struct inline_address *flag,
		      uint64_t *callee)
{
	struct inline_insn insns[ENTRY_MAX];
	size_t count = inline_code_window(code, vaddr, insns, ENTRY_MAX);
	struct inline_guard guard;

	for (size_t i = 0; i < count && insns[i].op <= INLINE_BRANCH; i++) {
		struct inline_reader reader = {.vaddr = insns[i].vaddr, .base = ABI_REG_COUNT};
		struct inline_state state;

		inline_state_init(&state);
		for (size_t j = i; j < count && insns[j].op < INLINE_BRANCH; j++) {
			if (inline_state_reads(&state, &insns[j], flag) &&
			    inline_guard_match(code, &reader, flag, INLINE_GUARD_ANY, &guard) &&
			    guard.reg < ABI_REG_COUNT && !guard.event && !guard.addend) {
				*callee = guard.callee;
				return 0;
			}
			reading_step(&state, &insns[j], j == i);
		}
	}
	return -ENOENT;
}
