/* SPDX-License-Identifier: Apache-2.0 */
/* A uprobe as a perf event (perf_event_open(2), the PMU "uprobe"): how kernels before 6.6 probe. */
#ifndef TRACER_ATTACH_PERF_UPROBE_H
#define TRACER_ATTACH_PERF_UPROBE_H

#include <stdint.h>
#include <sys/types.h>

#include "attach/links.h"

/*
 * An event at a place of a file, in one process or (pid -1) in all, which counts and does nothing
 * else. kind: LINKS_ENTRY or LINKS_RETURN. A descriptor; -ENOENT there is no such PMU; -errno.
 */
int perf_uprobe_open(const char *path, uint64_t offset, pid_t pid, enum links_kind kind);
/* The same with a program. A descriptor, of the link: it holds the event. -errno */
int perf_uprobe_link(int program, const char *path, uint64_t offset, pid_t pid,
		     enum links_kind kind, uint64_t cookie);

#endif
