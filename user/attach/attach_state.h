/* SPDX-License-Identifier: Apache-2.0 */
/* The definition of struct attach, shared by attach*.c only. */
#pragma once

#include "abi/usdt.h"
#include "attach/attach.h"
#include "attach/links/links.h"
#include "attach/links/links_holder.h"
/* The skeleton's variables use our types. */
#include "attach/alloc.skel.h"

/* The sites of one group of a plan in a file, placed in one process or (pid -1) in all. */
struct placed {
	dev_t device;
	ino_t inode;
	pid_t pid;
	unsigned int group; /* enum attach_group */
	uint64_t sites;     /* hash of the sites */
	struct links links;
};

struct attach {
	struct alloc_bpf *skeleton;
	struct stream *stream;
	enum links_backend backend;
	struct placed *placed;
	size_t placed_count, placed_capacity;
	struct links_holder *holder; /* NULL: detached */
	int empty;                   /* as in struct attach_opts */
	/* what is in the map `usdt`; sets are never removed */
	struct abi_usdt *usdt;
	size_t usdt_count, usdt_capacity;
	struct unwind_areas unwind; /* NULL: not shared */
	size_t unwind_bytes[4];
	struct ring_buffer *unwind_wanted; /* NULL: not shared */
	void (*unwind_each)(void *context, const struct event_unwind_file *file);
	void *unwind_context; /* during attach_unwind_wanted() */
};

/*
 * The index of these arguments in the map `usdt`, to which they are added if they are new. 0;
 * -E2BIG: ABI_USDT_MAX are there (error_set); -errno.
 */
int attach_usdt_index(struct attach *attach, const struct abi_usdt *arguments, uint32_t *index);

/* The number of links of everything that is placed. */
size_t attach_links_count(const struct attach *attach);

/* Removes the maps of unwind tables from this process's memory. */
void attach_unwind_unshare(struct attach *attach);

/* Invalidates what the programs cache about targets and their code objects. */
static inline void attach_renew(struct attach *attach)
{
	__atomic_add_fetch(&attach->skeleton->data->targets_version, 1, __ATOMIC_SEQ_CST);
}
