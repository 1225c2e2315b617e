/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Return probes in a process with a seccomp filter. From Linux 6.11 on a probed function returns
 * through a system call inserted by the kernel (uretprobe, x86-64). Filters saw that call, and
 * killed the process for it, until "seccomp: passthrough uretprobe systemcall without filtering"
 * (6.14 and the stable series of that time; Docker's default profile is such a filter).
 */
#pragma once

#include <sys/types.h>

#include "attach/links/features.h"
#include "probe/python/plan.h"

/*
 * Tries it on our own child, with a filter and a return probe: 0 it survives, 1 it is killed,
 * -errno: cannot be determined. Takes some 0.1 s.
 */
int seccomp_kills_returns(void);
/* Does one of the process's threads have a filter? 0, 1, -ESRCH, -errno. */
int seccomp_is_filtered(pid_t pid);

/* The cached result of seccomp_kills_returns(), which is called at most once. Zero-initialise. */
struct seccomp_answer {
	int asked, kills;
};

/* Does a plan have return probes? */
int seccomp_concerns(const struct plan *plan);
/*
 * May the plan's probes be placed in the process? 0; -ENOTSUP: the kernel would kill it (with
 * error_set()); -ESRCH.
 */
int seccomp_check(struct seccomp_answer *answer, const struct features *features, pid_t pid,
		  const struct plan *plan);
