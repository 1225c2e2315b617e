/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Processes that sample their native allocations themselves and report them by USDT probes
 * (abi/usdt.h). Each report has a record; nothing is kept here for a block.
 */
#pragma once

#include "frame.h"
#include "native.h"

#include "abi/usdt.h"

#define PRODUCER_FRAMES 8 /* of the producer's own code, at most */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ABI_USDT_MAX);
	__type(key, __u32);
	__type(value, struct abi_usdt);
} usdt SEC(".maps");

static __always_inline __u64 saved_register(struct pt_regs *regs, __u8 offset)
{
	__u64 value = 0;

	if (offset != ABI_USDT_NONE)
		bpf_probe_read_kernel(&value, sizeof(value), (void *)regs + offset);
	return value;
}

/* The value of an argument; 0 if it cannot be read. */
static __noinline __u64 usdt_argument(struct pt_regs *regs,
				      const struct abi_usdt_argument *argument)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	__u64 bytes = argument->bytes - 1, value = argument->value, shift;

	/* 1 to 8, in a way that the verifier recognises */
	asm volatile("%0 &= 7; %0 += 1" : "+r"(bytes));
	if (argument->kind == ABI_USDT_REGISTER)
		value = saved_register(regs, argument->base);
	if (argument->kind == ABI_USDT_MEMORY || argument->kind == ABI_USDT_THREAD) {
		value += saved_register(regs, argument->base) +
			 (saved_register(regs, argument->index) << (argument->scale & 3));
		if (argument->kind == ABI_USDT_THREAD)
			value += THREAD_POINTER(task);
		/* Bytes beyond those that are read are shifted out below. */
		if (bpf_probe_read_user(&value, bytes, (void *)value))
			return 0;
	}
	shift = 64 - 8 * bytes;
	value <<= shift;
	return argument->is_signed ? (__u64)((__s64)value >> (shift)) : value >> (shift);
}

/*
 * Goes to where the stack of a sampled block begins: to the code that has called the producer's. If
 * not all of the producer's frames can be walked, it begins with the last one. Where the first of
 * them has no frame pointer, the others are taken to have none either.
 */
static __noinline int producer_skip(struct thread_state *thread, const struct abi_usdt *spec,
				    __u64 sp, __u64 link)
{
	struct native_walk *walk;
	__u64 start, length;
	int i;

	if (!thread || !spec)
		return 0;
	walk = &thread->native_walk;
	start = walk->caller - 1 - spec->before;
	length = (__u64)spec->before + spec->behind;
	/* Without this step the walk begins with the probe itself. */
	function_leave(thread, &spec->frame, sp, link);
	/* Elsewhere a frame pointer does not tell the stack pointer of the caller. */
	for (i = 0; RETURN_IS_PUSHED && i < PRODUCER_FRAMES && walk->caller - start < length; i++)
		if (spec->frame.base != ABI_FRAME_POINTER || native_step(thread))
			break;
	return 0;
}

/* The process turns out to sample itself: from here on probes on malloc do nothing in it. */
__noinline int self_sampled_set(struct thread_state *thread)
{
	struct abi_target *target = target_current();

	if (!thread || !target)
		return -1;
	target->layers = (target->layers & ~(1u << EVENT_LAYER_NATIVE)) | ABI_LAYER_SELF_SAMPLED;
	thread->target.layers = target->layers;
	__sync_fetch_and_add(&targets_version, 1);
	return 0;
}

SEC("uprobe")
int provider(struct pt_regs *regs)
{
	struct thread_state *thread = thread_current();
	const struct abi_usdt *spec;
	__u64 cookie, address;
	__u32 index, layers;

	layers = thread ? thread->target.layers : 0;
	if (!(layers & (1u << EVENT_LAYER_NATIVE | ABI_LAYER_SELF_SAMPLED)))
		return 0;
	cookie = bpf_get_attach_cookie(regs);
	index = cookie >> 16 & 0xffff;
	spec = bpf_map_lookup_elem(&usdt, &index);
	if (!spec || (!(layers & ABI_LAYER_SELF_SAMPLED) && self_sampled_set(thread)))
		return 0;
	address = usdt_argument(regs, &spec->arguments[0]);
	if ((cookie & 0xff) == ABI_OP_SAMPLED_FREE) {
		if (address)
			end_output(thread, EVENT_FREE, address, 0, EVENT_API_NATIVE);
		return 0;
	}
	thread->block = (struct block){.address = address,
				       .bytes = usdt_argument(regs, &spec->arguments[1]),
				       .api = EVENT_API_NATIVE};
	thread->weighted_bytes = usdt_argument(regs, &spec->arguments[2]);
	thread->native_walk.frame = REG_FRAME(regs);
	thread->native_walk.below = REG_SP(regs) - 1;
	/* A return address is behind its call: as if the probe were one. */
	thread->native_walk.caller = REG_PC(regs) + 1;
	producer_skip(thread, spec, REG_SP(regs), REG_LINK(regs));
	thread->walked = WALKED_WEIGHTED;
	walk_begin(regs, &walks);
	return 0;
}
