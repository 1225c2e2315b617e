/* SPDX-License-Identifier: Apache-2.0 */
/* Uprobes as perf events (perf_event_open(2), the PMU "uprobe"), for kernels before 6.6. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "attach/links/links.h"

/*
 * Opens a counting event without a program at an offset of a file, in one process or (pid -1) in
 * all. kind: LINKS_ENTRY or LINKS_RETURN. Returns a descriptor; -ENOENT there is no such PMU;
 * -errno.
 */
int perf_uprobe_open(const char *path, uint64_t offset, pid_t pid, enum links_kind kind);
/*
 * The same at one of the places, with a program. Returns a descriptor of the link, which holds the
 * event; -EOVERFLOW: its semaphore's offset exceeds 32 bits; -errno.
 */
int perf_uprobe_link(int program, const char *path, pid_t pid, enum links_kind kind,
		     const struct links_sites *sites, size_t index);
