/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The memory that a target maps, traced by probes at libc's system calls for it, which malloc and
 * pymalloc's arenas use. So only the target is slowed, by one trap a call. (Tracepoints of system
 * calls slow every system call of every process. Programs at the kernel's own functions need a
 * kernel that permits them, and also run for every process.)
 *
 * An unmapped range is reported before its address can be handed out again, and a new one before
 * the program can use it. An mremap is reported after it is done: it may fail, and the range that
 * it moved may have been a file's.
 */
#ifndef TRACER_BPF_MEMORY_H
#define TRACER_BPF_MEMORY_H

#include "native.h"

#define MAP_FIXED        0x10
#define MAP_ANONYMOUS    0x20
#define PROT_READWRITE   3
#define PAGE_MASK        4095ull
#define IS_ERROR(result) ((result) >= -4095ull)

static __always_inline __u64 whole_pages(__u64 bytes)
{
	return (bytes + PAGE_MASK) & ~PAGE_MASK;
}

#define SAVED_WORDS 8 /* that libc's function may have pushed since its entry */

/*
 * The return address where the stack of a system call begins in a process without Python; 0: not
 * known. Sets thread->native_walk. If malloc makes the system call, the stack begins with malloc's
 * caller. Otherwise it begins with the caller of libc's function, whose return address is the first
 * word on the stack that follows a call: the words below it are saved registers.
 */
__noinline __u64 mapping_caller(struct thread_state *thread, __u64 sp, __u64 frame)
{
	__u64 caller = 0;
	int i;

	if (!thread)
		return 0;
	if (thread->native.sp > sp) {
		thread->native_walk.frame = thread->native.frame;
		thread->native_walk.below = thread->native.sp;
		return thread->native.from;
	}
	thread->native_walk.frame = frame;
	for (i = 0; i < SAVED_WORDS && !caller; i++) {
		thread->native_walk.below = sp + 8 * i;
		caller = user_u64(sp + 8 * i);
		if (!follows_call(thread, caller))
			caller = 0;
	}
	return caller;
}

/*
 * Reports thread->map as a record of this type; sp and frame are the stack and frame pointers at
 * the probe. 1: it waits for its stack, and the walk is to be begun.
 */
__noinline int map_output(struct thread_state *thread, __u32 type, __u64 sp, __u64 frame)
{
	struct event_map *record;

	if (!thread || !thread->map.bytes)
		return 0;
	record = &thread->map;
	header_fill(&record->header, type, sizeof(*record));
	if (type == EVENT_UNMAP) {
		record_output(record, sizeof(*record), LOSS_MAP);
		return 0;
	}
	thread->native_walk.caller = thread->target.runtime ? 0 : mapping_caller(thread, sp, frame);
	thread->walked = WALKED_MAP;
	return 1;
}

/* Reports the range between the old and the new program break. */
static __always_inline int break_output(struct pt_regs *regs, struct thread_state *thread,
					struct abi_target *target, __u64 now)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct event_map *record = &thread->map;
	__u64 before = target->program_break;

	/* Exact for a program traced from its start; else the first change may be misjudged. */
	if (!before)
		before = whole_pages(BPF_CORE_READ(task, mm, start_brk));
	now = whole_pages(now);
	target->program_break = now;
	record->protection = PROT_READWRITE;
	record->address = now > before ? before : now;
	record->bytes = now > before ? now - before : before - now;
	return map_output(thread, now > before ? EVENT_MAP : EVENT_UNMAP, REG_SP(regs),
			  REG_FRAME(regs));
}

/*
 * After the system call instruction, where its arguments are still in their registers; munmap:
 * before it. A failed call changes nothing.
 */
SEC("uprobe")
int mapping(struct pt_regs *regs)
{
	struct abi_target *target = target_current();
	struct thread_state *thread = target ? thread_in_layer(EVENT_LAYER_MMAP) : NULL;
	__u64 op = bpf_get_attach_cookie(regs) & 0xff, result = REG_RESULT(regs);
	struct event_map *record;
	int waits = 0;

	if (!thread || (op != ABI_OP_MUNMAP && IS_ERROR(result)))
		return 0;
	record = &thread->map;
	*record = (struct event_map){0};
	record->address = REG_CALL_1(regs);
	record->bytes = whole_pages(REG_CALL_2(regs));
	switch (op) {
	case ABI_OP_MUNMAP:
		/* Of the errors that make munmap fail, this is the one that programs cause. */
		if (!(record->address & PAGE_MASK))
			waits = map_output(thread, EVENT_UNMAP, REG_SP(regs), REG_FRAME(regs));
		break;
	case ABI_OP_MMAP:
		record->address = result;
		record->protection = (__u32)REG_CALL_3(regs);
		if (REG_CALL_4(regs) & MAP_ANONYMOUS)
			waits = map_output(thread, EVENT_MAP, REG_SP(regs), REG_FRAME(regs));
		else if (REG_CALL_4(regs) & MAP_FIXED)
			waits = map_output(thread, EVENT_UNMAP, REG_SP(regs), REG_FRAME(regs));
		break;
	case ABI_OP_MREMAP:
		record->old_address = record->address;
		record->old_bytes = record->bytes;
		record->address = result;
		record->bytes = whole_pages(REG_CALL_3(regs));
		waits = map_output(thread, EVENT_REMAP, REG_SP(regs), REG_FRAME(regs));
		break;
	case ABI_OP_MPROTECT:
		record->protection = (__u32)REG_CALL_3(regs);
		waits = map_output(thread, EVENT_PROTECT, REG_SP(regs), REG_FRAME(regs));
		break;
	case ABI_OP_BRK:
		waits = break_output(regs, thread, target, result);
		break;
	}
	if (waits)
		walk_begin(regs, &walks);
	return 0;
}

#endif
