/* SPDX-License-Identifier: Apache-2.0 */
/* Where a member's probes are placed, and whether its cgroup has the memory for them. */
#ifndef TRACER_MEMBER_PROBE_H
#define TRACER_MEMBER_PROBE_H

#include "overhead/governor.h"
#include "process_plan/plan_target.h"

struct session;
struct member;

#define MEMBER_WHY 256

/*
 * Places a plan's probes of these groups (enum attach_group): in the files where only members map
 * them, else in the member alone. 0; -EIO its cgroup has no memory for them; -errno.
 */
int member_probe(struct session *session, struct member *member, const struct plan_target *target,
		 unsigned int groups);
/*
 * Tells of a debugger that traces the member, once: it takes a probe's breakpoint for the program's
 * own byte, and may restore it when the probe is gone.
 */
void member_debugger_look(struct session *session, struct member *member);
/* The probes that are in place all the time in its mode: enum attach_group. */
unsigned int member_groups(const struct member *member);
/* What it has between its windows. */
enum governor_between member_between(const struct member *member);
/* The process that a file's probes are placed in; -1: the file, for every process that maps it. */
pid_t probe_scope(struct session *session, const struct member *member,
		  const struct elf_file *file);
/* plan_target_each() for a plan whose runtime the member may have taken over. */
int member_plans_each(const struct member *member, const struct plan_target *target,
		      plan_target_fn each, void *context);
/*
 * Reserves the memory for the pages of text that these probes copy. 1; 0 it does not fit, and why
 * has the figures; -ESRCH, -ENOMEM.
 */
int member_text_reserve(struct session *session, struct member *member,
			const struct plan_target *target, unsigned int groups,
			char why[MEMBER_WHY]);
/* The same for all groups, without reserving anything. */
int member_text_check(struct session *session, struct member *member,
		      const struct plan_target *target, char why[MEMBER_WHY]);
/* Which processes map which files, at most half a second old. NULL: it cannot be read. */
struct file_users *session_users(struct session *session);

#endif
