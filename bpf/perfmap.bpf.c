/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Reports the code that processes generate: calls of CPython's perf map functions, of similar
 * functions, and of GDB's JIT interface. The probes are in files, not in processes. So a forked
 * child is followed from its first instruction on, since its process id is added to the targets
 * here.
 */
#include "registers.h"
#include "returns.h"
#include "stream.h"
#include "task_state.h"

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u32);
} targets SEC(".maps");

/*
 * A thread's record under construction. It is too large for the stack, and not per processor, since
 * another thread may preempt this one.
 */
struct scratch {
	__u8 record[sizeof(struct event_map_text)];
	__u8 name[EVENT_MAX_MAP_NAME + 1]; /* follows it, as in the record; with a NUL */
	/* copies of struct jit_descriptor and struct jit_code_entry of GDB's interface */
	struct {
		__u32 version, action;
		__u64 relevant, first;
	} descriptor;
	struct {
		__u64 next, previous, image, bytes;
	} entry;
};

TASK_STATE(scratches, struct scratch)

static __always_inline int is_target(void)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;

	return bpf_map_lookup_elem(&targets, &tgid) != NULL;
}

static __always_inline int text_output(__u32 type, __u64 address, __u64 bytes, __u64 name)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct scratch *scratch = scratches_get(task);
	struct event_map_text *record = (void *)scratch;
	__u64 size = sizeof(*record);
	__u32 flags = 0;
	__u8 byte = 0;
	long length;

	if (!scratch) {
		loss_add(LOSS_MAP_ENTRY, 1);
		return 0;
	}
	length = bpf_probe_read_user_str(scratch->name, sizeof(scratch->name), (void *)name);
	if (length > 0)
		length--;
	else
		flags |= EVENT_MAP_MISSED;
	if (length == EVENT_MAX_MAP_NAME &&
	    (bpf_probe_read_user(&byte, 1, (void *)(name + EVENT_MAX_MAP_NAME)) || byte))
		flags |= EVENT_MAP_CUT;
	if (!bpf_probe_read_user(&byte, 1, (void *)address))
		flags |= EVENT_MAP_MAPPED;
	if (length > 0 && length <= EVENT_MAX_MAP_NAME)
		size += length;
	header_fill(&record->header, type, size);
	record->address = address;
	record->bytes = bytes;
	record->name_address = name;
	record->name_bytes = size - sizeof(*record);
	record->flags = flags;
	record_output(scratch, size, LOSS_MAP_ENTRY);
	return 0;
}

__noinline int call_output(__u32 function, __s32 value)
{
	struct event_map_call record = {.function = function, .value = value};

	header_fill(&record.header, EVENT_MAP_CALL, sizeof(record));
	record_output(&record, sizeof(record), LOSS_MAP_CALL);
	return 0;
}

static __always_inline int jit_output(__u64 descriptor)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct scratch *scratch = scratches_get(task);
	struct event_map_jit *record = (void *)scratch;

	if (!scratch ||
	    bpf_probe_read_user(&scratch->descriptor, sizeof(scratch->descriptor),
				(void *)descriptor) ||
	    !scratch->descriptor.relevant ||
	    bpf_probe_read_user(&scratch->entry, sizeof(scratch->entry),
				(void *)scratch->descriptor.relevant)) {
		loss_add(LOSS_MAP_CALL, 1);
		return 0;
	}
	*record = (struct event_map_jit){
		.action = scratch->descriptor.action,
		.entry = scratch->descriptor.relevant,
		.image = scratch->entry.image,
		.image_bytes = scratch->entry.bytes,
	};
	header_fill(&record->header, EVENT_MAP_JIT, sizeof(*record));
	record_output(record, sizeof(*record), LOSS_MAP_CALL);
	return 0;
}

SEC("uprobe")
int map_call(struct pt_regs *regs)
{
	__u64 cookie, bytes;

	if (!is_target())
		return 0;
	cookie = bpf_get_attach_cookie(regs);
	switch (cookie & 0xff) {
	case ABI_OP_MAP_WRITE:
		bytes = argument(regs, cookie, 1);
		if (cookie >> 8 & ABI_MAP_BYTES_32)
			bytes = (__u32)bytes;
		return text_output(EVENT_MAP_WRITE, argument(regs, cookie, 0), bytes,
				   argument(regs, cookie, 2));
	case ABI_OP_MAP_COPY:
		return text_output(EVENT_MAP_COPY, 0, 0, argument(regs, cookie, 0));
	case ABI_OP_MAP_JIT:
		return jit_output(REG_PC(regs) + ((__s64)cookie >> 8));
	default:
		return call_output(cookie & 0xff, (__s32)argument(regs, cookie, 0));
	}
}

SEC("uprobe")
int map_return(struct pt_regs *regs)
{
	if (!is_target())
		return 0;
	return call_output(bpf_get_attach_cookie(regs) & 0xff, (__s32)REG_RESULT(regs));
}

/* The same where the kernel has sessions: only the returns of targets are probed. */
SEC("uprobe")
int map_session(struct pt_regs *regs)
{
	if (session_is_return(regs))
		return map_return(regs);
	return !is_target() || task_bars_returns((void *)bpf_get_current_task_btf());
}

SEC("raw_tp/sched_process_exit")
int process_exit(void *context UNUSED)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	__u32 tgid = task->tgid;

	scratches_forget(task->pid);
	/* signal->live has been decremented for this thread already. */
	if (!bpf_map_lookup_elem(&targets, &tgid) || task->signal->live.counter)
		return 0;
	process_output(EVENT_EXIT, tgid, 0, task->exit_code, 0);
	bpf_map_delete_elem(&targets, &tgid);
	return 0;
}

SEC("raw_tp/sched_process_exec")
int process_exec(void *context UNUSED)
{
	if (is_target())
		process_output(EVENT_EXEC, bpf_get_current_pid_tgid() >> 32, 0, 0, 0);
	return 0;
}

SEC("raw_tp/sched_process_fork")
int process_fork(struct bpf_raw_tracepoint_args *args)
{
	struct task_struct *child = (void *)args->args[1];
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	__u32 other = BPF_CORE_READ(child, tgid), one = 1;

	if (other == tgid || !is_target())
		return 0;
	if (bpf_map_update_elem(&targets, &other, &one, BPF_ANY))
		loss_add(LOSS_MAP_CALL, 1);
	process_output(EVENT_FORK, tgid, other, 0, 0);
	return 0;
}
