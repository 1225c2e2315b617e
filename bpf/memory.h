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
 *
 * A private mapping of a file is code or data of a program, which the dynamic linker maps: it is
 * not reported. A shared one is shared memory, or a file that the program reads as memory.
 */
#pragma once

#include "frame.h"
#include "native.h"

#define MAP_TYPE         0x0f
#define MAP_PRIVATE      0x02
#define MAP_FIXED        0x10
#define MAP_ANONYMOUS    0x20
#define PROT_READWRITE   3
#define IS_ERROR(result) ((result) >= -4095ull)

static __always_inline __u64 whole_pages(__u64 bytes)
{
	return (bytes + page_bytes - 1) & -page_bytes;
}

/*
 * Sets thread->native_walk to where the stack of a system call begins in a process without Python;
 * .caller 0: it is not known. If malloc makes the system call, the stack begins with malloc's
 * caller, otherwise with the caller of libc's function. .below is the stack pointer and .frame the
 * frame pointer in that function, whose frame the cookie tells.
 */
__noinline int mapping_caller(struct thread_state *thread, __u64 cookie, __u64 link)
{
	struct abi_frame frame = abi_frame_of_cookie(cookie);
	struct native_walk *walk;

	if (!thread)
		return 0;
	walk = &thread->native_walk;
	walk->caller = 0;
	if (thread->native.sp > walk->below) {
		walk->frame = thread->native.frame;
		walk->below = thread->native.sp;
		walk->caller = thread->native.from;
		return 0;
	}
	return function_leave(thread, &frame, walk->below, link);
}

/*
 * Reports thread->map as a record of this type; thread->native_walk is as for mapping_caller(). 1:
 * it waits for its stack, and the walk is to be begun.
 */
__noinline int map_output(struct thread_state *thread, __u32 type, __u64 cookie, __u64 link)
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
	thread->native_walk.caller = 0;
	if (!thread->target.runtime)
		mapping_caller(thread, cookie, link);
	thread->walked = WALKED_MAP;
	return 1;
}

/* Reports the range between the old and the new program break. */
static __always_inline int break_output(struct thread_state *thread, struct abi_target *target,
					__u64 now, __u64 cookie, __u64 link)
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
	return map_output(thread, now > before ? EVENT_MAP : EVENT_UNMAP, cookie, link);
}

/*
 * Where the result of a system call replaces its first argument, that is noted at the entry of
 * libc's function, with the stack pointer there. A signal's handler may make such a call before the
 * noted one is made, which is then lost.
 */
static __always_inline void first_argument_note(struct pt_regs *regs, struct thread_state *thread,
						__u64 cookie)
{
	thread->map_address = argument(regs, cookie, 0);
	thread->map_sp = REG_SP(regs);
}

/* 1: it is known, and is thread->map.address. */
static __always_inline int first_argument(struct thread_state *thread, __u64 cookie)
{
	struct abi_frame frame = abi_frame_of_cookie(cookie);
	struct native_walk *walk = &thread->native_walk;
	__u64 base = frame.base == ABI_FRAME_POINTER ? walk->frame : walk->below;

	if (!CALL_1_IS_LOST)
		return 1;
	thread->map.address = thread->map_address;
	if (thread->map_sp != base + frame.end_at - RETURN_BYTES) {
		loss_add(LOSS_MAP, 1);
		return 0;
	}
	thread->map_sp = 0;
	return 1;
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
	__u64 cookie = bpf_get_attach_cookie(regs), op = cookie & 0xff, result = REG_RESULT(regs);
	__u64 link = REG_LINK(regs);
	struct event_map *record;
	int waits = 0;

	if (!thread)
		return 0;
	if (CALL_1_IS_LOST && cookie & ABI_COOKIE_BEFORE) {
		first_argument_note(regs, thread, cookie);
		return 0;
	}
	if (op != ABI_OP_MUNMAP && IS_ERROR(result))
		return 0;
	record = &thread->map;
	*record = (struct event_map){0};
	thread->native_walk.below = REG_SP(regs);
	thread->native_walk.frame = REG_FRAME(regs);
	record->address = REG_CALL_1(regs);
	record->bytes = whole_pages(REG_CALL_2(regs));
	switch (op) {
	case ABI_OP_MUNMAP:
		/* Of the errors that make munmap fail, this is the one that programs cause. */
		if (!(record->address & (page_bytes - 1)))
			waits = map_output(thread, EVENT_UNMAP, cookie, link);
		break;
	case ABI_OP_MMAP:
		record->address = result;
		record->protection = (__u32)REG_CALL_3(regs);
		if (REG_CALL_4(regs) & MAP_ANONYMOUS ||
		    (REG_CALL_4(regs) & MAP_TYPE) != MAP_PRIVATE)
			waits = map_output(thread, EVENT_MAP, cookie, link);
		else if (REG_CALL_4(regs) & MAP_FIXED)
			waits = map_output(thread, EVENT_UNMAP, cookie, link);
		break;
	case ABI_OP_MREMAP:
		if (!first_argument(thread, cookie))
			break;
		record->old_address = record->address;
		record->old_bytes = record->bytes;
		record->address = result;
		record->bytes = whole_pages(REG_CALL_3(regs));
		waits = map_output(thread, EVENT_REMAP, cookie, link);
		break;
	case ABI_OP_MPROTECT:
		if (!first_argument(thread, cookie))
			break;
		record->protection = (__u32)REG_CALL_3(regs);
		waits = map_output(thread, EVENT_PROTECT, cookie, link);
		break;
	case ABI_OP_BRK:
		waits = break_output(thread, target, result, cookie, link);
		break;
	}
	if (waits)
		walk_begin(regs, &walks);
	return 0;
}
