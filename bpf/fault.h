/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Page faults, which make memory resident. The program runs at the kernel's software event, after a
 * fault was handled: faults of the kernel's own copies to and from the process are among them. Not
 * among them are pages that the kernel fills without a fault of the process (MAP_POPULATE, mlock(),
 * another process's writes): user space finds them in pagemap.
 *
 * The event is one of all processes, on each processor. It runs with preemption disabled.
 */
#pragma once

#include <linux/bpf_perf_event.h>

#include "block.h"
#include "native_stack.h"

#define LIBC_FRAMES_MAX 32 /* of libc, from where it touches memory up to who has called it */

static __always_inline int in_libc(const struct thread_state *thread, __u64 pc)
{
	return pc - 1 - thread->target.libc_code.start < thread->target.libc_code.bytes;
}

/*
 * Sets thread->native_walk to where the running thread was in the program. .caller is one byte
 * behind the instruction that was interrupted, or, in a system call, the address after it.
 */
__noinline int fault_place(struct thread_state *thread)
{
	struct pt_regs *regs = (void *)bpf_task_pt_regs((void *)bpf_get_current_task_btf());
	struct native_walk *walk;
	__u16 code = 0;

	if (!thread)
		return 0;
	walk = &thread->native_walk;
	walk->caller = walk->below = walk->frame = 0;
	bpf_probe_read_kernel(&walk->caller, sizeof(walk->caller), &REG_PC(regs));
	bpf_probe_read_kernel(&walk->below, sizeof(walk->below), &REG_SP(regs));
	bpf_probe_read_kernel(&walk->frame, sizeof(walk->frame), &REG_FRAME(regs));
	bpf_probe_read_user(&code, sizeof(code), (void *)(walk->caller - sizeof(code)));
	walk->below -= RETURN_BYTES;
	walk->is_interrupted = !SIGNAL_GOES_ON(code);
	walk->caller += walk->is_interrupted;
	return 0;
}

struct libc_walk {
	struct thread_state *thread;
	struct unwind_state *unwind;
	__u32 failed;
};

static __noinline long libc_leave_step(__u32 turn UNUSED, void *context)
{
	struct libc_walk *walk = context;
	struct unwind_state *unwind = walk->unwind;

	if (!in_libc(walk->thread, unwind->pc))
		return 1;
	walk->failed = unwind_step(unwind) || !unwind_is_frame(unwind);
	return walk->failed;
}

/*
 * If the walk begins in libc (memset, read), lets it begin with who has called libc. A stack of
 * which nothing else is known begins as it is.
 */
__noinline int libc_leave(struct thread_state *thread)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct libc_walk libc = {.thread = thread};
	struct native_walk *walk;

	if (!has_loop || !thread || !in_libc(thread, thread->native_walk.caller))
		return 0;
	libc.unwind = unwinds_get(task);
	if (!libc.unwind || !unwind_start(thread, libc.unwind))
		return 0;
	bpf_loop(LIBC_FRAMES_MAX, libc_leave_step, &libc, 0);
	if (libc.failed || in_libc(thread, libc.unwind->pc))
		return 0;
	walk = &thread->native_walk;
	walk->caller = libc.unwind->pc;
	walk->below = libc.unwind->sp - RETURN_BYTES;
	walk->frame = libc.unwind->bp;
	walk->is_interrupted = 0;
	return 0;
}

static __always_inline void fault_output(struct thread_state *thread)
{
	struct event_fault *record = block_reserve(thread, sizeof(*record));

	if (!record) {
		loss_add(LOSS_ALLOC, 1);
		loss_add(LOSS_ALLOC_BYTES, thread->block.bytes);
		return;
	}
	header_fill_block(thread, &record->header, EVENT_FAULT, sizeof(*record));
	record->address = thread->block.address;
	record->bytes = thread->block.bytes;
	record->stack_id = thread->block.stack_id;
	bpf_ringbuf_submit(record, RING_FLAGS);
}

/*
 * What the kernel's event takes, before the program runs: a fault counts in abi_target.hits with
 * its nanoseconds, since few of a sample's take as long as the others.
 */
__u64 fault_event_ns;

/* The fault at thread->block.address, of a target, is reported if it is in the sample. */
static __always_inline void fault_trace(struct thread_state *thread)
{
	if (sample_is_taken(&thread->target) &&
	    !sample_takes_page(thread->block.address, page_bytes, thread->target.page_share))
		return;
	thread->block.bytes = page_bytes;
	fault_place(thread);
	if (*(volatile __u32 *)&has_tables)
		libc_leave(thread);
	thread->block.stack_id = native_stack_id(thread);
	thread->native_walk.is_interrupted = 0;
	fault_output(thread);
}

SEC("perf_event")
int page_fault(struct bpf_perf_event_data *context)
{
	struct abi_target *target = target_current();
	struct thread_state *thread;
	__u64 begun_ns;

	if (!has_native || !target || !(target->layers & 1u << EVENT_LAYER_PAGES))
		return 0;
	begun_ns = bpf_ktime_get_ns();
	thread = thread_uncounted();
	if (!thread)
		return 0;
	thread->block.address = context->addr & -page_bytes;
	fault_trace(thread);
	target->hits += fault_event_ns + bpf_ktime_get_ns() - begun_ns;
	return 0;
}
