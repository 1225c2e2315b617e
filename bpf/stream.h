/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The output of every BPF object: a ring buffer, and counters of the records that did not fit. */
#pragma once

#include "kernel.h"

#include "abi/events.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 << 20);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOSS_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} loss SEC(".maps");

static __always_inline void loss_add(__u32 kind, __u64 amount)
{
	__u64 *count = bpf_map_lookup_elem(&loss, &kind);

	/* Atomic although per-CPU: another program at a uprobe may preempt this one. */
	if (count)
		__sync_fetch_and_add(count, amount);
}

struct thread_ids {
	__u32 tgid, tid;
};

static __always_inline struct thread_ids thread_ids(void)
{
	__u64 id = bpf_get_current_pid_tgid();

	return (struct thread_ids){.tgid = id >> 32, .tid = (__u32)id};
}

static __always_inline void header_fill(struct event_header *header, __u32 type, __u32 size)
{
	struct thread_ids ids = thread_ids();

	header->type = type;
	header->size = size;
	header->time_ns = bpf_ktime_get_ns();
	header->tgid = ids.tgid;
	header->tid = ids.tid;
}

/* User space polls: a wake-up per record would cost the target more than the record. */
#define RING_FLAGS BPF_RB_NO_WAKEUP

/* 0 or -1: the ring buffer is full, counted under kind. */
static __always_inline int record_output(void *record, __u32 size, __u32 kind)
{
	if (!bpf_ringbuf_output(&events, record, size, RING_FLAGS))
		return 0;
	loss_add(kind, 1);
	return -1;
}

__noinline int process_output(__u32 type, __u32 tgid, __u32 other, __u32 code, __u32 space_id)
{
	struct event_process record = {.other = other, .code = code, .space_id = space_id};

	header_fill(&record.header, type, sizeof(record));
	record.header.tgid = tgid;
	return record_output(&record, sizeof(record), LOSS_PROCESS);
}
