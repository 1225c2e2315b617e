/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the processes of a service have together, so that nothing is counted twice: the kernel's
 * own figures of each (smaps_rollup), and which of its pages a process had in common with the one
 * that forked it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "inspect/rss/smaps.h"
#include "proc/process.h"

#define SERVICE_PROCESSES 4096u /* limit */

struct service_process {
	struct process_info info;
	struct smaps_totals totals;
	/* the process here that has forked it, and whose memory it has, with no exec since; 0 */
	pid_t parent;
	/*
	 * bytes of its own, of anonymous memory, at addresses at which the parent has other pages:
	 * it had them in common when it was forked, and one of the two has written to them since;
	 * or both have allocated the memory later
	 */
	uint64_t unshared;
};

struct service {
	struct service_process *processes; /* as they were given */
	size_t count;
	size_t missing;               /* that have ended meanwhile, or could not be read */
	uint64_t rss, pss, own, swap; /* sums */
	uint64_t elapsed_ns;
};

/*
 * Gives the runs of pages that count as unshared between a process and its parent, by address,
 * until visit returns not 0, which is returned. 0; -ESRCH: one of them has ended; -EPERM; -ENOMEM.
 */
typedef int (*unshared_fn)(void *context, uint64_t address, size_t pages);
int service_unshared_each(pid_t pid, pid_t parent, unshared_fn visit, void *context);

/*
 * Reads what it can; failed() is called for each other process, with its error; NULL: none is. 0;
 * -ESRCH: none could be read; -E2BIG; -ENOMEM. The caller frees it with service_free().
 */
typedef void (*service_failed_fn)(pid_t pid, int err);
int service_read(struct service *out, const pid_t *pids, size_t count, service_failed_fn failed);
void service_free(struct service *service);
