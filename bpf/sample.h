/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Sampling (abi/sample.h): which blocks are traced, decided before a stack is walked, and which
 * frees are reported.
 *
 * The sampled blocks are kept in a map, so that no record is emitted when any other block is freed.
 * In census mode frees are not probed: an entry stays until its address is reused. If the new block
 * is not sampled, a FREE is emitted for the old one. When the map is full, every free is reported.
 */
#pragma once

#include "state.h"

#include "abi/sample.h"

/* 1: some target is sampled. If 0, the verifier removes this code. */
const volatile __u32 sampling;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 18);
	__type(key, struct sampled_key);
	__type(value, __u64);
} sampled SEC(".maps");

static __always_inline int sample_is_taken(struct abi_target *target)
{
	return sampling && target->sample_bytes;
}

static __always_inline struct sampled_key sampled_key(struct abi_target *target, __u64 address,
						      __u32 domain, __u32 api)
{
	return (struct sampled_key){
		.address = address,
		.space_id = target->space_id,
		.domain =
			domain | ((api & EVENT_API_MASK) == EVENT_API_NATIVE ? SAMPLED_NATIVE : 0),
	};
}

/* Draws the number of bytes up to the next mark. */
__noinline __u64 gap_draw(__u64 mean)
{
	return sample_gap(bpf_get_prandom_u32(), mean);
}

/* Is the block sampled? Drawing a new gap at any time is valid, since gaps have no memory. */
static __always_inline int sample_draw(struct thread_state *thread, __u64 bytes)
{
	__u64 mean = thread->target.sample_bytes;

	if (thread->sample_bytes != mean) {
		thread->sample_bytes = mean;
		thread->sample_gap = gap_draw(mean);
	}
	if (!sample_covers(&thread->sample_gap, bytes))
		return 0;
	thread->sample_gap = gap_draw(mean);
	return 1;
}

static __always_inline void sample_add(struct abi_target *target, __u64 address, __u32 domain,
				       __u32 api)
{
	struct sampled_key key = sampled_key(target, address, domain, api);
	__u64 value = 1;

	if (sample_is_taken(target) && bpf_map_update_elem(&sampled, &key, &value, BPF_ANY) &&
	    !target->sample_overflow) {
		/* All threads of the process must know before the block can be freed. */
		target->sample_overflow = 1;
		target = target_current();
		if (target)
			target->sample_overflow = 1;
		__sync_fetch_and_add(&targets_version, 1);
	}
}

/* Must this block's free be reported? Removes it from the sample. */
static __always_inline int sample_end(struct abi_target *target, __u64 address, __u32 domain,
				      __u32 api)
{
	struct sampled_key key = sampled_key(target, address, domain, api);

	if (!sample_is_taken(target))
		return 1;
	/* A lookup takes no lock, a deletion does. */
	if (!bpf_map_lookup_elem(&sampled, &key) || bpf_map_delete_elem(&sampled, &key))
		return target->sample_overflow;
	return 1;
}

/*
 * Is an object at this address in a sampled block? It may follow a header of 16 or 32 bytes.
 */
static __always_inline int sample_has_object(struct abi_target *target, __u64 address)
{
	struct sampled_key key = sampled_key(target, address, 0, EVENT_API_OBJ);

	if (!sample_is_taken(target) || target->sample_overflow ||
	    bpf_map_lookup_elem(&sampled, &key))
		return 1;
	key.address = address - 16;
	if (bpf_map_lookup_elem(&sampled, &key))
		return 1;
	key.address = address - 32;
	return bpf_map_lookup_elem(&sampled, &key) != NULL;
}
