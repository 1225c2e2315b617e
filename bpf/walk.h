/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The program that walks native stacks. The programs at probes of the native layer note the record
 * and where its stack begins, and continue here by a tail call: so the verifier checks the walk
 * once and not in each of them, which is most of the time that loading takes.
 *
 * Only programs of one attach type may continue with each other, so a session's has a walk of its
 * own. (The others must not be sessions: where a session's program does not run, because the
 * process is another one, the kernel replaces what it takes for a return address.)
 */
#pragma once

#include "block.h"
#include "native_stack.h"

/* What waits for its stack. */
enum walked {
	WALKED_BLOCK,    /* thread->block */
	WALKED_WEIGHTED, /* the same, which stands for thread->weighted_bytes */
	WALKED_MAP,      /* thread->map, whose header is filled in */
};

/* User space puts the program `walk`, or `walk_session`, into it. */
struct walk_programs {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
};
struct walk_programs walks SEC(".maps");
struct walk_programs session_walks SEC(".maps");

/* Continues with the program in the map `programs`: does not return. */
static __always_inline void walk_begin(struct pt_regs *regs, struct walk_programs *programs)
{
	bpf_tail_call(regs, programs, 0);
	loss_add(LOSS_ALLOC, 1);
}

/* Emits thread->block as a block that stands for thread->weighted_bytes. */
static __always_inline void weighted_output(struct thread_state *thread)
{
	struct event_alloc_weighted *record = alloc_reserve(thread, sizeof(*record));

	if (!record) {
		loss_add(LOSS_ALLOC, 1);
		loss_add(LOSS_ALLOC_BYTES, thread->weighted_bytes);
		return;
	}
	header_fill_block(thread, &record->header, EVENT_ALLOC_WEIGHTED, sizeof(*record));
	record->address = thread->block.address;
	record->bytes = thread->block.bytes;
	record->stack_id = thread->block.stack_id;
	record->weighted_bytes = thread->weighted_bytes;
	bpf_ringbuf_submit(record, RING_FLAGS);
}

/* The id of the stack at thread->native_walk; in Python, memory is mapped by Python's stack. */
static __always_inline __u64 walked_stack_id(struct thread_state *thread)
{
	if (thread->walked == WALKED_MAP && thread->target.runtime)
		return stack_id_python(thread);
	return has_native && thread->native_walk.caller ? native_stack_id(thread) : 0;
}

static __always_inline int walk_run(void)
{
	struct thread_state *thread = threads_find((void *)bpf_get_current_task_btf());
	__u64 id;

	if (!thread)
		return 0;
	id = walked_stack_id(thread);
	if (thread->walked == WALKED_MAP) {
		thread->map.stack_id = id;
		record_output(&thread->map, sizeof(thread->map), LOSS_MAP);
		return 0;
	}
	thread->block.stack_id = id;
	if (thread->walked == WALKED_WEIGHTED)
		weighted_output(thread);
	else
		block_output(thread);
	return 0;
}

SEC("uprobe")
int walk(struct pt_regs *regs UNUSED)
{
	return walk_run();
}

SEC("uprobe")
int walk_session(struct pt_regs *regs UNUSED)
{
	return walk_run();
}
