/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Breakpoints that are in a process's code already when it comes under trace: of another tracer
 * that runs, or left by one that was killed in the one moment in which that can be (links_holder.h;
 * earlier versions of ours had more of them). Each costs the process a trap and does nothing else.
 * The kernel knows them still: who probes the same place and takes its probe out takes them out.
 */
#ifndef TRACER_ATTACH_LEFTOVER_H
#define TRACER_ATTACH_LEFTOVER_H

#include <stddef.h>
#include <sys/types.h>

#include "elf/elf_file.h"
#include "plan/plan_target.h"

/* of a file's code in one process that are compared: 0.1 s */
#define LEFTOVER_BYTES_MAX (64ull << 20)

struct leftover {
	size_t at_sites;         /* where the plan has a probe, which takes them out */
	size_t elsewhere;        /* in the same code */
	uint64_t bytes_unlooked; /* of code that is too much */
};

/*
 * Adds what there is in the process's copy of the file, compared with the file. What cannot be read
 * has none. 0, -ESRCH, -errno.
 */
int leftover_count(pid_t pid, const struct plan *plan, const struct elf_file *file,
		   struct leftover *out);
/*
 * Adds what there is in all files that are probed in the process by that plan. 0; as plan_target().
 */
int leftover_process(pid_t pid, const struct plan_target_opts *opts, struct plan_caches *caches,
		     struct leftover *out);

#endif
