/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The walk of a native stack by unwind tables.
 *
 * A frame is {pc, sp, bp}: its rule (table.h) yields the canonical frame address (CFA),
 * which is the caller's sp; below it are the return address and the saved rbp. The stack is read
 * through a window, one copy for about ten frames. Each frame lies above the previous one and below
 * the stack's end.
 *
 * Code that no table describes (compiled at run time, or without .eh_frame) may keep frame
 * pointers: one step is made by them, if the frame that they lead to is covered by a table or its
 * return address follows a call. What else ends a walk before the outermost frame is told by its
 * reason.
 */
#pragma once

#include "frame_pointer.h"
#include "request.h"
#include "unwind/table.h"

#define UNWIND_BELOW 56 /* bytes of a frame below its return address, where rbp may be saved */

#define RETURNS_MAX 64  /* return probes in progress on a thread; the kernel allows as many */
#define RED_ZONE    128 /* bytes below the stack pointer that a function may use */
#define STUB_BYTES  16

/* Copies the stack around this address into the window. 0; -1: it is not resident. */
__noinline int window_move(struct unwind_state *unwind, __u64 address)
{
	if (!unwind)
		return -1;
	/* Some words below it belong to the same frame. */
	unwind->base = address - UNWIND_BELOW;
	unwind->words = UNWIND_WORDS;
	if (!bpf_probe_read_user(unwind->window, sizeof(unwind->window), (void *)unwind->base))
		return 0;
	unwind->words = UNWIND_BELOW / 8 + 1;
	if (!bpf_probe_read_user(unwind->window, UNWIND_BELOW + 8, (void *)unwind->base))
		return 0;
	unwind->words = 0;
	return -1;
}

/* Reads one word of the stack, if possible from the window. 0; -1 */
static __always_inline int stack_word(struct unwind_state *unwind, __u64 address, __u64 *out)
{
	__u64 at = (address - unwind->base) / 8;

	if (address & 7)
		return -1;
	if (at >= unwind->words) {
		if (window_move(unwind, address))
			return -1;
		at = UNWIND_BELOW / 8;
	}
	*out = unwind->window[at & (UNWIND_WORDS - 1)];
	return 0;
}

/*
 * The end of the stack that sp is in: a thread's stack lies below its thread-local variables, the
 * first thread's below mm->start_stack. For a stack that the program made itself (makecontext,
 * sigaltstack) it is a bound, too, but not the exact one.
 */
static __always_inline void stack_top_find(struct unwind_state *unwind)
{
	unwind->top =
		unwind->thread_pointer > unwind->sp ? unwind->thread_pointer : unwind->start_stack;
	/* Deeper than that is no stack. */
	if (unwind->top - unwind->sp > STACK_TOTAL_MAX)
		unwind->top = unwind->sp + STACK_TOTAL_MAX;
}

static __always_inline int unwind_cut(struct unwind_state *unwind, __u32 end)
{
	unwind->end = end;
	return -1;
}

/*
 * Is the frame, in code that no row covers, a stack's outermost one? musl's _start and clone have
 * no unwind information, and programs may be written in assembly.
 */
static __always_inline int is_at_base(const struct unwind_state *unwind)
{
	return unwind->start_stack - unwind->sp < MAIN_BASE_BYTES ||
	       unwind->thread_pointer - unwind->sp < THREAD_BASE_BYTES;
}

/*
 * The real return address that a return probe has replaced at this place on the stack; 0. Functions
 * with a loop are global: the verifier checks them once, and not for each path to a call.
 */
__noinline __u64 return_find(__u64 place)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct return_instance *instance = NULL;
	int i;

	if (!bpf_core_field_exists(task->utask) || !bpf_core_field_exists(instance->orig_ret_vaddr))
		return 0;
	instance = BPF_CORE_READ(task, utask, return_instances);
	for (i = 0; i < RETURNS_MAX && instance; i++) {
		if (BPF_CORE_READ(instance, stack) == place)
			return BPF_CORE_READ(instance, orig_ret_vaddr);
		instance = BPF_CORE_READ(instance, next);
	}
	return 0;
}

/* Goes on in the code that a signal has interrupted. 0, -1. */
static __noinline int signal_step(struct unwind_state *unwind)
{
	__u64 registers[2];
	__u16 code = 0;

	if (bpf_probe_read_user(&unwind->bp, 8, (void *)(unwind->sp + SIGNAL_FRAME)) ||
	    bpf_probe_read_user(registers, sizeof(registers), (void *)(unwind->sp + SIGNAL_SP)))
		return unwind_cut(unwind, ABI_UNWIND_CUT_READ);
	unwind->sp = registers[0];
	unwind->pc = registers[1];
	stack_top_find(unwind);
	/*
	 * Elsewhere than at a system call the row is in the file's table of all rows. As a frame,
	 * the address is told like a return address: one byte behind.
	 */
	bpf_probe_read_user(&code, sizeof(code), (void *)(unwind->pc - sizeof(code)));
	unwind->is_interrupted = !SIGNAL_GOES_ON(code);
	unwind->pc += unwind->is_interrupted;
	return 0;
}

/* Where the return address is, if the caller's frame pointer is at bp_at. */
static __always_inline __u64 return_at(__u64 cfa UNUSED, __u64 bp_at UNUSED)
{
	return RETURN_IS_PUSHED ? cfa - 8 : bp_at + 8;
}

/*
 * The caller's frame begins at cfa; the return address is at *pc_at, its rbp at *bp_at >= low (0:
 * unchanged). 0, -1.
 */
static __always_inline int frame_leave(struct unwind_state *unwind, __u64 cfa, __u64 pc_at,
				       __u64 bp_at, __u64 low)
{
	__u64 real;

	if (cfa & 7 || cfa <= unwind->sp || cfa > unwind->top ||
	    (bp_at && (bp_at < low || bp_at >= cfa)) ||
	    (!RETURN_IS_PUSHED && (pc_at < unwind->sp || pc_at >= cfa)))
		return unwind_cut(unwind, ABI_UNWIND_CUT_BOUNDS);
	if (stack_word(unwind, pc_at, &unwind->pc))
		return unwind_cut(unwind, ABI_UNWIND_CUT_READ);
	unwind->pc = CODE_ADDRESS(unwind->pc);
	if (bp_at && stack_word(unwind, bp_at, &unwind->bp))
		return unwind_cut(unwind, ABI_UNWIND_CUT_READ);
	unwind->sp = cfa;
	if (unwind->trampoline && unwind->pc == unwind->trampoline) {
		real = return_find(cfa - RETURN_BYTES);
		if (!real)
			return unwind_cut(unwind, ABI_UNWIND_CUT_RETURN);
		unwind->pc = real;
	}
	/* Who made the stack ended it so. */
	return unwind->pc ? 0 : unwind_cut(unwind, UNWIND_WHOLE);
}

/* A step by the frame pointer. 0, -1. */
static __noinline int frame_pointer_step(struct unwind_state *unwind)
{
	__u64 frame = unwind->bp;

	if (is_at_base(unwind))
		return unwind_cut(unwind, UNWIND_WHOLE);
	if (frame & 7 || frame < unwind->sp || frame - unwind->sp > STACK_BYTES_MAX)
		return unwind_cut(unwind, ABI_UNWIND_CUT_FRAME);
	unwind->is_guess = 1;
	return frame_leave(unwind, frame + 16, frame + 8, frame, unwind->sp);
}

/* A step by unwind->rule. 0, -1. */
static __noinline int rule_step(struct unwind_state *unwind)
{
	struct abi_unwind_rule rule = unwind->rule;
	__u64 from, cfa, at, low = unwind->sp;

	from = rule.kind == ABI_UNWIND_RSP || rule.kind == ABI_UNWIND_AT_RSP ? unwind->sp
									     : unwind->bp;
	if (rule.kind == ABI_UNWIND_RSP || rule.kind == ABI_UNWIND_RBP) {
		cfa = from + rule.cfa;
	} else if (rule.kind == ABI_UNWIND_AT_RSP || rule.kind == ABI_UNWIND_AT_RBP) {
		at = from + (__s16)rule.cfa;
		if (at < unwind->sp || at >= unwind->top ||
		    bpf_probe_read_user(&cfa, sizeof(cfa), (void *)at))
			return unwind_cut(unwind, ABI_UNWIND_CUT_READ);
		cfa += (__s16)(rule.cfa >> 16);
	} else if (rule.kind == ABI_UNWIND_STUB) {
		at = (unwind->pc - 1) & (STUB_BYTES - 1);
		cfa = unwind->sp + (at >= (__u32)rule.cfa ? 16 : 8);
	} else {
		return unwind_cut(unwind,
				  rule.kind == ABI_UNWIND_END ? UNWIND_WHOLE : ABI_UNWIND_CUT_RULE);
	}
	at = rule.rbp ? cfa + rule.rbp * 8 : 0;
	if (rule.flags & ABI_UNWIND_RETURN_ALONE)
		return frame_leave(unwind, cfa, at, 0, low);
	if (rule.flags & ABI_UNWIND_RBP_AT_RBP)
		at = unwind->bp;
	/* An epilogue has taken rbp off the stack, and its row need not say so: it is there yet. */
	if (unwind->is_interrupted)
		low -= RED_ZONE;
	unwind->is_guess = unwind->is_interrupted;
	unwind->is_interrupted = 0;
	return frame_leave(unwind, cfa, return_at(cfa, at), at, low);
}

/* A step that is not by a rule, or not by a plain one. 0, -1. */
__noinline int special_step(struct unwind_state *unwind)
{
	if (!unwind)
		return -1;
	if (unwind->is_interrupted && (unwind->found || !SIGNAL_IN_ROWS))
		return unwind_cut(unwind, ABI_UNWIND_CUT_SIGNAL);
	if (unwind->found == UNWIND_BY_FRAME)
		return frame_pointer_step(unwind);
	if (unwind->found)
		return unwind_cut(unwind, unwind->found - 1);
	if (unwind->rule.kind == ABI_UNWIND_SIGNAL)
		return signal_step(unwind);
	return rule_step(unwind);
}

/*
 * Goes to the caller of the frame at unwind->pc. 0; -1: the stack ends here, unwind->end says why.
 * The frame at the new pc may turn out to be none: unwind_is_frame(). Inline for nearly all frames:
 * calls would take as long as the rest.
 */
static __always_inline int unwind_step(struct unwind_state *unwind)
{
	struct abi_unwind_rule rule = unwind->rule;
	__u64 cfa, bp_at;

	/* Where no call pushes, a frame record may be anywhere in its frame: sp is not known. */
	if (!RETURN_IS_PUSHED && unwind->is_guess &&
	    (rule.kind == ABI_UNWIND_RSP || rule.kind == ABI_UNWIND_AT_RSP))
		return unwind_cut(unwind, ABI_UNWIND_CUT_FRAME);
	unwind->is_guess = 0;
	if (unwind->is_interrupted | unwind->found | rule.flags ||
	    rule.kind - ABI_UNWIND_RSP > ABI_UNWIND_RBP - ABI_UNWIND_RSP)
		return special_step(unwind);
	cfa = (rule.kind == ABI_UNWIND_RSP ? unwind->sp : unwind->bp) + rule.cfa;
	bp_at = rule.rbp ? cfa + rule.rbp * 8 : 0;
	return frame_leave(unwind, cfa, return_at(cfa, bp_at), bp_at, unwind->sp);
}

/* As unwind_is_frame(), for code that is not in the cache. */
static __noinline int frame_look_up(struct unwind_state *unwind)
{
	unwind->found = rule_find(unwind);
	if (unwind->found == ABI_UNWIND_CUT_CODE + 1) {
		unwind->end = ABI_UNWIND_CUT_CODE;
		return 0;
	}
	if (unwind->found && unwind->is_guess && !is_call_before(unwind->pc)) {
		unwind->end = ABI_UNWIND_CUT_FRAME;
		return 0;
	}
	if (unwind->found == ABI_UNWIND_CUT_ROW + 1 && !unwind->is_interrupted &&
	    is_at_base(unwind)) {
		unwind->found = 0;
		unwind->rule.kind = ABI_UNWIND_END;
	}
	return 1;
}

/*
 * Looks the code at unwind->pc up. 1: it is a frame of the program; 0: it is none, and
 * unwind->end says why.
 */
static __always_inline int unwind_is_frame(struct unwind_state *unwind)
{
	const struct unwind_known *known = known_at(unwind);

	if (known->tag != known_tag(unwind))
		return frame_look_up(unwind);
	unwind->rule = known->rule;
	unwind->found = 0;
	return 1;
}

/* Begins a walk with the return address pc, at which the registers are sp and bp. */
static __always_inline void unwind_begin(struct unwind_state *unwind, struct thread_state *thread,
					 __u64 pc, __u64 sp, __u64 bp)
{
	unwind->pc = pc;
	unwind->sp = sp;
	unwind->bp = bp;
	unwind->words = 0;
	unwind->is_guess = 0;
	unwind->is_interrupted = 0;
	unwind->end = UNWIND_WHOLE;
	unwind->trampoline = trampoline_find(thread);
	process_note(unwind);
	stack_top_find(unwind);
	rules_validate(unwind);
}
