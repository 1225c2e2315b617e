/* SPDX-License-Identifier: Apache-2.0 */
#include "member/probe.h"

#include <errno.h>
#include <unistd.h>

#include "attach/file_users.h"
#include "base/clock.h"
#include "base/error.h"
#include "member/member.h"
#include "member/state.h"
#include "member/translators.h"
#include "process/patience.h"
#include "process/process.h"
#include "process_plan/plan_target.h"

/* That placing the probes of a file may wait for locks. */
#define PROBES_MOST_NS 1000000000ull
#define USERS_FRESH_NS 500000000ull /* how long the list of mapped files is taken to be valid */

/*
 * Every process that maps a file hits the probes in it, and each hit costs a trap. So probes are
 * placed in a file only if all processes that map it are traced or going to be.
 */
static int is_member_or_own(pid_t pid, void *context)
{
	struct session *session = context;

	for (size_t i = 0; i < session->expected_count; i++)
		if (session->expected[i] == pid)
			return 1;
	return pid == getpid() || pid == attach_holder(session->attach) ||
	       member_find(session, pid);
}

struct file_users *session_users(struct session *session)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC);

	if (!session->users || now - session->users_ns > USERS_FRESH_NS) {
		struct file_users *known = session->users;

		session->users = NULL;
		if (file_users_read(known, &session->users))
			session->users = NULL;
		file_users_free(known);
		session->users_ns = clock_ns(CLOCK_MONOTONIC);
	}
	return session->users;
}

pid_t probe_scope(struct session *session, const struct member *member, const struct elf_file *file)
{
	struct file_users *users;

	/* The governor and windows remove the probes of single processes. */
	if (session->opts.overhead > 0 || session->opts.window_on_ns)
		return member->pid;
	if (attach_is_everywhere(session->attach, file))
		return -1;
	if (session->opts.everywhere)
		return translators_run(session) ? member->pid : -1;
	if (session->opts.watch == ABI_WATCH_NONE || member->private_probes)
		return member->pid;
	users = session_users(session);
	return users && file_users_all(users, member->pid, elf_file_path(file), is_member_or_own,
				       session)
		       ? -1
		       : member->pid;
}

int member_plans_each(const struct member *member, const struct plan_target *target,
		      plan_target_fn each, void *context)
{
	return plan_target_each(target,
				target->runtime.file ? target->runtime.file : member->runtime.file,
				each, context);
}

struct placing {
	struct session *session;
	const struct member *member;
	unsigned int groups;
};

struct waits {
	uint64_t total_ns, worst_ns;
	pid_t worst, last;
};

static int wait_add(pid_t pid, void *context)
{
	struct waits *waits = context;
	uint64_t wait_ns = waits->last == pid ? 0 : patience_wait_ns(pid);

	waits->last = pid;
	waits->total_ns += wait_ns;
	if (wait_ns > waits->worst_ns) {
		waits->worst_ns = wait_ns;
		waits->worst = pid;
	}
	return 0;
}

/*
 * For each probe the kernel waits for the mmap lock of every process that has the file mapped, and
 * no process on the machine forks meanwhile. Windows place few probes, often: for them the member's
 * own lock is looked at, and the others' at its attach alone.
 */
static int waits_check(const struct placing *placing, const struct plan *plan,
		       const struct elf_file *file)
{
	struct session *session = placing->session;
	struct waits waits = {0};
	struct file_users *users;

	wait_add(placing->member->pid, &waits);
	if (!placing->member->begun ||
	    (session->opts.overhead <= 0 && !session->opts.window_on_ns)) {
		users = session_users(session);
		if (users)
			file_users_each(users, placing->member->pid, elf_file_path(file), wait_add,
					&waits);
	}
	if (waits.worst_ns && patience_is_ending())
		return error_set(-EINTR,
				 "the tracer is to end, and PID %d keeps its memory map locked",
				 waits.worst);
	if (waits.total_ns * plan->count < PROBES_MOST_NS)
		return 0;
	return error_set(
		-ETIMEDOUT,
		"PID %d keeps its memory map locked: the kernel would wait for it for "
		"some %.0f ms for each of %zu probes in %s, and as long again to remove them",
		waits.worst, (double)waits.worst_ns / 1e6, plan->count, elf_file_path(file));
}

static int plan_place(void *context, const struct plan *plan, const struct elf_file *file)
{
	const struct placing *placing = context;
	pid_t scope = probe_scope(placing->session, placing->member, file);

	log_debug("PID %d: probes in %s are placed in %s", placing->member->pid,
		  elf_file_path(file),
		  scope < 0 ? "the file, for every process that maps it" : "this process alone");
	return waits_check(placing, plan, file)
		       ?: attach_groups(placing->session->attach, plan, file, scope,
					placing->groups);
}

int member_probe(struct session *session, struct member *member, const struct plan_target *target,
		 unsigned int groups)
{
	struct placing placing = {session, member, groups};
	char why[MEMBER_WHY];
	int fits = member_text_reserve(session, member, target, groups, why);

	if (fits < 0)
		return fits;
	return fits ? member_plans_each(member, target, plan_place, &placing)
		    : error_set(-EIO, "%s", why);
}

void member_debugger_look(struct session *session, struct member *member)
{
	pid_t debugger = process_debugger(member->pid);

	if (debugger && debugger != member->debugger && session->debugger_logs++ < SESSION_LOGS)
		log_info("PID %d: PID %d traces it by ptrace. A debugger that has a breakpoint at "
			 "a probe's place hides one from the other, and may leave the probe's in "
			 "the code: remove its breakpoints before this trace ends",
			 member->pid, (int)debugger);
	member->debugger = debugger;
}

unsigned int member_groups(const struct member *member)
{
	if (member->mode == EVENT_MODE_GROWTH)
		return ATTACH_ALL;
	if (member->mode != EVENT_MODE_WINDOWS)
		return ATTACH_ALL & ~ATTACH_NEW_POOLS;
	/* The plan may be that of exact mode. */
	return ATTACH_ALL & ~member_window_groups(member) & ~ATTACH_POOL_FREES &
	       ~(member->large_blocks ? 0 : ATTACH_PASSED_ON) &
	       ~(member->pools_off ? ATTACH_NEW_POOLS : 0);
}

enum governor_between member_between(const struct member *member)
{
	if (member->pools_off)
		return GOVERNOR_BETWEEN_NOTHING;
	return member->large_blocks && !member->large_windowed ? GOVERNOR_BETWEEN_LARGE
							       : GOVERNOR_BETWEEN_POOLS;
}
