/* SPDX-License-Identifier: Apache-2.0 */
/* Brings a process under trace: plan, announce, attach, walk the heap for older blocks. */
#include "session/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "attach/leftover.h"
#include "base/clock.h"
#include "base/error.h"
#include "links/features_missing.h"
#include "links/obstacles.h"
#include "member/census.h"
#include "member/cost.h"
#include "member/governor.h"
#include "member/member.h"
#include "member/mode.h"
#include "member/probe.h"
#include "member/provider.h"
#include "member/state.h"
#include "member/symbols.h"
#include "native/plan_provider.h"
#include "process_plan/plan_process.h"
#include "process_plan/plan_target.h"
#include "python/heap_place.h"
#include "session/execd.h"
#include "session/interpreter.h"
#include "session/returns.h"
#include "session/tasks_choose.h"
#include "session/unwind_tables.h"
#include "symbols/symbols.h"

#define LOADER_TURNS    20
#define LOADER_PAUSE_NS 5000000
#define SETTLE_TURNS    4 /* how many execs of a process are handled while it is inspected */

static void sites_count(const struct plan *plan, size_t *count, size_t *emulated)
{
	*count += plan->count;
	for (size_t i = 0; i < plan->count; i++)
		*emulated += plan->sites[i].emulated;
}

/* Probes of a provider that are not heard. */
static void providers_print(const struct member *member, const struct plan_target *target)
{
	const size_t length = strlen(PLAN_PROVIDER);

	for (size_t i = 0; i < target->native_count; i++) {
		const struct plan *plan = target->native[i].plan;

		for (size_t m = 0; m < plan->missing_count; m++)
			if (!strncmp(plan->missing[m].symbol, PLAN_PROVIDER, length))
				log_info("PID %d: %s is not heard: %s", member->pid,
					 plan->missing[m].symbol, plan->missing[m].why);
	}
}

static void attached_print(struct session *session, struct member *member,
			   const struct plan_target *target, uint64_t elapsed_ns)
{
	const struct plan *plan = &target->python;
	uint32_t nframe = member->runtime.target.nframe;
	size_t count = 0, emulated = 0;
	int level = session->expected_count > SESSION_LOGS || session->attach_logs++ >= SESSION_LOGS
			    ? 2
			    : 1;
	char what[1024], missing[FEATURES_MISSING_SIZE];

	if (log_level < level)
		return;

	sites_count(plan, &count, &emulated);
	if (plan->memory)
		sites_count(plan->memory, &count, &emulated);
	for (size_t i = 0; i < target->native_count; i++)
		sites_count(target->native[i].plan, &count, &emulated);
	plan_target_describe(target, &member->runtime, 0, what, sizeof(what));
	log_info("attached to PID %d (%s): %s, %s mode, %u frame%s; %zu probes; %llu ms",
		 member->pid, target->info.name, what, snapshot_mode_name(member->mode), nframe,
		 nframe == 1 ? "" : "s", count, (unsigned long long)(elapsed_ns / 1000000));
	plan_target_describe(target, &member->runtime, 1, what, sizeof(what));
	log_debug("PID %d: %s; %zu of the probes are on instructions that the kernel emulates",
		  member->pid, what, emulated);
	log_debug("%s%s%s", plan->level, plan->level[0] ? "; " : "",
		  attach_backend(session->attach));
	if (member->runtime.other[0])
		log_info("PID %d: it has another Python, of %s, which is not traced", member->pid,
			 member->runtime.other);
	member_debugger_look(session, member);
	if (plan->mode_why[0])
		log_info("not in %s mode: %s", plan_mode_name(session->opts.plan.python.mode),
			 plan->mode_why);
	if (!session->missing_logged++ &&
	    features_missing(&session->features, missing, sizeof(missing)))
		log_info("with less: %s", missing);
	if (plan->memory_why[0])
		log_info("mapped memory is not followed: %s", plan->memory_why);
	for (size_t i = 0; plan->memory && i < plan->memory->missing_count; i++)
		log_info("mapped memory: %s is not followed: %s", plan->memory->missing[i].symbol,
			 plan->memory->missing[i].why);
	if (target->native_why[0])
		log_info("the native layer is not traced: %s", target->native_why);
	providers_print(member, target);
	for (size_t i = 0; i < plan->missing_count; i++)
		log_debug("not probed: %s: %s", plan->missing[i].symbol, plan->missing[i].why);
}

static void target_describe(struct session *session, struct member *member, const struct plan *plan)
{
	struct abi_target *target = &member->runtime.target;

	target->nframe = session_nframe(&session->opts, member->layers);
	target->sample_bytes = session->opts.sample_bytes;
	target->space_id = session->next_space_id++;
	interpreter_find(member);
	/* A heap that cannot be described is not walked by BPF. */
	if (member->layers & 1u << EVENT_LAYER_PYTHON &&
	    heap_describe(&member->runtime, &target->heap))
		log_debug("PID %d: %s", member->pid, error_reason(-ENOTSUP));
	interpreter_codes_place(member, target->object_code, plan->object_code, ABI_OBJECT_CODES);
	target->record_base = member->runtime.bias;
	memcpy(target->record_calls, plan->record_calls, sizeof(target->record_calls));
}

/* Walks Python's heap for blocks that are older than the trace. */
static int member_baseline(struct session *session, struct member *member, int from_start)
{
	int err;

	if (!(member->layers & 1u << EVENT_LAYER_PYTHON)) {
		member->heap_unreadable = 1;
		return from_start || member->mode != EVENT_MODE_WINDOWS
			       ? 0
			       : member_census(session, member, 1, 0);
	}
	if (from_start)
		return 0;
	err = member_census(session, member, 1, 0);
	/* The next walk may find enough memory. */
	if (account_is_full(err)) {
		log_info("PID %d: its heap could not be read: %s", member->pid, error_reason(err));
		return 0;
	}
	/* A later walk finds the heap of an interpreter that is about to start. */
	if (err == -ENODATA) {
		log_info("PID %d: %s: %s", member->pid, error_reason(err),
			 member->mode == EVENT_MODE_CENSUS
				 ? "if it stays so, every free is seen, as in exact mode"
				 : "coverage is not measured until it has");
		return 0;
	}
	if (err != -ENOTSUP)
		return err;
	/* The planner could read it: census mode ends if the next walk fails, too. */
	if (err == -ENOTSUP && member_plan_mode(member->mode) == EVENT_MODE_CENSUS)
		return 0;
	member->heap_unreadable = 1;
	log_info("coverage will not be measured: %s", error_reason(err));
	return 0;
}

struct leftover_scan {
	const struct session *session;
	struct space *space;
	struct leftover found;
};

static int leftover_scan(void *context, const struct plan *plan, const struct elf_file *file)
{
	struct leftover_scan *scan = context;

	/* If our own probes are in the file already, the breakpoints are theirs. */
	if (!attach_is_everywhere(scan->session->attach, file))
		leftover_count(scan->space, plan, file, &scan->found);
	return 0;
}

/*
 * Logs breakpoints that are in the code already, for the first SESSION_LOGS processes. Those that a
 * killed tracer left are removed together with ours.
 */
static void leftover_report(const struct session *session, const struct member *member,
			    const struct plan_target *target)
{
	struct leftover_scan scan = {.session = session, .space = member->runtime.space};
	const struct leftover *found = &scan.found;

	if (session->attach_logs >= SESSION_LOGS)
		return;
	member_plans_each(member, target, leftover_scan, &scan);
	if (found->at_sites)
		log_info("PID %d: %zu breakpoints were in its code before: another tracer's, or "
			 "left by one that was killed, which are gone when this one ends",
			 member->pid, found->at_sites);
	if (found->elsewhere)
		log_info("PID %d: %zu breakpoints are in its code where this mode has no probe: "
			 "another tracer's, or left by one that was killed in another mode; to "
			 "remove those, trace the process in that mode (-m exact has the most "
			 "probes) and end the tracer regularly",
			 member->pid, found->elsewhere);
	if (found->bytes_unlooked)
		log_debug("PID %d: %llu bytes of its code were not searched for breakpoints",
			  member->pid, (unsigned long long)found->bytes_unlooked);
}

/*
 * Has the process called exec since it was planned? No event says so, since it was no target then.
 * From now on an exec ends the member. 0: it has not; -ESTALE.
 */
static int member_check_program(struct session *session, struct member *member, int program)
{
	if (program < 0 || !process_program_is_past(member->pid, program))
		return 0;
	/* The records so far are of another program: discard them. */
	session_pull(session);
	if (member->begun && !member->ended)
		member_discard(session, member);
	member->ended = 1;
	return error_set(-ESTALE, "it keeps calling exec");
}

static int member_attach(struct session *session, struct member *member,
			 const struct plan_target *target, int program, int from_start)
{
	int err;

	target_describe(session, member, &target->python);
	leftover_report(session, member, target);
	err = member_probe(
		session, member, target,
		member_groups(member) &
			~(member->governor.early ? ATTACH_PASSED_ON | ATTACH_NEW_POOLS : 0));
	if (err)
		return obstacle_tell(OBSTACLE_PROBE, err);
	err = member_announce(session, member, target->info.name, target->info.ns_pid, from_start,
			      clock_ns(CLOCK_MONOTONIC));
	if (!err)
		err = member_provider_begin(session, member, target);
	if (!err)
		err = member_symbols_begin(session, member);
	if (err)
		return err;
	session_unwind_prepare(session, member);
	/* From here on events are emitted. */
	err = attach_target(session->attach, member->pid, &member->runtime.target);
	if (!err)
		err = member_check_program(session, member, program);
	if (!err)
		err = member_baseline(session, member, from_start);
	/* These must not cost anything before the governor begins, and the walk may take long. */
	if (!err && member->governor.early)
		err = member_probe(session, member, target, ATTACH_PASSED_ON | ATTACH_NEW_POOLS);
	return err;
}

int session_has(struct session *session, pid_t pid)
{
	return member_find(session, (uint32_t)pid) != NULL;
}

/* Are there enough descriptors and memory for a plan? 1; 0, and why has the figures; -errno. */
static int plan_fits(struct session *session, struct member *member,
		     const struct plan_target *target, char why[MEMBER_WHY])
{
	size_t left = attach_probes_left(session->attach), wanted = plan_target_descriptors(target);

	if (wanted <= left)
		return member_text_check(session, member, target, why);
	snprintf(why, MEMBER_WHY,
		 "%zu probes take a file descriptor each on this kernel, and %zu are left (ulimit "
		 "-Hn 65536, and ulimit -n, allow it more)",
		 wanted, left);
	return 0;
}

/*
 * Without windows only growth mode keeps to a budget from the first instant: another one is to be
 * asked for.
 */
static int must_begin_in_growth(const struct session *session)
{
	const struct plan_target_opts *opts = &session->opts.plan;

	return session->opts.overhead > 0 && !session->opts.sample_bytes && !opts->mode_asked &&
	       (!opts->layers || opts->layers == 1u << EVENT_LAYER_PYTHON) &&
	       attach_is_by_events(session->attach);
}

/*
 * Plans. If the probes do not fit, falls back to growth mode, which has a tenth of census mode's.
 */
static int member_plan(struct session *session, struct member *member, struct plan_target *target)
{
	struct plan_target_opts opts = session->opts.plan;
	char why[MEMBER_WHY], less[MEMBER_WHY];
	const char *remedy = "";
	int err, fits, cautious = must_begin_in_growth(session);

	member_busy_begin(session, member);
	if (cautious)
		opts.python.mode = EVENT_MODE_GROWTH;
	err = plan_target(member->pid, &opts, &session->plans, target);
	if (err)
		return err;
	if (cautious)
		snprintf(target->python.mode_why, sizeof(target->python.mode_why),
			 "this kernel removes probes one by one, which takes seconds: a busy "
			 "process would be slow for as long (-m census)");
	fits = plan_fits(session, member, target, why);
	if (fits)
		return fits < 0 ? fits : 0;
	if (target->layers & 1u << EVENT_LAYER_PYTHON && opts.python.mode != EVENT_MODE_GROWTH)
		remedy = "; --mode growth has a tenth of them";
	plan_target_free(target);
	*target = (struct plan_target){0};
	if (opts.python.mode == EVENT_MODE_CENSUS && !opts.mode_asked && !opts.layers) {
		opts.python.mode = EVENT_MODE_GROWTH;
		err = plan_target(member->pid, &opts, &session->plans, target);
		if (err)
			return err;
		fits = plan_fits(session, member, target, less);
		if (fits > 0)
			snprintf(target->python.mode_why, sizeof(target->python.mode_why), "%s",
				 why);
		if (fits)
			return fits < 0 ? fits : 0;
		plan_target_free(target);
		*target = (struct plan_target){0};
		remedy = "; the probes of growth mode do not fit either";
	}
	return error_set(-EIO, "%s%s", why, remedy);
}

/* From 3.13 on an interpreter has an allocator without windows, which it need not use. */
static int has_python(pid_t pid)
{
	struct python_runtime runtime = {0};

	if (python_runtime_find(pid, NULL, &runtime))
		return 0;
	python_runtime_close(&runtime);
	return 1;
}

/*
 * Without Python and without windows all of malloc's requests would be traced, and samples of them
 * take as many traps: nothing keeps to a budget but growth mode, in which the memory that it maps
 * is traced. 1; 0: windows are possible, or the user has chosen what is probed; -errno.
 */
static int is_beyond_budget(const struct session *session, const struct member *member,
			    const struct plan_target *target)
{
	const struct session_opts *opts = &session->opts;
	int err;

	if (opts->overhead <= 0 || opts->sample_bytes || opts->plan.mode_asked ||
	    opts->plan.native.alloc_count || !member_is_native(member) ||
	    !(member->layers & 1u << EVENT_LAYER_NATIVE) ||
	    plan_native_is_self_sampled(target->native, target->native_count) ||
	    (opts->plan.layers && has_python(member->pid)))
		return 0;
	err = member_windows_possible(session, member, target);
	return err == -ENOTSUP ? 1 : err;
}

/* Takes the plan over, and what of it the member owns. */
static int plan_take(struct member *member, struct plan_target *target)
{
	int err = 0;

	python_runtime_close(&member->runtime);
	member->runtime = target->runtime;
	target->runtime = (struct python_runtime){0};
	if (!member->runtime.space)
		err = space_open(&member->runtime.space, member->pid);
	member_planned(member, target);
	return err;
}

/* Plans growth mode for a member that is beyond the budget, error_reason(-ENOTSUP) says why. */
static int growth_plan(struct session *session, struct member *member, struct plan_target *target)
{
	struct plan_target_opts opts = session->opts.plan;
	char why[MEMBER_WHY], fits[MEMBER_WHY];
	int err = -ENOENT;

	snprintf(why, sizeof(why),
		 "malloc's requests cannot be traced within --overhead %g, since windows are not "
		 "possible: %s",
		 session->opts.overhead * 100, error_reason(-ENOTSUP));
	plan_target_free(target);
	*target = (struct plan_target){0};
	opts.python.mode = EVENT_MODE_GROWTH;
	if (!opts.layers)
		err = plan_target(member->pid, &opts, &session->plans, target);
	if (!err)
		err = plan_fits(session, member, target, fits) > 0 ? 0 : -ENOENT;
	if (err)
		return err == -ESRCH ? err
				     : error_set(-ENOTSUP,
						 "%s; -m exact traces it all the time, whatever "
						 "that costs",
						 why);
	snprintf(target->native_why, sizeof(target->native_why),
		 "%s; -m exact traces all of them, whatever that costs", why);
	return plan_take(member, target);
}

/* Begins the measurements of a member, and marks its files as inspected. */
static void measures_begin(struct session *session, struct member *member, int from_start)
{
	if (member_governor_begin(session, member))
		log_info("PID %d: --overhead does not work: %s", member->pid, error_reason(-ESRCH));
	member_cost_begin(session, member, !from_start);
	if (!member->runtime.version_hex && member->symbols.count && execd_layers(&session->opts))
		execd_files_settle(session, member->symbols.modules[0]);
}

/* See member_begin_early(). --window: a process without what that needs is traced all the time. */
static void windows_choose(struct session *session, struct member *member,
			   const struct plan_target *plan, int from_start)
{
	enum event_mode usual = member_is_native(member) ? EVENT_MODE_EXACT : EVENT_MODE_CENSUS;
	int err;

	if (!from_start)
		member_begin_early(session, member, plan);
	if (!session->opts.window_on_ns || member->mode != usual)
		return;
	err = member_windows_possible(session, member, plan);
	if (err)
		log_info("PID %d: traced all the time, not in windows: %s", member->pid,
			 error_reason(err));
	else
		member_mode_take(member, EVENT_MODE_WINDOWS);
}

/* What the plan leaves open. 0; -ENOTSUP: it cannot be traced as asked. */
static int member_settle(struct session *session, struct member *member,
			 const struct plan_target *plan, int from_start, int followed)
{
	int err = tasks_choose(session, member, followed);

	windows_choose(session, member, plan, from_start);
	return err ? err : returns_check(session, member->pid, plan);
}

/* -ESTALE: it has called exec meanwhile. */
static int program_add(struct session *session, pid_t pid, int from_start, int followed)
{
	uint64_t start = clock_ns(CLOCK_MONOTONIC);
	struct plan_target target = {0};
	struct member *member;
	int program = -1, beyond, err = 0;

	error_clear();
	/* Records that are in the ring buffer may be of an earlier program. */
	session_pull(session);
	/* Draining may bring its next exec, which is a new exec'd member. */
	for (int turn = 0; (member = member_find(session, pid)); turn++)
		if (!member->execd || turn == SETTLE_TURNS || execd_settle(session, member, &err))
			return err;
	if (pid == attach_holder(session->attach) ||
	    (session->unwind && unwind_loader_is_worker(session->unwind, pid)) ||
	    (session->symbols && symbols_is_worker(session->symbols, pid)))
		return error_set(-ENOENT, "it is the tracer's own");
	members_release(session, pid);
	err = member_new(session, pid, &member);
	if (err)
		return err;
	program = process_program_open(pid);
	/* Before planning: files that are mapped later are not in the plan. */
	if (execd_layers(&session->opts) && member_symbols_look(session, member) == -ENOMEM)
		err = -ENOMEM;
	if (!err)
		err = member_plan(session, member, &target);
	if (!err && member->pidfd < 0)
		err = -ESRCH;
	if (err)
		goto out;
	err = plan_take(member, &target);
	beyond = err || from_start ? err : is_beyond_budget(session, member, &target);
	if (beyond)
		err = beyond < 0 ? beyond : growth_plan(session, member, &target);
	if (err)
		goto out;
	err = member_settle(session, member, &target, from_start, followed);
	if (!err)
		session_cost_prepare(session);
	if (!err)
		err = member_attach(session, member, &target, program, from_start);
	if (err)
		goto out;
	measures_begin(session, member, from_start);
	member->census_ns = clock_ns(CLOCK_MONOTONIC);
	attached_print(session, member, &target, member->census_ns - start);
	if (member->mode == EVENT_MODE_WINDOWS)
		member_windows_begin(session, member, &target);
out:
	/* The error may be due to an exec. */
	if (err && err != -ESTALE && member_check_program(session, member, program))
		err = -ESTALE;
	plan_target_free(&target);
	if (program >= 0)
		close(program);
	if (err)
		member_abandon(session, member);
	return err;
}

/* A program that has just been called has no libraries yet: wait for its loader. */
static int settled_add(struct session *session, pid_t pid, int from_start, int followed)
{
	const struct timespec pause = {.tv_nsec = LOADER_PAUSE_NS};
	int err = program_add(session, pid, from_start, followed);

	if (err != -ESTALE)
		return err;
	for (int turn = 0; turn < LOADER_TURNS && (err == -ESTALE || err == -ENOENT); turn++) {
		if (turn)
			nanosleep(&pause, NULL);
		err = program_add(session, pid, from_start, followed);
	}
	return err;
}

int session_add(struct session *session, pid_t pid, int from_start)
{
	return settled_add(session, pid, from_start, 0);
}

int session_add_followed(struct session *session, pid_t pid)
{
	return settled_add(session, pid, 0, 1);
}
