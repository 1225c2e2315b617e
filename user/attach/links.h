/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What holds probes in place: uprobe_multi links, or perf-event uprobes on kernels without. A
 * process of their own has them (links_holder.h); they are gone with their owner.
 */
#ifndef TRACER_ATTACH_LINKS_H
#define TRACER_ATTACH_LINKS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "attach/features.h"

struct bpf_program;
struct links_holder;

enum links_backend { LINKS_SESSION, LINKS_MULTI, LINKS_PERF };
enum links_kind { LINKS_ENTRY, LINKS_RETURN, LINKS_BOTH /* uprobe.session */ };

/* Zero-initialise, and set backend and holder (borrowed). */
struct links {
	enum links_backend backend;
	struct links_holder *holder;
	uint32_t *groups; /* each of one links_add() */
	size_t group_count, room;
	size_t count; /* descriptors: of many probes each, or of one (LINKS_PERF) */
};

/* The best that the kernel has, or as on one without sessions, or without uprobe_multi. */
enum links_backend links_choose(const struct features *features, int no_session, int no_multi);
/* Before it is loaded: how a program will be linked. */
void links_prepare(const struct links *links, struct bpf_program *program, enum links_kind kind);
/* The kernel's number of the way in which a program is linked by uprobe_multi. */
uint32_t links_attach_type(enum links_kind kind);
/*
 * How many more probes there can be: the hard limit of descriptors has a say. SIZE_MAX: as many as
 * there are.
 */
size_t links_probes_left(const struct links *links);
/*
 * One link of uprobe_multi, made by this task: whoever makes or closes it must not be killed
 * meanwhile (links_holder.h). A descriptor, or -errno.
 */
int links_multi_create(int program, enum links_kind kind, const char *path, pid_t pid,
		       const uint64_t *offsets, const uint64_t *cookies, size_t count);
/*
 * Links a program to places of a file (a descriptor), each with its cookie, in one process or (pid
 * -1) in all. 0 (also for no place); -ESRCH the process is gone; -errno with its reason. What was
 * linked before a failure stays linked.
 */
int links_add(struct links *links, const struct bpf_program *program, enum links_kind kind,
	      int file, pid_t pid, const uint64_t *offsets, const uint64_t *cookies, size_t count);
/* Appends other's to links, and leaves other empty. 0, -ENOMEM: nothing was done. */
int links_move(struct links *links, struct links *other);
/*
 * Takes them out. wait: when it returns no program runs at them any more, and the text is as it
 * was.
 */
void links_free(struct links *links, int wait);
/* libbpf's own messages, the verifier's among them, are for -v. */
void links_silence_libbpf(void);

#endif
