/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Return probes in a process with a seccomp filter. From Linux 6.11 on a probed function returns
 * through a system call of the kernel's own making (uretprobe, x86-64), which filters saw, and
 * killed for, until "seccomp: passthrough uretprobe systemcall without filtering" (6.14 and the
 * stable series of that time; the default profile of Docker is such a filter).
 */
#ifndef TRACER_ATTACH_SECCOMP_H
#define TRACER_ATTACH_SECCOMP_H

#include <sys/types.h>

#include "attach/features.h"
#include "plan/plan.h"

/*
 * Finds out on a child of our own, with a filter and a return probe: 0 it survives, 1 it is killed,
 * -errno: it cannot be found out. Takes some 0.1 s.
 */
int seccomp_kills_returns(void);
/* Has one of the process's threads a filter? 0, 1, -ESRCH, -errno. */
int seccomp_is_filtered(pid_t pid);

/* What seccomp_kills_returns() said, which is asked at most once. Zero-initialise. */
struct seccomp_answer {
	int asked, kills;
};

/*
 * May the plan's probes be placed in the process? 0; -ENOTSUP: its kernel would kill it
 * (error_set); -ESRCH.
 */
int seccomp_check(struct seccomp_answer *answer, const struct features *features, pid_t pid,
		  const struct plan *plan);

#endif
