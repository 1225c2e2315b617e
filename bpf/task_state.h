/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Per-thread state, in task storage, which the kernel frees with the thread. The allocation may
 * fail: from 6.19 on it does not block, is limited to TASK_STATE_MAX bytes, and fails on a
 * processor without cmpxchg16b or while the allocator's lock is held. Then the state is kept in a
 * hash by thread id, until the thread ends.
 *
 * Before 6.2 it cannot even be found while another task is preempted in the same function on that
 * processor. Then all of it is in the hash: a blank one would be taken instead, and what its thread
 * had begun would be lost without a word.
 *
 * No state is per processor: a program at a uprobe can be preempted by another one.
 */
#pragma once

#include "kernel.h"

#include "abi/target.h"

/* entries of the hash where task storage works; where it does not, user space sets the number */
#define TASK_STATE_SPARE 128

__u8 task_state_blank[TASK_STATE_MAX];
/*
 * Flags of requests for task storage: 0, or TASK_STATE_NONE. With flags instead of a branch all
 * verifiers see the same programs.
 */
const volatile __u64 task_state_flags;

/*
 * Declares `name`, per-thread state of the type `kept`, which is zeroed at first:
 *   kept *name_find(task)    the task's; NULL: it has none
 *   kept *name_get(task)     the same, or a new one; NULL: there is no memory for it
 *   void name_forget(tid)    the thread ends
 */
#define TASK_STATE(name, kept)                                                                     \
	_Static_assert(sizeof(kept) <= TASK_STATE_MAX,                                             \
		       "no kernel from 6.19 on has memory for more");                              \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_TASK_STORAGE);                                           \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                              \
		__type(key, int);                                                                  \
		__type(value, kept);                                                               \
	} name SEC(".maps");                                                                       \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_HASH);                                                   \
		__uint(max_entries, TASK_STATE_SPARE);                                             \
		__type(key, __u32);                                                                \
		__type(value, kept);                                                               \
	} name##_by_tid SEC(".maps");                                                              \
	__u32 name##_refused; /* 1: some are in the hash */                                        \
                                                                                                   \
	static __always_inline kept *name##_find(struct task_struct *task)                         \
	{                                                                                          \
		kept *state = bpf_task_storage_get(&name, task, 0, task_state_flags);              \
		__u32 tid;                                                                         \
                                                                                                   \
		if (state || !name##_refused)                                                      \
			return state;                                                              \
		tid = (__u32)bpf_get_current_pid_tgid();                                           \
		return bpf_map_lookup_elem(&name##_by_tid, &tid);                                  \
	}                                                                                          \
                                                                                                   \
	static __always_inline kept *name##_get(struct task_struct *task)                          \
	{                                                                                          \
		kept *state = name##_find(task);                                                   \
		__u32 tid = (__u32)bpf_get_current_pid_tgid();                                     \
                                                                                                   \
		if (!state)                                                                        \
			state = bpf_task_storage_get(&name, task, 0,                               \
						     BPF_LOCAL_STORAGE_GET_F_CREATE |              \
							     task_state_flags);                    \
		if (state ||                                                                       \
		    bpf_map_update_elem(&name##_by_tid, &tid, task_state_blank, BPF_NOEXIST))      \
			return state;                                                              \
		name##_refused = 1;                                                                \
		return bpf_map_lookup_elem(&name##_by_tid, &tid);                                  \
	}                                                                                          \
                                                                                                   \
	static __always_inline void name##_forget(__u32 tid)                                       \
	{                                                                                          \
		if (name##_refused)                                                                \
			bpf_map_delete_elem(&name##_by_tid, &tid);                                 \
	}
