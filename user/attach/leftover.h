/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Breakpoints that exist in a process's code when tracing begins. They belong to another running
 * tracer, or were left by one that was killed in the one moment in which that is possible
 * (link_keeper.h; earlier versions had more such moments). Each costs the process a trap and has
 * no other effect. The kernel still keeps track of them: placing and removing a probe at the same
 * offset removes them.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "object/elf/elf_file.h"
#include "probe/process/plan_target.h"
#include "proc/memory.h"

/* limit for comparing the code of one file in one process: 0.1 s */
#define LEFTOVER_BYTES_MAX (64ull << 20)

struct leftover {
	size_t at_sites;          /* at sites of the plan, whose probes remove them */
	size_t elsewhere;         /* elsewhere in the same code */
	uint64_t bytes_unchecked; /* code beyond the limit */
};

/*
 * Adds the breakpoints in the process's mapping of the file, compared with the file itself. Memory
 * that cannot be read counts as having none. 0, -ESRCH, -errno.
 */
int leftover_count(struct space *space, const struct plan *plan, const struct elf_file *file,
		   struct leftover *out);
/*
 * Adds the breakpoints in all files that the plan probes in the process. 0; errors as
 * plan_target().
 */
int leftover_process(pid_t pid, const struct plan_target_opts *opts, struct plan_caches *caches,
		     struct leftover *out);
