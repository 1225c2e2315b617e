/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface to bpf/perfmap.bpf.c, as attach.h is for the allocators. Its probes are placed in
 * files and are hit by every process that runs them; records are only emitted for targets and their
 * forked children.
 */
#pragma once

#include "attach/links/features.h"
#include "attach/stream.h"
#include "object/elf/elf_file.h"
#include "probe/python/plan.h"

struct perfmap_attach;

struct perfmap_attach_opts {
	size_t ring_bytes; /* 0: 64 MiB */
	stream_record_fn record;
	void *context;
};

int perfmap_attach_new(struct perfmap_attach **out, const struct features *features,
		       const struct perfmap_attach_opts *opts);
void perfmap_attach_free(struct perfmap_attach *attach); /* removes every probe; NULL is legal */
/* 0 if every probe is in place; -EOWNERDEAD, as link_keeper_check(). */
int perfmap_attach_check(const struct perfmap_attach *attach);
int perfmap_attach_target(struct perfmap_attach *attach, uint32_t tgid);
/*
 * Is it decided at each entry of a function whether its return is probed? These links are for every
 * process, and nothing but other traces of this kind has probes at their places: the decision
 * holds (bpf/returns.h).
 */
int perfmap_attach_chooses_returns(const struct perfmap_attach *attach);
/* Places the plan's sites in the file. no_returns: places no return probes. 0, -errno. */
int perfmap_attach_sites(struct perfmap_attach *attach, const struct plan *plan,
			 const struct elf_file *file, int no_returns);
struct stream *perfmap_attach_stream(struct perfmap_attach *attach); /* borrowed */
