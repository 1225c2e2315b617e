/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel objects that hold probes in place: uprobe_multi links, or perf-event uprobes on older
 * kernels. A separate process owns them (link_keeper.h); they end with it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "attach/links/features.h"

struct bpf_program;
struct link_keeper;

enum links_backend { LINKS_SESSION, LINKS_MULTI, LINKS_PERF };
enum links_kind { LINKS_ENTRY, LINKS_RETURN, LINKS_BOTH /* uprobe.session */ };

/* Places in a file, each array of count entries. Borrowed. */
struct links_sites {
	const uint64_t *offsets, *cookies;
	/*
	 * Offsets of USDT semaphores in the file: the kernel increments each in every process in
	 * which its probe is placed, and decrements it when the probe is removed, however that
	 * comes about. 0: none; NULL: all are none.
	 */
	const uint64_t *semaphores;
	size_t count;
};

/* Zero-initialise, and set backend and holder (borrowed). */
struct links {
	enum links_backend backend;
	struct link_keeper *holder;
	uint32_t *groups; /* one per links_add() */
	size_t group_count, capacity;
	size_t count; /* descriptors: for many probes each, or for one (LINKS_PERF) */
};

/* The best backend that the kernel has; no_session and no_multi exclude backends. */
enum links_backend links_choose(const struct features *features, int no_session, int no_multi);
/* Declares how a program will be linked. Call it before the program is loaded. */
void links_prepare(const struct links *links, struct bpf_program *program, enum links_kind kind);
/* The kernel's attach type for linking a program through uprobe_multi. */
uint32_t links_attach_type(enum links_kind kind);
/* How many more probes are possible under the hard limit of descriptors. SIZE_MAX: unlimited. */
size_t links_probes_left(const struct links *links);
/*
 * Creates a uprobe_multi link in the calling task. A task that creates or closes a link must not be
 * killed meanwhile (link_keeper.h). Returns a descriptor, or -errno.
 */
int links_multi_create(int program, enum links_kind kind, const char *path, pid_t pid,
		       const struct links_sites *sites);
/*
 * Links a program to places of a file (a descriptor), each with its cookie, in one process or (pid
 * -1) in all. 0 (also for no places); -ESRCH the process has ended; -errno with its reason. What
 * was linked before a failure stays linked.
 */
int links_add(struct links *links, const struct bpf_program *program, enum links_kind kind,
	      int file, pid_t pid, const struct links_sites *sites);
/* Appends other's links to links, and leaves other empty. 0; -ENOMEM: nothing was moved. */
int links_move(struct links *links, struct links *other);
/* Removes the links. wait: on return no program runs at them any more, and the text is restored. */
void links_free(struct links *links, int wait);
/* Shows libbpf's own messages, including the verifier's, only with -v. */
void links_silence_libbpf(void);
const char *links_libbpf_version(void);
