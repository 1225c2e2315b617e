/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The few kernel structures that the programs read, relocated at load time against the running
 * kernel's BTF (CO-RE): the build needs no kernel headers and no BTF of the build machine.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <linux/types.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "machine.h"

#define UNUSED __attribute__((unused))

/* The offset, bounded to max and to a multiple of step in a way that the verifier recognises. */
#define OFFSET_WITHIN(offset, max, step)                                                           \
	({                                                                                         \
		__u64 at = (offset);                                                               \
		asm volatile("if %0 <= %1 goto +1; %0 = 0; %0 &= %2"                               \
			     : "+r"(at)                                                            \
			     : "i"(max), "i"(-(step)));                                            \
		at;                                                                                \
	})

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

#ifdef __TARGET_ARCH_arm64
struct thread_struct {
	struct {
		unsigned long tp_value;
	} uw;
};
#else
struct thread_struct {
	unsigned long fsbase;
};
#endif

struct signal_struct {
	atomic_t live;
	struct mm_struct *oom_mm; /* not NULL: the OOM killer has chosen the process */
};

struct upid {
	int nr;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

/*
 * The kernel's page of code in a process with uprobes; a function with a return probe returns to
 * the page's start.
 */
struct xol_area {
	unsigned long vaddr;
};

struct uprobes_state {
	struct xol_area *xol_area;
};

struct maple_tree {
	void *ma_root;
};

struct mm_struct {
	struct maple_tree mm_mt; /* 6.1+: the mappings */
	unsigned long start_brk, start_stack;
	unsigned long exec_vm; /* pages of executable mappings */
	struct uprobes_state uprobes_state;
};

/* A return probe in progress: its function's return address on the stack was replaced. */
struct return_instance {
	unsigned long stack; /* where the return address was */
	unsigned long orig_ret_vaddr;
	struct return_instance *next;
};

struct uprobe_task {
	struct return_instance *return_instances;
};

struct super_block {
	unsigned int s_dev;
};

struct timespec64 {
	long long tv_sec;
	long tv_nsec;
};

struct inode {
	struct super_block *i_sb;
	unsigned long i_ino;
	long long i_ctime_sec; /* 6.11+ */
	unsigned int i_ctime_nsec;
};

struct inode___6_6 {
	struct timespec64 __i_ctime;
};

struct inode___5_15 {
	struct timespec64 i_ctime;
};

struct file {
	struct inode *f_inode;
};

struct vm_area_struct {
	unsigned long vm_start, vm_end, vm_flags, vm_pgoff;
	struct mm_struct *vm_mm;
	struct file *vm_file;
};

struct thread_info {
	unsigned long syscall_work; /* machines with the generic entry code */
};

enum syscall_work_bit {
	SYSCALL_WORK_BIT_SYSCALL_USER_DISPATCH,
};

struct completion;

struct task_struct {
	struct thread_info thread_info;
	struct completion *vfork_done; /* its parent waits for its exec or its end */
	struct mm_struct *mm;
	struct task_struct *real_parent;
	int tgid;
	int pid;
	int exit_code;
	char comm[16];
	struct signal_struct *signal;
	struct pid *thread_pid; /* the thread's; of a process's first thread also the process's */
	struct uprobe_task *utask;
	unsigned long long self_exec_id; /* incremented by exec */
	struct thread_struct thread;
};

/* The context of an iterator over all threads; task is NULL after the last one. */
struct bpf_iter__task {
	void *meta;
	struct task_struct *task;
};

#pragma clang attribute pop
