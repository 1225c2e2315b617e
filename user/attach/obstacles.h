/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands in the way of a session on this machine, and what to do about it. The kernel says no
 * by a number, and the same number for many reasons: which of them it is, the machine's settings
 * tell. One table has both for all who ask.
 */
#ifndef TRACER_ATTACH_OBSTACLES_H
#define TRACER_ATTACH_OBSTACLES_H

#include <stddef.h>

#include "attach/features.h"

enum obstacle_lockdown { LOCKDOWN_NONE, LOCKDOWN_INTEGRITY, LOCKDOWN_CONFIDENTIALITY };

#define OBSTACLE_UNKNOWN (-100) /* of a number that cannot be read */

/* The machine's settings, as far as they matter. */
struct obstacle_facts {
	int root;                      /* our user id is 0 */
	int filtered;                  /* we run under a seccomp filter */
	int btf_error;                 /* of opening /sys/kernel/btf/vmlinux: 0, -errno */
	int perf_uprobe;               /* the uprobe PMU is to be seen */
	int sys_mounted;               /* /sys is a sysfs */
	int perf_event_paranoid;       /* or OBSTACLE_UNKNOWN */
	int unprivileged_bpf_disabled; /* or OBSTACLE_UNKNOWN */
	/* of /sys/kernel/security/lockdown; it may not be mounted */
	enum obstacle_lockdown lockdown;
};

/* Reads what there is of them; never fails. */
void obstacle_facts_read(struct obstacle_facts *out);
/* The text of /sys/kernel/security/lockdown: "none [integrity] confidentiality". Pure. */
enum obstacle_lockdown obstacle_lockdown_parse(const char *text);

/* What the kernel has refused. */
enum obstacle_step {
	OBSTACLE_BTF = 1,   /* its types cannot be read */
	OBSTACLE_LOAD = 2,  /* maps and programs */
	OBSTACLE_PROBE = 4, /* a probe in a file */
	OBSTACLE_EVENT = 8, /* a perf event that is none of a probe */
};

struct obstacle {
	const char *what;   /* "a seccomp filter refuses bpf(2)": static */
	const char *remedy; /* static */
};

/*
 * The reason of the error with which the kernel refused a step (OBSTACLE_BTF: the facts have it).
 * Pure. NULL: none that is known.
 */
const struct obstacle *obstacle_find(const struct obstacle_facts *facts, enum obstacle_step step,
				     int err);

/*
 * Puts the reason into error_set() behind what is there, for the machine as it is, and the remedy
 * into *remedy (left alone where no reason is known). Returns err.
 */
int obstacle_explain(enum obstacle_step step, int err, const char **remedy);

/*
 * For who passes an error on alone: the remedy is put into error_set(), too, and -EIO returned,
 * since what else helps against err does not help here. err where no reason is known.
 */
int obstacle_tell(enum obstacle_step step, int err);

/* What helps who lacks a capability: sudo, or the options of a container. Static. */
const char *obstacle_capability_remedy(void);

#endif
