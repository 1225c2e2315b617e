/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The memory that a target maps, seen at libc's functions for it: malloc and pymalloc's arenas go through them. So only
 * the target pays. (The tracepoints of system calls make every call of every process slower; programs at the kernel's
 * own functions need a kernel that lets them, and run for every process, too.)
 *
 * A range is reported before its address can be handed out again, and a new one before the program can use it. Only an
 * mremap is told of when it is done: it may fail, and what it moved may have been a file.
 */
#ifndef TRACER_BPF_MEMORY_H
#define TRACER_BPF_MEMORY_H

#include "python_stack.h"

#define MAP_FIXED      0x10
#define MAP_ANONYMOUS  0x20
#define PROT_READWRITE 3
#define PAGE_MASK      4095ull
#define IS_ERROR(result) ((result) >= -4095ull)

static __always_inline __u64 whole_pages(__u64 bytes)
{
	return (bytes + PAGE_MASK) & ~PAGE_MASK;
}

static __always_inline __u64 break_current(void)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();

	return whole_pages(BPF_CORE_READ(task, mm, brk));
}

static __always_inline void map_output(struct thread_state *thread, struct abi_target *target,
				       struct event_map *record, __u32 type)
{
	if (!record->bytes)
		return;
	if (type != EVENT_UNMAP)
		record->stack_id = stack_id_current(thread, target, 0);
	header_fill(&record->header, type, sizeof(*record));
	record_output(record, sizeof(*record), LOSS_MAP);
}

/* 0: the return is wanted; 1: it is not. */
static __always_inline int mapping_begin(struct pt_regs *regs, void *context)
{
	struct abi_target *target = target_current();
	struct event_map record = {0};
	struct thread_state *thread;
	__u64 cookie;

	if (!target)
		return 1;
	thread = thread_current();
	if (!thread)
		return 1;
	cookie = bpf_get_attach_cookie(context);
	thread->mapping_op = cookie & 0xff;
	for (int i = 0; i < 3; i++)
		thread->mapping[i] = argument(regs, cookie, i);
	if (thread->mapping_op == ABI_OP_MUNMAP) {
		record.address = thread->mapping[0];
		record.bytes = whole_pages(thread->mapping[1]);
		/* Of what makes it fail, this is what programs do. */
		if (!(record.address & PAGE_MASK))
			map_output(thread, target, &record, EVENT_UNMAP);
		return 1;
	}
	if (thread->mapping_op == ABI_OP_BRK)
		thread->mapping[0] = break_current();
	thread->mapping_sp = regs->rsp;
	return 0;
}

static __always_inline void mapping_end(struct pt_regs *regs)
{
	struct abi_target *target = target_current();
	struct thread_state *thread = target ? thread_current() : NULL;
	__u64 result = regs->rax, now;
	struct event_map record = {0};

	/* The return has popped the return address. */
	if (!thread || !thread->mapping_sp || regs->rsp != thread->mapping_sp + 8)
		return;
	thread->mapping_sp = 0;
	if (IS_ERROR(result))
		return;
	switch (thread->mapping_op) {
	case ABI_OP_MMAP:
		record.address = result;
		record.bytes = whole_pages(thread->mapping[0]);
		record.protection = (__u32)thread->mapping[1];
		if (thread->mapping[2] & MAP_ANONYMOUS)
			map_output(thread, target, &record, EVENT_MAP);
		else if (thread->mapping[2] & MAP_FIXED)
			map_output(thread, target, &record, EVENT_UNMAP);
		break;
	case ABI_OP_MREMAP:
		record.address = result;
		record.old_address = thread->mapping[0];
		record.old_bytes = whole_pages(thread->mapping[1]);
		record.bytes = whole_pages(thread->mapping[2]);
		map_output(thread, target, &record, EVENT_REMAP);
		break;
	case ABI_OP_MPROTECT:
		record.address = thread->mapping[0];
		record.bytes = whole_pages(thread->mapping[1]);
		record.protection = (__u32)thread->mapping[2];
		map_output(thread, target, &record, EVENT_PROTECT);
		break;
	case ABI_OP_BRK:
		now = break_current();
		record.protection = PROT_READWRITE;
		record.address = now > thread->mapping[0] ? thread->mapping[0] : now;
		record.bytes = now > thread->mapping[0] ? now - thread->mapping[0] : thread->mapping[0] - now;
		map_output(thread, target, &record, now > thread->mapping[0] ? EVENT_MAP : EVENT_UNMAP);
		break;
	}
}

/* As request_session and its kin. */
SEC("uprobe")
int mapping_session(struct pt_regs *regs)
{
	if (!bpf_session_is_return())
		return mapping_begin(regs, regs);
	mapping_end(regs);
	return 0;
}

SEC("uprobe")
int mapping_entry(struct pt_regs *regs)
{
	mapping_begin(regs, regs);
	return 0;
}

SEC("uprobe")
int mapping_return(struct pt_regs *regs)
{
	mapping_end(regs);
	return 0;
}

#endif
