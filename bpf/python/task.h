/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The asyncio task that the running thread runs. A task that has ended is freed, and the next one
 * is often at its address, with a name where the old one's was. So a task is known by its name as
 * it is now; the thread runs the task, so both live. EVENT_TASK is sent when it is another one than
 * at the thread's allocation before. task_note() says when the name is read anew.
 */
#pragma once

#include "python/code.h"
#include "python/thread.h"

#define LONG_DIGITS 3  /* shift of the number of digits in a PyLongObject's lv_tag (3.12+) */
#define DIGIT_BITS  30 /* of each, an unsigned int */

_Static_assert(EVENT_TASK_BYTES <= 8 * CONTENT_WORDS, "it is read into thread_state.content");

/* The N of "Task-N", a positive int at this address; 0: it is none. */
static __always_inline __u64 task_number(const struct abi_offsets *offsets, __u64 name)
{
	__u64 at = name + offsets->object_type + 8, digits = user_u64(at + 8);
	__u64 count = user_u64(at) >> LONG_DIGITS;

	if (count != 1 && count != 2)
		return 0;
	return (__u32)digits | (count == 2 ? digits >> 32 << DIGIT_BITS : 0);
}

/*
 * Reads a task's name into thread->task, and its text into thread->content. Returns an id of the
 * name, which is not 0.
 */
__noinline __u64 task_name_read(struct thread_state *thread, __u64 name)
{
	const struct abi_target *target;
	struct task_name *task;
	__u64 type, data, bytes, id = 0;

	if (!thread)
		return 1;
	target = &thread->target;
	task = &thread->task;
	*task = (struct task_name){.how = EVENT_TASK_UNKNOWN};
	type = user_u64(name + target->offsets.object_type);
	if (type && type == target->long_type) {
		task->number = task_number(&target->offsets, name);
		if (task->number)
			task->how = EVENT_TASK_NUMBERED;
		id = task->number;
	} else if (type && type == target->unicode_type) {
		bytes = text_find(&target->offsets, name, &data, &task->kind);
		task->bytes = bytes;
		id = content_hash(thread, data,
				  bytes < EVENT_TASK_BYTES ? bytes : EVENT_TASK_BYTES);
		if (id)
			task->how = EVENT_TASK_NAMED;
	}
	id = hash_word(hash_word(hash_start(task->how), id), task->bytes);
	return id ? id : 1;
}

/* Emits EVENT_TASK with so many bytes of a name. 0; -1: the ring buffer is full. */
static __always_inline int task_send(struct thread_state *thread, const __u32 name_bytes)
{
	struct event_task *record = block_reserve(thread, EVENT_TASK_MIN + name_bytes);

	if (!record)
		return -1;
	header_fill_block(thread, &record->header, EVENT_TASK, EVENT_TASK_MIN + name_bytes);
	record->number = thread->task.number;
	record->bytes = thread->task.bytes;
	record->how = thread->task.how;
	record->kind = thread->task.kind;
	__builtin_memcpy(record->name, thread->content, name_bytes);
	bpf_ringbuf_submit(record, RING_FLAGS);
	return 0;
}

/* Sends thread->task. Most values are short, and a record's cost is its memory. */
__noinline int task_output(struct thread_state *thread)
{
	__u32 how, bytes;

	if (!thread)
		return -1;
	how = thread->task.how;
	bytes = thread->task.bytes;
	if (how == EVENT_TASK_WIDE || how == EVENT_TASK_UUID)
		bytes = sizeof(__u64);
	else if (how != EVENT_TASK_NAMED && how != EVENT_TASK_RAW)
		return task_send(thread, 0);
	return bytes <= EVENT_TASK_SHORT ? task_send(thread, EVENT_TASK_SHORT)
					 : task_send(thread, EVENT_TASK_BYTES);
}

/* Is the GIL held by whoever requests the block? */
static __always_inline int gil_is_held(const struct block *block)
{
	__u32 api = block->api & EVENT_API_MASK;

	return api == EVENT_API_MEM || api == EVENT_API_OBJ || api == EVENT_API_POOL;
}

/*
 * Notes that this thread makes a new block. 1: no other one has since this thread's last block,
 * so that no object has begun to live that this thread's records do not tell of. Threads that do
 * not hold the GIL make no objects.
 */
static __always_inline int allocator_stays(struct thread_state *thread)
{
	volatile __u32 *last = last_allocator(thread->ids.tgid);

	if (!gil_is_held(&thread->block) && (thread->block.api & EVENT_API_MASK) != EVENT_API_LARGE)
		return 0;
	if (*last == thread->ids.tid)
		return !thread->target.partial && !thread->target.sample_bytes &&
		       !thread->target.paused;
	*last = thread->ids.tid;
	return 0;
}

/*
 * The object that is a task's name; 0: it is not asyncio's own kind of task. Any object may be a
 * running task, and one of another type may be too small to have a name where that has it.
 */
static __always_inline __u64 task_name_of(const struct abi_offsets *offsets, __u64 task)
{
	__u64 type = user_u64(task + offsets->object_type);

	/* tp_basicsize comes after the type's own header and its name */
	if (user_u64(type + offsets->object_type + 24) < offsets->task_name + 8u)
		return 0;
	return user_u64(task + offsets->task_name);
}

/* Before CPython 3.14, in python/label.h: the running task, and the name of one in Python. */
__noinline __u64 loop_task(struct thread_state *thread);
__noinline __u64 loop_task_name(struct thread_state *thread, __u64 task);

/* Another task than at the record before, or perhaps. Returns as task_note(). */
__noinline int task_change(struct thread_state *thread, __u64 task)
{
	__u64 name = 0, id = 0;
	int is_in_python = 0;

	if (!thread)
		return 0;
	thread->task_address = UNREADABLE;
	if (task) {
		name = task_name_of(&thread->target.offsets, task);
		is_in_python = !name && !thread->target.offsets.tstate_task;
		if (is_in_python)
			name = loop_task_name(thread, task);
		id = task_name_read(thread, name);
	} else {
		thread->task = (struct task_name){.how = EVENT_TASK_NONE};
	}
	if (id != thread->task_id && task_output(thread))
		return -1;
	thread->task_id = id;
	/* The set_name() of one in Python has no probe. */
	if (!is_in_python)
		thread->task_address = task;
	thread->task_name = name;
	return 0;
}

/* Sets thread->block.tstate where no Python stack was walked. */
__noinline int task_tstate_find(struct thread_state *thread)
{
	__u64 frame;

	if (thread && !frame_find(thread, &thread->target, gil_is_held(&thread->block), &frame))
		thread->block.tstate = thread->tstate;
	return 0;
}

/*
 * To be called before the record of thread->block. 0; -1: the ring buffer is full, so that the
 * record would be charged to another task.
 *
 * If the task and its name are at the same addresses as at the thread's last block, and nobody else
 * has made a block since, they are the same objects: others at these addresses would be new blocks.
 * Where set_name() has its probe, the task has its name, too, unless that says otherwise.
 *
 * Inline, and what is seldom needed is not: a call and a read of a word are most of the cost.
 */
static __always_inline int task_note(struct thread_state *thread)
{
	const struct abi_offsets *offsets = &thread->target.offsets;
	__u64 task = 0;
	int stays;

	if (!offsets->task_name)
		return 0;
	stays = allocator_stays(thread);
	if (!thread->block.tstate)
		task_tstate_find(thread);
	if (thread->block.tstate)
		task = offsets->tstate_task ? user_u64(thread->block.tstate + offsets->tstate_task)
					    : loop_task(thread);
	if (stays && task == thread->task_address &&
	    (!task || thread->target.renames != ABI_RENAMES_UNREPORTED ||
	     user_u64(task + offsets->task_name) == thread->task_name))
		return 0;
	return task_change(thread, task);
}

/*
 * A task gets a name, which may be an object that exists, so that no block tells of it. If it is a
 * str, nothing is allocated until the task has it. Otherwise code of the program makes a str of it
 * first, and when that ends is not known: from now on this process's names are read.
 */
static __always_inline void rename_note(struct thread_state *thread, __u64 name)
{
	struct abi_target *target;

	if (user_u64(name + thread->target.offsets.object_type) == thread->target.unicode_type) {
		last_allocator_forget();
		return;
	}
	target = target_current();
	if (target)
		target->renames = ABI_RENAMES_UNREPORTED;
	__sync_fetch_and_add(&targets_version, 1);
}
