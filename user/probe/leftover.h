/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Breakpoints that are in a process's code already when it comes under trace: of another tracer that runs, or left by one that was
 * killed in the one moment in which that can be (links_holder.h; earlier versions of ours had more of them). Each costs the process a
 * trap and does nothing else. The kernel knows them still: who probes the same place and takes its probe out takes them out.
 */
#ifndef TRACER_PROBE_LEFTOVER_H
#define TRACER_PROBE_LEFTOVER_H

#include <stddef.h>
#include <sys/types.h>

#include "probe/plan.h"
#include "target/elf_file.h"

struct leftover {
	size_t at_sites;  /* where the plan has a probe, which takes them out */
	size_t elsewhere; /* in the same code */
};

/* Adds what there is in the process's copy of the file, compared with the file. What cannot be read has none. 0, -ESRCH, -errno. */
int leftover_count(pid_t pid, const struct plan *plan, const struct elf_file *file, struct leftover *out);

#endif
