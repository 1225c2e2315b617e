/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds out whether this kernel can link programs to many uprobes at once, by doing it on a
 * function of our own.
 */
#pragma once

#include <stddef.h>

#include "attach/links/links.h"

/*
 * Links an empty program to a function of this program that is never called; LINKS_ENTRY: through
 * uprobe_multi; LINKS_BOTH: through uprobe.session. 1: the kernel can; 0: it cannot; -EPERM,
 * -EACCES: we may not try; -errno.
 */
int link_trial(enum links_kind kind);
/*
 * Loads a program that returns 0, for links of this kind. Returns a descriptor, which the caller
 * closes; -errno.
 */
int link_trial_program(enum links_kind kind);

/*
 * Can a thread have task storage of this size? (From 6.19 on a request may be refused for its size
 * and, on a processor without cmpxchg16b, at any size.) Returns as link_trial().
 */
int task_storage_trial(size_t bytes);
