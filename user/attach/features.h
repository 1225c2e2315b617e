/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the running kernel and this process's privileges allow, found by asking, not by version
 * numbers.
 */
#ifndef TRACER_ATTACH_FEATURES_H
#define TRACER_ATTACH_FEATURES_H

#include <stddef.h>

struct features {
	int btf;          /* /sys/kernel/btf/vmlinux: CO-RE relocation */
	int ring_buffer;  /* 5.8+ */
	int task_storage; /* 5.11+ */
	/* and as much of it as our programs keep of a thread (TASK_STATE_MAX of bpf/) */
	int task_storage_holds;
	int attach_cookie; /* 5.15+ */
	int uprobe_multi;  /* 6.6+: one link for every site of a file */
	/* 6.13+: entry and return in one, nested requests plant no return probe */
	int uprobe_session;
	int bpf_loop;     /* 5.17+: the heap can be read when the interpreter shuts down */
	int prepare_exec; /* 6.10+: the tracepoint before an exec takes the memory away */
	int perf_uprobe;  /* the uprobe PMU: probes on older kernels */
	/* 6.11+: a return probe enters through a system call, see seccomp.h */
	int seccomp_uretprobe_risk;
	/* our process ids are the kernel's: we are in the initial PID namespace */
	int root_pid_ns;
	int root_user_ns; /* our rights are the machine's: we are in the initial user namespace */
	char kernel[65];  /* uname -r */
};

struct capability {
	const char *name; /* "CAP_BPF" … */
	const char *why;
	int required;
	int held;
};

int features_probe(struct features *out); /* 0, -errno */
/*
 * The capabilities that matter, as held now. Returns the list; *count entries, static, held
 * refreshed.
 */
int features_capabilities(struct capability out[8], size_t *count);
/*
 * 0 when a session can run; else -EPERM (a capability is missing) or -ENOSYS (the kernel lacks
 * something), with error_set() naming it, and *remedy a static text (NULL with 0).
 */
int features_check(const struct features *features, const char **remedy);

#endif
