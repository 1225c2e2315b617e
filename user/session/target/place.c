/* SPDX-License-Identifier: Apache-2.0 */
#include "session/target/place.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "attach/attach.h"
#include "attach/file_users.h"
#include "probe/malloc/plan_provider.h"
#include "probe/process/plan_target.h"
#include "probe/process/translator.h"
#include "proc/patience.h"
#include "proc/process.h"
#include "session/target/state.h"
#include "session/target/target.h"
#include "util/clock.h"
#include "util/error.h"

/* That placing the probes of a file may wait for locks. */
#define PROBES_MOST_NS 1000000000ull
#define USERS_FRESH_NS 500000000ull /* how long the list of mapped files is taken to be valid */

/*
 * Every process that maps a file hits the probes in it, and each hit costs a trap. So probes are
 * placed in a file only if all processes that map it are traced or going to be.
 */
static bool is_target_or_own(pid_t pid, void *context)
{
	struct session *session = context;

	for (size_t i = 0; i < session->expected_count; i++)
		if (session->expected[i] == pid)
			return 1;
	return pid == getpid() || pid == attach_holder(session->attach) ||
	       target_find(session, pid);
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

/*
 * Does a process run under a translator? Looks at all processes at the first call, and logs those
 * that do. Then probes are to be placed in each process alone.
 */
static int translators_run(struct session *session)
{
	pid_t *pids = NULL;
	size_t count = 0;

	if (session->translators_looked)
		return session->translators > 0;
	session->translators_looked = 1;
	if (process_list(&pids, &count))
		return 0;
	for (size_t i = 0; i < count; i++) {
		int err = translator_check(pids[i]);

		if (err && session->translators++ < SESSION_LOGS)
			log_info("PID %d is not traced: %s; probes are placed in each process "
				 "alone, not in files",
				 (int)pids[i], error_reason(err));
	}
	free(pids);
	return session->translators > 0;
}

pid_t probe_scope(struct session *session, const struct target *target, const struct elf_file *file)
{
	struct file_users *users;

	/* The governor and windows remove the probes of single processes. */
	if (session->opts.overhead > 0 || session->opts.window_on_ns)
		return target->pid;
	if (attach_is_everywhere(session->attach, file))
		return -1;
	if (session->opts.everywhere)
		return translators_run(session) ? target->pid : -1;
	if (session->opts.watch == ABI_WATCH_NONE || target->private_probes)
		return target->pid;
	users = session_users(session);
	return users && file_users_all(users, target->pid, elf_file_path(file), is_target_or_own,
				       session)
		       ? -1
		       : target->pid;
}

int target_plans_each(const struct target *target, const struct plan_target *plans,
		      plan_target_fn each, void *context)
{
	return plan_target_each(plans,
				plans->runtime.file ? plans->runtime.file : target->runtime.file,
				each, context);
}

struct placing {
	struct session *session;
	const struct target *target;
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
 * no process on the machine forks meanwhile. Windows place few probes, often: for them the target's
 * own lock is looked at, and the others' at its attach alone.
 */
static int waits_check(const struct placing *placing, const struct plan *plan,
		       const struct elf_file *file)
{
	struct session *session = placing->session;
	struct waits waits = {0};
	struct file_users *users;

	wait_add(placing->target->pid, &waits);
	if (!placing->target->begun ||
	    (session->opts.overhead <= 0 && !session->opts.window_on_ns)) {
		users = session_users(session);
		if (users)
			file_users_each(users, placing->target->pid, elf_file_path(file), wait_add,
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
	pid_t scope = probe_scope(placing->session, placing->target, file);

	log_debug("PID %d: probes in %s are placed in %s", placing->target->pid,
		  elf_file_path(file),
		  scope < 0 ? "the file, for every process that maps it" : "this process alone");
	return waits_check(placing, plan, file)
		       ?: attach_groups(placing->session->attach, plan, file, scope,
					placing->groups);
}

int target_probe(struct session *session, struct target *target, const struct plan_target *plans,
		 unsigned int groups)
{
	struct placing placing = {session, target, groups};
	char why[TARGET_WHY];
	int fits = target_text_reserve(session, target, plans, groups, why);

	if (fits < 0)
		return fits;
	return fits ? target_plans_each(target, plans, plan_place, &placing)
		    : error_set(-EIO, "%s", why);
}

void target_debugger_look(struct session *session, struct target *target)
{
	pid_t debugger = process_debugger(target->pid);

	if (debugger && debugger != target->debugger && session->debugger_logs++ < SESSION_LOGS)
		log_info("PID %d: PID %d traces it by ptrace. A debugger that has a breakpoint at "
			 "a probe's place hides one from the other, and may leave the probe's in "
			 "the code: remove its breakpoints before this trace ends",
			 target->pid, (int)debugger);
	target->debugger = debugger;
}

unsigned int target_groups(const struct target *target)
{
	if (target->mode == EVENT_MODE_GROWTH)
		return ATTACH_ALL;
	if (target->mode != EVENT_MODE_WINDOWS)
		return ATTACH_ALL & ~ATTACH_NEW_POOLS;
	/* The plan may be that of exact mode. */
	return ATTACH_ALL & ~target_window_groups(target) & ~ATTACH_POOL_FREES &
	       ~(target->large_blocks ? 0 : ATTACH_PASSED_ON) &
	       ~(target->pools_off ? ATTACH_NEW_POOLS : 0);
}

enum governor_between target_between(const struct target *target)
{
	if (target->pools_off)
		return GOVERNOR_BETWEEN_NOTHING;
	return target->large_blocks && !target->large_windowed ? GOVERNOR_BETWEEN_LARGE
							       : GOVERNOR_BETWEEN_POOLS;
}

/* --- provider --------------------------------------------------------------------------------- */

/* What was traced so far is dropped: the frees of these blocks are not seen from here on. */
static void table_log(const struct session *session, const struct target *target, const char *path)
{
	const struct trace_process *process = trace_process_at(session->trace, target->index);
	uint64_t blocks = process ? process->tables[EVENT_LAYER_NATIVE].live_blocks : 0;

	if (blocks)
		log_info("PID %d samples its native allocations itself from here on (" PLAN_PROVIDER
			 " in %s): %llu blocks that were traced before are dropped",
			 target->pid, path, (unsigned long long)blocks);
}

int target_provider_begin(struct session *session, struct target *target,
			  const struct plan_target *plans)
{
	struct event_mark record = {
		.header = RECORD_HEADER(EVENT_SELF_SAMPLED, record, 0, target->pid)};

	if (target->self_sampled || !(target->layers & 1u << EVENT_LAYER_NATIVE) ||
	    !plan_native_is_self_sampled(plans->native, plans->native_count))
		return 0;
	session_pull(session);
	if (target->ended)
		return 0;
	table_log(session, target, elf_file_path(plans->native[0].file));
	target->self_sampled = 1;
	attach_drop(session->attach, target->pid, ATTACH_MALLOC, 0);
	record.header.time_ns = clock_ns(CLOCK_MONOTONIC);
	return session_feed(session, &record, sizeof(record));
}

/* --- translators ------------------------------------------------------------------------------ */

void translator_appears(struct session *session, pid_t pid, const char *name)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC);

	if (!attach_is_in_files(session->attach))
		return;
	session->translators++;
	attach_drop(session->attach, -1, ATTACH_ALL, 0);
	if (!session->limit_ns || session->limit_ns > now)
		session->limit_ns = now;
	log_info(
		"PID %d has begun to run under %s, which would be killed by probes in files: these "
		"are removed, and the trace ends here; another one places probes in each process "
		"alone while %s runs",
		(int)pid, name, name);
}
