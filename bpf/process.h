/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Processes: their forks, execs and exits. A child is under trace before it runs: its parent's
 * entry in `targets` is valid for it, since its memory is a copy. An exec makes the entry void. The
 * session decides whether the new program is traced. If the session traces every program, it is
 * traced from its first instruction on, as a process without Python.
 */
#pragma once

#include "python/heap.h"

const volatile __u32 watch = ABI_WATCH_NONE;
const volatile __u32 own_tgid; /* the tracer's: never watched */
/* The entry of an exec'd program; layers 0: it gets none, the session decides. */
struct abi_target execd; /* not const: clang would take its copy for all zero */
__u32 spaces_given;

/* Is a process that is not a target watched? */
static __always_inline int is_watched(__u32 tgid)
{
	if (watch == ABI_WATCH_ALL)
		return tgid != own_tgid;
	return watch && bpf_map_lookup_elem(&followed, &tgid);
}

static __always_inline __u32 space_new(void)
{
	return ABI_SPACE_GIVEN | __sync_fetch_and_add(&spaces_given, 1);
}

/*
 * Makes a process, which is not running, a target with a copy of the entry `model` and a space id
 * of its own. model is in a map, since an entry is too large for the stack. Returns the new entry;
 * NULL: the table of targets is full, which is counted.
 */
static __always_inline struct abi_target *target_copy(__u32 tgid, const struct abi_target *model)
{
	struct abi_target *target = NULL;

	if (!bpf_map_update_elem(&targets, &tgid, model, BPF_ANY))
		target = bpf_map_lookup_elem(&targets, &tgid);
	if (target)
		target->space_id = space_new();
	else
		loss_add(LOSS_PROCESS, 1);
	return target;
}

static __always_inline __u32 innermost_pid(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	__u32 level = BPF_CORE_READ(pid, level);
	int number = 0;

	bpf_core_read(&number, sizeof(number),
		      (char *)pid + bpf_core_field_offset(struct pid, numbers) +
			      level * bpf_core_type_size(struct upid));
	return number;
}

/* Emits EVENT_APPEAR. 0; -1: the ring buffer is full, which is counted. */
static __noinline int appear_output(struct task_struct *task, __u32 layers, __u32 space_id)
{
	struct event_appear *record = bpf_ringbuf_reserve(&events, sizeof(*record), 0);

	if (!record) {
		loss_add(LOSS_PROCESS, 1);
		return -1;
	}
	header_fill(&record->header, EVENT_APPEAR, sizeof(*record));
	record->header.tgid = record->header.tid = BPF_CORE_READ(task, tgid);
	record->parent = BPF_CORE_READ(task, real_parent, tgid);
	record->layers = layers;
	record->ns_pid = innermost_pid(task);
	record->space_id = space_id;
	BPF_CORE_READ_STR_INTO(&record->name, task, comm);
	bpf_ringbuf_submit(record, RING_FLAGS);
	return 0;
}

/*
 * Reports an exec'd program. Its first thread does not run before this is done, so EVENT_APPEAR is
 * the program's first record.
 */
static __always_inline void program_appear(struct task_struct *task, __u32 tgid)
{
	struct abi_target *target = execd.layers ? target_copy(tgid, &execd) : NULL;

	/* If the record is lost, the session finds the process when it looks for lost ones. */
	if (appear_output(task, target ? execd.layers : 0, target ? target->space_id : 0) && target)
		target_delete(tgid);
}

/*
 * Processes that share the memory of a target, by tgid: vfork's children until their exec, and
 * those of clone(CLONE_VM). The kernel runs the programs of a process's probes for its threads
 * only, and so their requests are not seen. Of vfork's children none is expected.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} sharers SEC(".maps");

static __always_inline void sharer_begin(__u32 tgid)
{
	__u32 one = 1;

	if (!bpf_map_update_elem(&sharers, &tgid, &one, BPF_ANY))
		loss_add(LOSS_SHARER, 1);
}

/* was_brief: it has called exec, or ends as a child of vfork. */
static __always_inline void sharer_end(__u32 tgid, int was_brief)
{
	if (!bpf_map_delete_elem(&sharers, &tgid) && was_brief)
		loss_add(LOSS_SHARER, -1ull);
}

SEC("raw_tp/sched_process_exit")
int process_exit(void *context UNUSED)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	__u32 tgid = task->tgid;
	struct abi_target *target = bpf_map_lookup_elem(&targets, &tgid);
	int is_end;

	if (!task->signal->live.counter)
		sharer_end(tgid, task->vfork_done != NULL);
	threads_forget(task->pid);
	codes_forget(task->pid);
	/*
	 * signal->live has been decremented for this thread already, and maybe for another one that
	 * runs this program at the same time: the first of them reports the end.
	 */
	is_end = (target || is_watched(tgid)) && !task->signal->live.counter &&
		 !(target && __sync_lock_test_and_set(&target->ended, 1));
	/* From 6.16 on the memory is still mapped here, however the process was ended. */
	if (target && is_end)
		heap_read(target, 1);
	else if (target)
		heap_abandon();
	heap_walks_forget(task->pid);
	if (!is_end)
		return 0;
	process_output(EVENT_EXIT, tgid, 0,
		       task->exit_code | (task->signal->oom_mm ? EVENT_EXIT_OOM : 0), 0);
	if (target)
		target_delete(tgid);
	bpf_map_delete_elem(&followed, &tgid);
	return 0;
}

/* The last time that the old program's memory exists (6.10+); the exec cannot fail any more. */
SEC("raw_tp/sched_prepare_exec")
int process_exec_begin(void *context UNUSED)
{
	struct abi_target *target = target_current();

	/* No table is kept for a forked child that runs another program now. */
	if (target && target->space_id < ABI_SPACE_GIVEN)
		heap_read(target, 1);
	return 0;
}

static __always_inline void follow(__u32 tgid)
{
	__u32 one = 1;

	if (watch == ABI_WATCH_CHILDREN && bpf_map_update_elem(&followed, &tgid, &one, BPF_ANY))
		loss_add(LOSS_PROCESS, 1);
}

SEC("raw_tp/sched_process_exec")
int process_exec(void *context UNUSED)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct abi_target *target = bpf_map_lookup_elem(&targets, &tgid);

	sharer_end(tgid, 1);
	if (!target && !is_watched(tgid))
		return 0;
	if (target) {
		/* The new program has another address space: the entry is void. */
		process_output(EVENT_EXEC, tgid, 0, 0, 0);
		target_delete(tgid);
	}
	if (watch) {
		follow(tgid);
		program_appear(task, tgid);
	}
	return 0;
}

/* The variables of a forked child are at the same addresses. */
static __always_inline void label_inherit(__u32 child)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct abi_label *label = bpf_map_lookup_elem(&labels, &tgid);

	if (label)
		bpf_map_update_elem(&labels, &child, label, BPF_ANY);
}

/*
 * Makes the entry of a child whose memory is a copy of its parent's. Returns the child's space id;
 * 0: it got no entry.
 */
static __always_inline __u32 target_inherit(const struct abi_target *parent, __u32 child)
{
	struct abi_target *target = target_copy(child, parent);

	if (!target)
		return 0;
	/* The map of sampled blocks has its parent's blocks under the parent's space id only. */
	target->sample_overflow = 1;
	if (target->renames == ABI_RENAMES_HERE)
		target->renames = ABI_RENAMES_UNREPORTED;
	if (has_labels)
		label_inherit(child);
	return target->space_id;
}

SEC("raw_tp/sched_process_fork")
int process_fork(struct bpf_raw_tracepoint_args *args)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct task_struct *child = (void *)args->args[1];
	__u32 tgid = bpf_get_current_pid_tgid() >> 32, space_id = 0;
	__u32 other = BPF_CORE_READ(child, tgid);
	int shares_memory = BPF_CORE_READ(child, mm) == task->mm;
	struct abi_target *target;

	if (other == tgid)
		return 0;
	target = bpf_map_lookup_elem(&targets, &tgid);
	if (!target && !is_watched(tgid))
		return 0;
	if (watch)
		follow(other);
	if (target && shares_memory)
		sharer_begin(other);
	if (target) {
		if (watch && !shares_memory)
			space_id = target_inherit(target, other);
		process_output(EVENT_FORK, tgid, other, space_id ? EVENT_FORK_TRACED : 0, space_id);
	}
	/* A child that shares its parent's memory is reported when it calls exec. */
	if (watch && !space_id && !shares_memory)
		appear_output(child, 0, 0);
	return 0;
}
