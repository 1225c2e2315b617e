/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of struct attach, shared by attach*.c only. */
#ifndef TRACER_ATTACH_ATTACH_STATE_H
#define TRACER_ATTACH_ATTACH_STATE_H

#include "attach/attach.h"
#include "attach/links.h"
#include "attach/links_holder.h"
/* Its variables are of our types. */
#include "attach/alloc.skel.h"

/* The sites of a plan in a file, of one group, in one process or (pid -1) in all. */
struct placed {
	dev_t device;
	ino_t inode;
	pid_t pid;
	unsigned int group; /* enum attach_group */
	uint64_t sites;     /* a hash of them */
	struct links links;
};

struct attach {
	struct alloc_bpf *skeleton;
	struct stream *stream;
	enum links_backend backend;
	struct placed *placed;
	size_t placed_count, placed_room;
	struct links_holder *holder; /* NULL: everything is taken out */
	int empty;                   /* as in struct attach_opts */
};

/* Links of all that is placed. */
size_t attach_links_count(const struct attach *attach);

/* What the programs keep of targets and of their code objects is void: they look anew. */
static inline void attach_renew(struct attach *attach)
{
	__atomic_add_fetch(&attach->skeleton->data->targets_version, 1, __ATOMIC_SEQ_CST);
}

#endif
