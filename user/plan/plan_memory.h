/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where libc maps memory for a process: mmap, munmap, mremap, mprotect and brk, which malloc and
 * pymalloc go through.
 */
#ifndef TRACER_PLAN_PLAN_MEMORY_H
#define TRACER_PLAN_PLAN_MEMORY_H

#include <sys/types.h>

#include "elf/elf_file.h"
#include "plan/plan.h"

/*
 * Plans the system calls in those of a libc's functions. Behind one its arguments and result are
 * all in registers, so that one trap tells everything. 0; -ENOENT one is missing without which
 * figures would be wrong (error_set); -ENOMEM. Others that are missing are named in the plan.
 * plan_free() releases.
 */
int plan_memory(struct elf_file *libc, struct plan *out);
/*
 * The C library that the process has mapped, and where its break is (0: it has no heap yet). As
 * plan_memory_process().
 */
int plan_libc_open(pid_t pid, struct elf_file **libc, uint64_t *program_break);
/*
 * The libc that the process has mapped, and its plan. 0, the caller closes and frees; -ENOENT it
 * has none that is a library (error_set); -ESRCH, -EPERM, -errno.
 */
int plan_memory_process(pid_t pid, struct elf_file **libc, struct plan *out);

#endif
