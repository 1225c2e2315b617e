/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does this kernel link programs to many uprobes at once? Found out by doing it, on a function of
 * our own.
 */
#ifndef TRACER_ATTACH_LINK_TRIAL_H
#define TRACER_ATTACH_LINK_TRIAL_H

#include <stddef.h>

#include "attach/links.h"

/*
 * Links a program that does nothing to a function of this process that nobody calls; LINKS_ENTRY:
 * by uprobe_multi; LINKS_BOTH: by uprobe.session. 1: the kernel can; 0: it cannot; -EPERM, -EACCES:
 * we may not ask; -errno.
 */
int link_trial(enum links_kind kind);
/*
 * A program that returns 0, loaded for links of this kind: a descriptor, the caller's to close;
 * -errno.
 */
int link_trial_program(enum links_kind kind);

/*
 * Does a thread get task storage of so many bytes? (From 6.19 on it may be refused for its size,
 * and on a processor without cmpxchg16b for any.) As link_trial().
 */
int task_storage_trial(size_t bytes);

#endif
