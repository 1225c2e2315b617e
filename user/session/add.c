/* SPDX-License-Identifier: Apache-2.0 */
/* Brings a process under trace: plan, announce, attach, walk the heap for older blocks. */
#include "session/session.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "abi/target.h"
#include "attach/leftover.h"
#include "attach/links/features_missing.h"
#include "attach/links/hints.h"
#include "object/elf/elf_file.h"
#include "object/symbols/symbols.h"
#include "probe/malloc/loop_code.h"
#include "probe/malloc/plan_provider.h"
#include "probe/process/plan_process.h"
#include "probe/process/plan_target.h"
#include "proc/process.h"
#include "runtime/cpython/heap_place.h"
#include "session/follow.h"
#include "session/returns.h"
#include "session/target/census.h"
#include "session/target/cost.h"
#include "session/target/labels.h"
#include "session/target/mode.h"
#include "session/target/place.h"
#include "session/target/state.h"
#include "session/target/symbols.h"
#include "session/target/target.h"
#include "session/target/target_governor.h"
#include "session/unwind_tables.h"
#include "snapshot/estimate.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/regular.h"

/* --- interpreter ------------------------------------------------------------------------------ */

/* Where a target's interpreter has its code, for the walks of its stacks. */

/* Vaddrs of code of the interpreter's file to addresses, up to the first without a byte. */
static void interpreter_codes_place(const struct target *target, struct abi_code *out,
				    const struct abi_code *vaddrs, size_t count)
{
	for (size_t i = 0; i < count && vaddrs[i].bytes; i++)
		out[i] = (struct abi_code){vaddrs[i].start + target->runtime.bias, vaddrs[i].bytes};
}

/*
 * Sets the range where the interpreter is mapped as code: native frames of a traceback end there,
 * or go on with those that have called the evaluation loop. Python is running in it, or it is not
 * set.
 */
static void interpreter_find(struct target *target)
{
	struct abi_target *abi = &target->runtime.target;
	uint64_t start = abi->interpreter_start, end = abi->interpreter_end;
	struct abi_code loop[ABI_LOOP_CODES];
	struct stat file;

	if (!target->runtime.version_hex || regular_stat(elf_file_fd(target->runtime.file), &file))
		return;
	process_code_range(target->pid, &file, &start, &end);
	abi->interpreter_start = start;
	abi->interpreter_end = end;
	if (target->runtime.version_hex >> 16 >= LOOP_CODE_BEFORE ||
	    !(target->layers & (1u << EVENT_LAYER_NATIVE | 1u << EVENT_LAYER_PAGES)))
		return;
	loop_code_find(target->runtime.file, loop);
	interpreter_codes_place(target, abi->loop_code, loop, ABI_LOOP_CODES);
}

/* Where the stack of a page fault does not begin. */
static void libc_find(struct target *target)
{
	struct abi_code *code = &target->runtime.target.libc_code;
	struct process_maps maps;

	*code = (struct abi_code){0};
	if (!target_is_pages(target) || process_maps_read(target->pid, &maps))
		return;
	for (size_t i = 0; i < maps.count && !code->bytes; i++)
		if (process_map_is_libc(&maps.entries[i]))
			*code = (struct abi_code){maps.entries[i].start,
						  maps.entries[i].end - maps.entries[i].start};
	process_maps_free(&maps);
}

/* --- attach ----------------------------------------------------------------------------------- */

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
static void providers_print(const struct target *target, const struct plan_target *plans)
{
	const size_t length = strlen(PLAN_PROVIDER);

	for (size_t i = 0; i < plans->native_count; i++) {
		const struct plan *plan = plans->native[i].plan;

		for (size_t m = 0; m < plan->missing_count; m++)
			if (!strncmp(plan->missing[m].symbol, PLAN_PROVIDER, length))
				log_info("PID %d: %s is not heard: %s", target->pid,
					 plan->missing[m].symbol, plan->missing[m].why);
	}
}

static void attached_print(struct session *session, struct target *target,
			   const struct plan_target *plans, uint64_t elapsed_ns)
{
	const struct plan *plan = &plans->python;
	uint32_t nframe = target->runtime.target.nframe;
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
	for (size_t i = 0; i < plans->native_count; i++)
		sites_count(plans->native[i].plan, &count, &emulated);
	plan_target_describe(plans, &target->runtime, 0, what, sizeof(what));
	log_info("attached to PID %d (%s): %s, %s mode, %u frame%s; %zu probes; %llu ms",
		 target->pid, plans->info.name, what, snapshot_mode_name(target->mode), nframe,
		 nframe == 1 ? "" : "s", count, (unsigned long long)(elapsed_ns / 1000000));
	plan_target_describe(plans, &target->runtime, 1, what, sizeof(what));
	log_debug("PID %d: %s; %zu of the probes are on instructions that the kernel emulates",
		  target->pid, what, emulated);
	log_debug("%s%s%s", plan->level, plan->level[0] ? "; " : "",
		  attach_backend(session->attach));
	if (target->runtime.other[0])
		log_info("PID %d: it has another Python, of %s, which is not traced", target->pid,
			 target->runtime.other);
	target_debugger_look(session, target);
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
	if (plans->native_why[0])
		log_info("the native layer is not traced: %s", plans->native_why);
	providers_print(target, plans);
	for (size_t i = 0; i < plan->missing_count; i++)
		log_debug("not probed: %s: %s", plan->missing[i].symbol, plan->missing[i].why);
}

static void target_describe(struct session *session, struct target *target, const struct plan *plan)
{
	struct abi_target *abi = &target->runtime.target;

	abi->nframe = session_nframe(&session->opts, target->layers);
	abi->sample_bytes = session->opts.sample_bytes;
	abi->page_share = estimate_page_share(abi->sample_bytes);
	abi->space_id = session->next_space_id++;
	interpreter_find(target);
	libc_find(target);
	/* A heap that cannot be described is not walked by BPF. */
	if (target->layers & 1u << EVENT_LAYER_PYTHON &&
	    heap_describe(&target->runtime, &abi->heap))
		log_debug("PID %d: %s", target->pid, error_reason(-ENOTSUP));
	interpreter_codes_place(target, abi->object_code, plan->object_code, ABI_OBJECT_CODES);
	abi->record_base = target->runtime.bias;
	memcpy(abi->record_calls, plan->record_calls, sizeof(abi->record_calls));
}

/* Walks Python's heap for blocks that are older than the trace. */
static int target_baseline(struct session *session, struct target *target, int from_start)
{
	int err;

	if (!(target->layers & 1u << EVENT_LAYER_PYTHON)) {
		target->heap_unreadable = 1;
		return !target_is_pages(target) &&
				       (from_start || target->mode != EVENT_MODE_WINDOWS)
			       ? 0
			       : target_census(session, target, 1, 0);
	}
	if (from_start)
		return 0;
	err = target_census(session, target, 1, 0);
	/* The next walk may find enough memory. */
	if (account_is_full(err)) {
		log_info("PID %d: its heap could not be read: %s", target->pid, error_reason(err));
		return 0;
	}
	/* A later walk finds the heap of an interpreter that is about to start. */
	if (err == -ENODATA) {
		log_info("PID %d: %s: %s", target->pid, error_reason(err),
			 target->mode == EVENT_MODE_CENSUS
				 ? "if it stays so, every free is seen, as in exact mode"
				 : "coverage is not measured until it has");
		return 0;
	}
	if (err != -ENOTSUP)
		return err;
	/* The planner could read it: census mode ends if the next walk fails, too. */
	if (err == -ENOTSUP && target_plan_mode(target->mode) == EVENT_MODE_CENSUS)
		return 0;
	target->heap_unreadable = 1;
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
static void leftover_report(const struct session *session, const struct target *target,
			    const struct plan_target *plans)
{
	struct leftover_scan scan = {.session = session, .space = target->runtime.space};
	const struct leftover *found = &scan.found;

	if (session->attach_logs >= SESSION_LOGS)
		return;
	target_plans_each(target, plans, leftover_scan, &scan);
	if (found->at_sites)
		log_info("PID %d: %zu breakpoints were in its code before: another tracer's, or "
			 "left by one that was killed, which are gone when this one ends",
			 target->pid, found->at_sites);
	if (found->elsewhere)
		log_info("PID %d: %zu breakpoints are in its code where this mode has no probe: "
			 "another tracer's, or left by one that was killed in another mode; to "
			 "remove those, trace the process in that mode (-m exact has the most "
			 "probes) and end the tracer regularly",
			 target->pid, found->elsewhere);
	if (found->bytes_unchecked)
		log_debug("PID %d: %llu bytes of its code were not searched for breakpoints",
			  target->pid, (unsigned long long)found->bytes_unchecked);
}

/*
 * Has the process called exec since it was planned? No event says so, since it was no target then.
 * From now on an exec ends the target. 0: it has not; -ESTALE.
 */
static int target_check_program(struct session *session, struct target *target, int program)
{
	if (program < 0 || !process_program_is_past(target->pid, program))
		return 0;
	/* The records so far are of another program: discard them. */
	session_pull(session);
	if (target->begun && !target->ended)
		target_discard(session, target);
	target->ended = 1;
	return error_set(-ESTALE, "it keeps calling exec");
}

static int target_attach(struct session *session, struct target *target,
			 const struct plan_target *plans, int program, int from_start)
{
	int err;

	target_describe(session, target, &plans->python);
	leftover_report(session, target, plans);
	err = target_probe(
		session, target, plans,
		target_groups(target) &
			~(target->governor.early ? ATTACH_PASSED_ON | ATTACH_NEW_POOLS : 0));
	if (err)
		return hint_tell(HINT_PROBE, err);
	err = target_announce(session, target, plans->info.name, plans->info.ns_pid, from_start,
				clock_ns(CLOCK_MONOTONIC))
			?: target_provider_begin(session, target, plans)
			?: target_symbols_begin(session, target);
	if (err)
		return err;
	session_unwind_prepare(session, target);
	/* From here on events are emitted. */
	err = attach_target(session->attach, target->pid, &target->runtime.target)
			?: target_check_program(session, target, program)
			?: target_baseline(session, target, from_start);
	/* These must not cost anything before the governor begins, and the walk may take long. */
	if (!err && target->governor.early)
		err = target_probe(session, target, plans, ATTACH_PASSED_ON | ATTACH_NEW_POOLS);
	return err;
}

bool session_has(struct session *session, pid_t pid)
{
	return target_find(session, (uint32_t)pid) != NULL;
}

/* Are there enough descriptors and memory for a plan? 1; 0, and why has the figures; -errno. */
static int plan_fits(struct session *session, struct target *target,
		     const struct plan_target *plans, char why[TARGET_WHY])
{
	size_t left = attach_probes_left(session->attach), wanted = plan_target_descriptors(plans);

	if (wanted <= left)
		return target_text_check(session, target, plans, why);
	snprintf(why, TARGET_WHY,
		 "%zu probes take a file descriptor each on this kernel, and %zu are left (ulimit "
		 "-Hn 65536, and ulimit -n, allow it more)",
		 wanted, left);
	return 0;
}

/*
 * Without windows only growth mode keeps to a budget from the first instant: another one is to be
 * asked for.
 */
static bool must_begin_in_growth(const struct session *session)
{
	const struct plan_target_opts *opts = &session->opts.plan;

	return session->opts.overhead > 0 && !session->opts.sample_bytes && !opts->mode_asked &&
	       (!opts->layers || opts->layers == 1u << EVENT_LAYER_PYTHON) &&
	       attach_is_by_events(session->attach);
}

/*
 * Plans. If the probes do not fit, falls back to growth mode, which has a tenth of census mode's.
 */
static int target_plan(struct session *session, struct target *target, struct plan_target *plans)
{
	struct plan_target_opts opts = session->opts.plan;
	char why[TARGET_WHY], less[TARGET_WHY];
	const char *remedy = "";
	int err, fits, cautious = must_begin_in_growth(session);

	target_busy_begin(session, target);
	if (cautious)
		opts.python.mode = EVENT_MODE_GROWTH;
	err = plan_target(target->pid, &opts, &session->plans, plans);
	if (err)
		return err;
	if (cautious)
		snprintf(plans->python.mode_why, sizeof(plans->python.mode_why),
			 "this kernel removes probes one by one, which takes seconds: a busy "
			 "process would be slow for as long (-m census)");
	fits = plan_fits(session, target, plans, why);
	if (fits)
		return fits < 0 ? fits : 0;
	if (plans->layers & 1u << EVENT_LAYER_PYTHON && opts.python.mode != EVENT_MODE_GROWTH)
		remedy = "; --mode growth has a tenth of them";
	plan_target_free(plans);
	*plans = (struct plan_target){0};
	if (opts.python.mode == EVENT_MODE_CENSUS && !opts.mode_asked && !opts.layers) {
		opts.python.mode = EVENT_MODE_GROWTH;
		err = plan_target(target->pid, &opts, &session->plans, plans);
		if (err)
			return err;
		fits = plan_fits(session, target, plans, less);
		if (fits > 0)
			snprintf(plans->python.mode_why, sizeof(plans->python.mode_why), "%s", why);
		if (fits)
			return fits < 0 ? fits : 0;
		plan_target_free(plans);
		*plans = (struct plan_target){0};
		remedy = "; the probes of growth mode do not fit either";
	}
	return error_set(-EIO, "%s%s", why, remedy);
}

/* From 3.13 on an interpreter has an allocator without windows, which it need not use. */
static bool has_python(pid_t pid)
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
static int is_beyond_budget(const struct session *session, const struct target *target,
			    const struct plan_target *plans)
{
	const struct session_opts *opts = &session->opts;
	int err;

	if (opts->overhead <= 0 || opts->sample_bytes || opts->plan.mode_asked ||
	    opts->plan.native.alloc_count || !target_is_native(target) ||
	    !(target->layers & 1u << EVENT_LAYER_NATIVE) ||
	    plan_native_is_self_sampled(plans->native, plans->native_count) ||
	    (opts->plan.layers && has_python(target->pid)))
		return 0;
	err = target_windows_possible(session, target, plans);
	return err == -ENOTSUP ? 1 : err;
}

/* Takes the plan over, and what of it the target owns. */
static int plan_take(struct target *target, struct plan_target *plans)
{
	int err = 0;

	python_runtime_close(&target->runtime);
	target->runtime = plans->runtime;
	plans->runtime = (struct python_runtime){0};
	if (!target->runtime.space)
		err = space_open(&target->runtime.space, target->pid);
	target_planned(target, plans);
	return err;
}

/* Plans growth mode for a target that is beyond the budget, error_reason(-ENOTSUP) says why. */
static int growth_plan(struct session *session, struct target *target, struct plan_target *plans)
{
	struct plan_target_opts opts = session->opts.plan;
	char why[TARGET_WHY], fits[TARGET_WHY];
	int err = -ENOENT;

	snprintf(why, sizeof(why),
		 "malloc's requests cannot be traced within --overhead %g, since windows are not "
		 "possible: %s",
		 session->opts.overhead * 100, error_reason(-ENOTSUP));
	plan_target_free(plans);
	*plans = (struct plan_target){0};
	opts.python.mode = EVENT_MODE_GROWTH;
	if (!opts.layers)
		err = plan_target(target->pid, &opts, &session->plans, plans);
	if (!err)
		err = plan_fits(session, target, plans, fits) > 0 ? 0 : -ENOENT;
	if (err)
		return err == -ESRCH ? err
				     : error_set(-ENOTSUP,
						 "%s; -m exact traces it all the time, whatever "
						 "that costs",
						 why);
	snprintf(plans->native_why, sizeof(plans->native_why),
		 "%s; -m exact traces all of them, whatever that costs", why);
	return plan_take(target, plans);
}

/* Begins the measurements of a target, and marks its files as inspected. */
static void measures_begin(struct session *session, struct target *target, int from_start)
{
	if (target_governor_begin(session, target))
		log_info("PID %d: --overhead does not work: %s", target->pid, error_reason(-ESRCH));
	target_cost_begin(session, target, !from_start);
	if (!target->runtime.version_hex && target->symbols.count && execd_layers(&session->opts))
		execd_files_settle(session, target->symbols.modules[0]);
}

/* See target_begin_early(). --window: a process without what that needs is traced all the time. */
static void windows_choose(struct session *session, struct target *target,
			   const struct plan_target *plan, int from_start)
{
	enum event_mode usual = target_is_native(target) ? EVENT_MODE_EXACT : EVENT_MODE_CENSUS;
	int err;

	if (!from_start)
		target_begin_early(session, target, plan);
	if (!session->opts.window_on_ns || target->mode != usual)
		return;
	err = target_windows_possible(session, target, plan);
	if (err)
		log_info("PID %d: traced all the time, not in windows: %s", target->pid,
			 error_reason(err));
	else
		target_mode_take(target, EVENT_MODE_WINDOWS);
}

/* What the plan leaves open. 0; -ENOTSUP: it cannot be traced as asked. */
static int target_settle(struct session *session, struct target *target,
			 const struct plan_target *plan, int from_start, int followed)
{
	int err = target_label_choose(session, target, followed);

	windows_choose(session, target, plan, from_start);
	return err ?: returns_check(session, target->pid, plan);
}

/* -ESTALE: it has called exec meanwhile. */
static int program_add(struct session *session, pid_t pid, int from_start, int followed)
{
	uint64_t start = clock_ns(CLOCK_MONOTONIC);
	struct plan_target plans = {0};
	struct target *target;
	int program = -1, beyond, err = 0;

	error_clear();
	/* Records that are in the ring buffer may be of an earlier program. */
	session_pull(session);
	/* Draining may bring its next exec, which is a new exec'd target. */
	for (int turn = 0; (target = target_find(session, pid)); turn++)
		if (!target->execd || turn == SETTLE_TURNS || execd_settle(session, target, &err))
			return err;
	if (pid == attach_holder(session->attach) ||
	    (session->unwind && unwind_loader_is_worker(session->unwind, pid)) ||
	    (session->symbols && symbols_is_worker(session->symbols, pid)))
		return error_set(-ENOENT, "it is the tracer's own");
	session_targets_release(session, pid);
	err = target_new(session, pid, &target);
	if (err)
		return err;
	program = process_program_open(pid);
	/* Before planning: files that are mapped later are not in the plan. */
	if (execd_layers(&session->opts) && target_symbols_look(session, target) == -ENOMEM)
		err = -ENOMEM;
	if (!err)
		err = target_plan(session, target, &plans);
	if (!err && target->pidfd < 0)
		err = -ESRCH;
	if (err)
		goto out;
	err = plan_take(target, &plans);
	beyond = err || from_start ? err : is_beyond_budget(session, target, &plans);
	if (beyond)
		err = beyond < 0 ? beyond : growth_plan(session, target, &plans);
	if (err)
		goto out;
	err = target_settle(session, target, &plans, from_start, followed);
	if (!err)
		session_cost_prepare(session);
	if (!err)
		err = target_attach(session, target, &plans, program, from_start);
	if (err)
		goto out;
	measures_begin(session, target, from_start);
	target->census_ns = clock_ns(CLOCK_MONOTONIC);
	attached_print(session, target, &plans, target->census_ns - start);
	if (target->mode == EVENT_MODE_WINDOWS)
		target_windows_begin(session, target, &plans);
out:
	/* The error may be due to an exec. */
	if (err && err != -ESTALE && target_check_program(session, target, program))
		err = -ESTALE;
	plan_target_free(&plans);
	if (program >= 0)
		close(program);
	if (err)
		target_abandon(session, target);
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
	return session->opts.after_cpu_ns ? candidate_await(session, pid)
					  : settled_add(session, pid, from_start, 0);
}

int session_add_followed(struct session *session, pid_t pid)
{
	return settled_add(session, pid, 0, 1);
}
