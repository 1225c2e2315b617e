/* SPDX-License-Identifier: Apache-2.0 */
/* Where a target's probes are placed, and whether its cgroup has the memory for them. */
#pragma once

#include "probe/process/plan_target.h"
#include "session/overhead/governor.h"

#include <sys/types.h>

struct session;
struct target;

#define TARGET_WHY 256

/*
 * Places a plan's probes of these groups (enum attach_group): in the files where only targets map
 * them, else in the target alone. 0; -EIO its cgroup has no memory for them; -errno.
 */
int target_probe(struct session *session, struct target *target, const struct plan_target *plans,
		 unsigned int groups);
/*
 * Tells of a debugger that traces the target, once: it takes a probe's breakpoint for the program's
 * own byte, and may restore it when the probe is gone.
 */
void target_debugger_look(struct session *session, struct target *target);
/* The probes that are in place all the time in its mode: enum attach_group. */
unsigned int target_groups(const struct target *target);
/* What it has between its windows. */
enum governor_between target_between(const struct target *target);
/* The process that a file's probes are placed in; -1: the file, for every process that maps it. */
pid_t probe_scope(struct session *session, const struct target *target,
		  const struct elf_file *file);
/* plan_target_each() for a plan whose runtime the target may have taken over. */
int target_plans_each(const struct target *target, const struct plan_target *plans,
		      plan_target_fn each, void *context);
/*
 * Reserves the memory for the pages of text that these probes copy. 1; 0 it does not fit, and why
 * has the figures; -ESRCH, -ENOMEM.
 */
int target_text_reserve(struct session *session, struct target *target,
			const struct plan_target *plans, unsigned int groups, char why[TARGET_WHY]);
/* The same for all groups, without reserving anything. */
int target_text_check(struct session *session, struct target *target,
		      const struct plan_target *plans, char why[TARGET_WHY]);
/* Which processes map which files, at most half a second old. NULL: it cannot be read. */
struct file_users *session_users(struct session *session);

/* Members that sample their native allocations themselves (probe/malloc/plan_provider.h). */

/*
 * Called for a target that has begun, once the probes of a plan are placed. If they are those of a
 * process that samples itself, the trace is told so, once, and the target's own probes on malloc
 * are removed. 0, -errno.
 */
int target_provider_begin(struct session *session, struct target *target,
			  const struct plan_target *plans);

/*
 * Probes in files are hit by every process that maps them. A process under a translator
 * (probe/process/translator.h) would be killed by them.
 */

/*
 * A process has mapped a file of this translator. If there are probes in files, they are removed at
 * once, and the session ends: what it would see from here on is not what it says.
 */
void translator_appears(struct session *session, pid_t pid, const char *name);
