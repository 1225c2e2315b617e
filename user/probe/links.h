/* SPDX-License-Identifier: Apache-2.0 */
/* What holds probes in place: uprobe_multi links, or perf-event uprobes on kernels without. Gone with their owner. */
#ifndef TRACER_PROBE_LINKS_H
#define TRACER_PROBE_LINKS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "probe/features.h"

struct bpf_program;
struct bpf_link;

enum links_backend { LINKS_SESSION, LINKS_MULTI, LINKS_PERF };
enum links_kind { LINKS_ENTRY, LINKS_RETURN, LINKS_BOTH /* uprobe.session */ };

/* Zero-initialise, and set backend. */
struct links {
	enum links_backend backend;
	int *multi; /* descriptors */
	size_t multi_count;
	struct bpf_link **perf;
	size_t perf_count;
};

/* The best that the kernel has, or as on one without sessions, or without uprobe_multi. */
enum links_backend links_choose(const struct features *features, int no_session, int no_multi);
/* Before it is loaded: how a program will be linked. */
void links_prepare(const struct links *links, struct bpf_program *program, enum links_kind kind);
/*
 * Links a program to places of a file, each with its cookie, in one process or (pid -1) in all. 0 (also for no place);
 * -ESRCH the process is gone; -errno with its reason. What was linked before a failure stays linked.
 */
int links_add(struct links *links, const struct bpf_program *program, enum links_kind kind, const char *path,
	      pid_t pid, const uint64_t *offsets, const uint64_t *cookies, size_t count);
void links_free(struct links *links);
/* libbpf's own messages, the verifier's among them, are for -v. */
void links_silence_libbpf(void);

#endif
