/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Records of blocks: EVENT_ALLOC and EVENT_FREE and their kin, less those outside the sample. */
#pragma once

#include "python/label.h"
#include "python/stack.h"
#include "python/task.h"
#include "sample.h"

static __always_inline void end_output(struct thread_state *thread, __u32 type, __u64 address,
				       __u32 domain, __u32 api)
{
	struct event_free *record = block_reserve(thread, sizeof(*record));

	if (!record) {
		loss_add(type == EVENT_FREE ? LOSS_FREE : LOSS_REALLOC, 1);
		return;
	}
	header_fill_block(thread, &record->header, type, sizeof(*record));
	record->address = address;
	record->domain = domain;
	record->api = api;
	bpf_ringbuf_submit(record, RING_FLAGS);
}

/* Emits EVENT_FREE or EVENT_REALLOC. Returns 0 if it is not needed: the block is not sampled. */
__noinline int free_output(struct thread_state *thread, __u32 type, __u64 address, __u32 domain,
			   __u32 api)
{
	if (!thread || !sample_end(&thread->target, address, domain, api))
		return 0;
	end_output(thread, type, address, domain, api);
	return 1;
}

__noinline int realloc_fail_output(struct thread_state *thread, __u64 address, __u32 api)
{
	if (!thread)
		return 0;
	sample_add(&thread->target, address, 0, api);
	end_output(thread, EVENT_REALLOC_FAIL, address, 0, api);
	return 0;
}

/*
 * Is thread->block, of a sampled process, in the sample? If not, an earlier block at its address
 * may have been, and is reported as freed.
 */
__noinline int block_sample(struct thread_state *thread)
{
	const struct block *block;

	if (!thread)
		return 0;
	block = &thread->block;
	if (!sample_draw(thread, block->bytes)) {
		free_output(thread, EVENT_FREE, block->address, block->domain, block->api);
		return 0;
	}
	sample_add(&thread->target, block->address, block->domain, block->api);
	return 1;
}

static __always_inline int block_is_wanted(struct thread_state *thread)
{
	return !sample_is_taken(&thread->target) || block_sample(thread);
}

/*
 * Reserves a record that allocates thread->block, after one of its label, if that is another one
 * than before. NULL: the ring buffer is full.
 */
static __always_inline void *alloc_reserve(struct thread_state *thread, const __u32 size)
{
	int failed = 0;

	if (label_is(ABI_LABEL_TASK)) {
		failed = task_note(thread);
	} else if (has_labels) {
		int stays = allocator_stays(thread);

		if (!stays || !label_stays(thread))
			failed = label_note(thread, stays);
	}
	return failed ? NULL : block_reserve(thread, size);
}

/* Emits thread->block. A record that does not fit into the ring buffer is counted. */
static __always_inline void block_output(struct thread_state *thread)
{
	struct event_alloc *record = alloc_reserve(thread, sizeof(*record));
	const struct block *block = &thread->block;

	if (!record) {
		loss_add(block->type == EVENT_ALLOC   ? LOSS_ALLOC
			 : block->type == EVENT_REUSE ? LOSS_REUSE
						      : LOSS_REALLOC,
			 1);
		loss_add(LOSS_ALLOC_BYTES, block->bytes);
		return;
	}
	header_fill_block(thread, &record->header, block->type, sizeof(*record));
	record->address = block->address;
	record->bytes = block->bytes;
	record->stack_id = block->stack_id;
	record->domain = block->domain;
	record->api = block->api;
	bpf_ringbuf_submit(record, RING_FLAGS);
}

/* Reports thread->block, a block of Python's allocators, which is complete but for its stack. */
__noinline int block_trace(struct thread_state *thread)
{
	if (!thread)
		return 0;
	if (thread->block.type != EVENT_REUSE) {
		reuse_count_add(thread->block.address, thread->block.bytes);
		if (!block_is_wanted(thread))
			return 0;
	}
	thread->block.stack_id = stack_id_current(thread, gil_is_held(&thread->block));
	block_output(thread);
	return 0;
}

static __always_inline void alloc_output(struct thread_state *thread, __u32 type, __u64 address,
					 __u64 bytes, __u32 domain, __u32 api)
{
	thread->block = (struct block){
		.type = type, .address = address, .bytes = bytes, .domain = domain, .api = api};
	block_trace(thread);
}
