/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A probe changes a byte of a program's text, and the kernel gives the process a copy of that page,
 * which is charged to its cgroup: about 900 KiB for a CPython. The kernel would kill a process that
 * exceeds its cgroup's limit by that, so the remaining memory is checked first.
 */
#include <errno.h>
#include <stdio.h>

#include "attach/file_users.h"
#include "probe/process/plan_target.h"
#include "proc/container/memory_headroom.h"
#include "session/target/place.h"
#include "session/target/state.h"
#include "session/target/target.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/page.h"

#define FRESH_NS    500000000ull
#define OTHER_PAGES 1 /* the page in which the kernel single-steps probed instructions */

/* The memory that placing a plan's probes takes from each process. */
struct charge {
	struct session *session;
	const struct target *target;
	unsigned int groups;
	int sign;      /* 1: charge, -1: refund */
	int64_t bytes; /* of each process */
	pid_t last;    /* the previous process: one with several maps is listed once for each */
};

static int headroom_refresh(struct session *session)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC);

	if (session->headroom && now - session->headroom_ns <= FRESH_NS)
		return 0;
	memory_headroom_free(session->headroom);
	session->headroom = NULL;
	session->headroom_ns = now;
	return memory_headroom_new(&session->headroom);
}

static int process_charge(pid_t pid, void *context)
{
	struct charge *charge = context;
	int err;

	if (pid == charge->last)
		return 0;
	charge->last = pid;
	err = memory_headroom_take(charge->session->headroom, pid, charge->bytes);
	/* Other processes that have ended need no memory. */
	return pid == charge->target->pid || err == -ENOMEM ? err : 0;
}

static int plan_charge(void *context, const struct plan *plan, const struct elf_file *file)
{
	struct charge *charge = context;
	struct session *session = charge->session;
	pid_t pid = charge->target->pid, scope = probe_scope(session, charge->target, file);
	size_t pages = attach_pages(session->attach, plan, file, scope, charge->groups);
	struct file_users *users = scope < 0 && pages ? session_users(session) : NULL;
	int err;

	if (!pages)
		return 0;
	charge->bytes = charge->sign * (int64_t)((pages + OTHER_PAGES) * page_bytes());
	charge->last = 0;
	err = process_charge(pid, charge);
	charge->last = 0;
	return err || !users
		       ? err
		       : file_users_each(users, pid, elf_file_path(file), process_charge, charge);
}

/* 1: it fits, and is charged if keep; 0: it does not, and missing says where; -errno. */
static int text_charge(struct charge charge, const struct plan_target *plans, int keep,
		       struct memory_short *missing)
{
	int err = headroom_refresh(charge.session), is_short;

	charge.sign = 1;
	if (!err)
		err = target_plans_each(charge.target, plans, plan_charge, &charge);
	if (err)
		return err;
	is_short = memory_headroom_is_short(charge.session->headroom, missing);
	charge.sign = -1;
	if (is_short || !keep)
		err = target_plans_each(charge.target, plans, plan_charge, &charge);
	return err ?: !is_short;
}

static int text_fits(struct session *session, struct target *target,
		     const struct plan_target *plans, unsigned int groups, int keep,
		     char why[TARGET_WHY])
{
	const struct charge charge = {.session = session, .target = target, .groups = groups};
	struct memory_short missing;
	int fits = text_charge(charge, plans, keep, &missing);

	/* Probes in files are charged to all processes that map them: try private ones. */
	if (!fits && !target->private_probes && !session->opts.everywhere) {
		target->private_probes = 1;
		fits = text_charge(charge, plans, keep, &missing);
	}
	if (!fits)
		snprintf(why, TARGET_WHY,
			 "the pages of text that its probes copy want %llu KiB free, and %s %s "
			 "%llu KiB left%s",
			 (unsigned long long)missing.wanted / 1024, missing.where,
			 missing.swings ? "had" : "has", (unsigned long long)missing.left / 1024,
			 missing.swings ? " when it used most" : "");
	return fits;
}

int target_text_reserve(struct session *session, struct target *target,
			const struct plan_target *plans, unsigned int groups, char why[TARGET_WHY])
{
	return text_fits(session, target, plans, groups, 1, why);
}

int target_text_check(struct session *session, struct target *target,
		      const struct plan_target *plans, char why[TARGET_WHY])
{
	return text_fits(session, target, plans, ATTACH_ALL, 0, why);
}
