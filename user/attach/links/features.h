/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the running kernel and this process's privileges allow, found by trying rather than from
 * version numbers.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct features {
	int btf;          /* /sys/kernel/btf/vmlinux: CO-RE relocation */
	int ring_buffer;  /* 5.8+ */
	int task_storage; /* 5.11+ */
	/* and it can hold what our programs keep per thread (TASK_STATE_MAX of bpf/) */
	int task_storage_holds;
	/* and a program finds it even if it has preempted another one (6.2+) */
	int task_storage_found;
	int attach_cookie; /* 5.15+ */
	int uprobe_multi;  /* 6.6+: one link for every site of a file */
	/* 6.13+: entry and return in one link; nested requests need no return probe */
	int uprobe_session;
	int bpf_loop;     /* 5.17+: the heap can be walked when the interpreter shuts down */
	int prepare_exec; /* 6.10+: the tracepoint before an exec replaces the memory */
	int perf_uprobe;  /* the uprobe PMU: probes on older kernels */
	/* 6.11+: a return probe makes a system call: seccomp.h, bpf/returns.h */
	int returns_by_call;
	/* we are in the initial PID namespace, so our pids are the kernel's */
	int root_pid_ns;
	/* we are in the initial user namespace, so our capabilities are effective */
	int root_user_ns;
	char kernel[65]; /* uname -r */
};

/* Whether we are in the initial user namespace; features_probe() asks it, too. */
bool features_user_ns_is_root(void);

struct capability {
	const char *name; /* "CAP_BPF" … */
	const char *why;
	int required;
	int held;
};

int features_probe(struct features *out); /* 0, -errno */
/*
 * The relevant capabilities and whether they are held now, themselves or in CAP_SYS_ADMIN. *count
 * entries; the texts are static. 0, -errno.
 */
int features_capabilities(struct capability out[8], size_t *count);
/*
 * 0 if a session can run; else -EPERM (a capability is missing) or -ENOSYS (the kernel lacks a
 * feature), with error_set() naming it, and *remedy a static text (NULL with 0).
 */
int features_check(const struct features *features, const char **remedy);
