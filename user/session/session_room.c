/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A probe changes a byte of a program's text, and the kernel gives the process a copy of that page,
 * which is charged to its cgroup: some 900 KiB for a CPython. One near its limit would be killed
 * for it, so what is left is looked at first.
 */
#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "session/session_state.h"

#define FRESH_NS    500000000ull
#define OTHER_PAGES 1 /* where the kernel steps over probed instructions */

/* What one placing takes, from whom. */
struct taking {
	struct session *session;
	const struct member *member;
	unsigned int groups;
	int sign;      /* -1: not after all */
	int64_t bytes; /* of each process */
	pid_t last;    /* a process stands there once for each map, one after the other */
};

static int room_refresh(struct session *session)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC);

	if (session->room && now - session->room_ns <= FRESH_NS)
		return 0;
	memory_room_free(session->room);
	session->room = NULL;
	session->room_ns = now;
	return memory_room_new(&session->room);
}

static int process_take(pid_t pid, void *context)
{
	struct taking *taking = context;
	int err;

	if (pid == taking->last)
		return 0;
	taking->last = pid;
	err = memory_room_take(taking->session->room, pid, taking->bytes);
	/* One that has ended needs none. */
	return pid == taking->member->pid || err == -ENOMEM ? err : 0;
}

static int plan_take(void *context, const struct plan *plan, const struct elf_file *file)
{
	struct taking *taking = context;
	struct session *session = taking->session;
	pid_t pid = taking->member->pid, scope = probe_scope(session, taking->member, file);
	size_t pages = attach_pages(session->attach, plan, file, scope, taking->groups);
	struct file_users *users = scope < 0 && pages ? session_users(session) : NULL;
	int err;

	if (!pages)
		return 0;
	taking->bytes = taking->sign * (int64_t)((pages + OTHER_PAGES) * ATTACH_PAGE_BYTES);
	taking->last = 0;
	err = process_take(pid, taking);
	taking->last = 0;
	return err || !users
		       ? err
		       : file_users_each(users, pid, elf_file_path(file), process_take, taking);
}

/* 1: it is taken, or would be, 0: it is not: where it is missing; -errno. */
static int text_take(struct taking taking, const struct plan_target *target, int keep,
		     struct memory_short *missing)
{
	int err = room_refresh(taking.session), is_short;

	taking.sign = 1;
	if (!err)
		err = member_plans_each(taking.member, target, plan_take, &taking);
	if (err)
		return err;
	is_short = memory_room_is_short(taking.session->room, missing);
	taking.sign = -1;
	if (is_short || !keep)
		err = member_plans_each(taking.member, target, plan_take, &taking);
	return err ? err : !is_short;
}

static int text_fits(struct session *session, struct member *member,
		     const struct plan_target *target, unsigned int groups, int keep,
		     char why[MEMBER_WHY])
{
	const struct taking taking = {.session = session, .member = member, .groups = groups};
	struct memory_short missing;
	int fits = text_take(taking, target, keep, &missing);

	/* In the files they would be paid for by all that map these. */
	if (!fits && !member->alone && !session->opts.everywhere) {
		member->alone = 1;
		fits = text_take(taking, target, keep, &missing);
	}
	if (!fits)
		snprintf(why, MEMBER_WHY,
			 "the pages of text that its probes copy want %llu KiB free, and %s has "
			 "%llu KiB left",
			 (unsigned long long)missing.wanted / 1024, missing.where,
			 (unsigned long long)missing.left / 1024);
	return fits;
}

int member_text_fits(struct session *session, struct member *member,
		     const struct plan_target *target, unsigned int groups, char why[MEMBER_WHY])
{
	return text_fits(session, member, target, groups, 1, why);
}

int member_text_looks(struct session *session, struct member *member,
		      const struct plan_target *target, char why[MEMBER_WHY])
{
	return text_fits(session, member, target, ATTACH_ALL, 0, why);
}
