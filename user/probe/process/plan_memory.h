/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans where libc maps memory for a process: mmap, munmap, mremap, mprotect and brk, through which
 * malloc and pymalloc get their memory.
 */
#pragma once

#include <sys/types.h>

#include "object/elf/elf_file.h"
#include "probe/python/plan.h"

/*
 * Plans the system calls in those functions of a libc. After a system call, its arguments and
 * result are all in registers, so one trap reports everything. 0; -ENOENT a function is missing
 * without which figures would be wrong (error_set); -ENOMEM. Other missing functions are in the
 * plan. plan_free() releases.
 */
int plan_memory(struct elf_file *libc, struct plan *out);
/*
 * Opens the libc that the process has mapped, and plans it. 0, the caller closes and frees; -ENOENT
 * it has no libc that is a library (error_set); -ESRCH, -EPERM, -errno.
 */
int plan_memory_process(pid_t pid, struct elf_file **libc, struct plan *out);
