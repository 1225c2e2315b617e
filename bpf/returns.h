/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The returns of probed functions.
 *
 * From Linux 6.11 on a function with a return probe returns by a system call that the kernel puts
 * in its way (uretprobe, x86-64). A thread that has its system calls sent to itself as SIGSYS
 * (syscall user dispatch: Wine, interposers) gets that one, too. It knows no such call, and ends
 * its process. A process with such a thread gets no return probes (session/returns.h).
 *
 * A thread can come to do so later. A session (uprobe.session) decides at each entry whether the
 * return is probed, and ours never is in such a thread. But the kernel asks all sessions at that
 * place, and for one that is limited to another process it takes the answer to be yes, without
 * running its program: then the process is ended in spite of ours.
 */
#pragma once

#include "kernel.h"
#include "registers.h"

/* 1: return probes make a system call. If 0, the verifier removes the test. */
const volatile __u32 returns_by_call = 0;

/* May the thread not return from a function with a return probe? */
static __always_inline int task_bars_returns(struct task_struct *task)
{
	__u64 bit;

	if (!returns_by_call || !bpf_core_field_exists(task->thread_info.syscall_work) ||
	    !bpf_core_enum_value_exists(enum syscall_work_bit,
					SYSCALL_WORK_BIT_SYSCALL_USER_DISPATCH))
		return 0;
	bit = bpf_core_enum_value(enum syscall_work_bit, SYSCALL_WORK_BIT_SYSCALL_USER_DISPATCH);
	return task->thread_info.syscall_work >> bit & 1;
}

/*
 * Does a session's program run at the return? The kernel reports the probe's address at both ends,
 * and at the return the program counter is the caller's. (bpf_session_is_return() would also say
 * so, but has another prototype from 7.0 on.)
 */
static __always_inline int session_is_return(struct pt_regs *regs)
{
	return bpf_get_func_ip(regs) != REG_PC(regs);
}
