/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A window:
 *
 *   placing   the probes are placed; BPF ignores them (abi_target.paused)
 *   begin     all are in place: EVENT_WINDOW, and BPF reports
 *   dropped   another process closes the links. The kernel waits for a grace period of RCU before
 *             it removes the first breakpoint: until then the window goes on
 *   end       the first breakpoint is gone: BPF ignores the probes again; EVENT_WINDOW. From here
 *             on an address may have been given to a block that no probe has shown. So the window's
 *             last moment is that of the last recheck of new blocks before (of the native layer: at
 *             the breakpoints)
 *   closing   the kernel removes the others
 *
 * The CPU time from placing to the end of closing that is not the target's own is the loss.
 * Between windows the pools with blocks that were seen are read a few times a second, so that
 * blocks that die are noticed before their addresses hold others.
 */
#include "session/target/target_windows.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "proc/memory.h"
#include "proc/threads.h"
#include "runtime/heap/heap_kinds.h"
#include "runtime/malloc/glibc.h"
#include "session/target/place.h"
#include "session/target/state.h"
#include "session/target/target.h"
#include "session/target/target_governor.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/hash.h"

/* --- window looks ----------------------------------------------------------------------------- */

/* Reads the pools that hold blocks seen in windows, and the target's text. */

#define LOOK_STRETCH_NS 10000000ull
#define DUE_STRETCH_NS  20000000ull /* of what is due of all targets, until the buffer is drained */
#define FIRST_PAUSE     3           /* after a first window was opened, by how long that took */
#define LOOK_FIRST_NS   250000000ull /* within a window, which is that much longer then */
#define LOOK_LAST_NS    20000000ull  /* once its links are being closed */
#define LAST_FIRST_NS   8000000ull   /* after a window, the first recheck of its pools */
#define LAST_MOST_NS    250000000ull
#define LAST_SHARE      50u /* looks at these take at most 1/50 of the time */
#define BREAKPOINT      0xcc

static bool is_breakpoint(const struct target *target, uint64_t address)
{
	uint8_t byte;

	return !space_read(target->runtime.space, address, &byte, sizeof(byte)) &&
	       byte == BREAKPOINT;
}

/*
 * Are probes of windows in the text? From windows.site on, which is moved: sites that were clear
 * stay so.
 */
static bool target_window_is_probed(struct target *target)
{
	struct target_windows *windows = &target->windows;

	for (; windows->site < windows->text.count; windows->site++)
		if (is_breakpoint(target, windows->text.places[windows->site].address))
			return 1;
	return 0;
}

/*
 * A link is of sites of one kind, and the kernel removes them in the order of the plan. So the
 * first one of each kind is gone before any other. A bit for each kind whose first site has a
 * breakpoint.
 */
static uint64_t target_window_marks(const struct target *target)
{
	const struct plan_text *text = &target->windows.text;
	uint64_t kinds = 0, marks = 0;

	for (size_t i = 0; i < text->count; i++) {
		uint64_t kind = 1ull << text->places[i].kind % 64;

		if (kinds & kind)
			continue;
		kinds |= kind;
		marks |= is_breakpoint(target, text->places[i].address) ? kind : 0;
	}
	return marks;
}

/* Are all probes in place still that were when the window began? */
static bool target_window_is_whole(const struct target *target)
{
	return target_window_marks(target) == target->windows.marks;
}

/* Is there a probe between windows, too, since a pool is taken into use there? */
static bool is_new_pool(const struct plan *plan, uint64_t offset)
{
	for (size_t i = 0; i < plan->count; i++)
		if (plan_site_is_new_pool(&plan->sites[i]) && plan->sites[i].offset == offset)
			return 1;
	return 0;
}

static bool is_site_of_windows(const void *context, const struct plan_site *site)
{
	const struct target *target = context;

	if (target_is_native(target))
		return (site->cookie >> 8 & 0xff) == EVENT_API_NATIVE;
	if (plan_site_is_pooled(site))
		return !is_new_pool(&target->windows.plan.python, site->offset);
	return target->large_windowed && plan_site_is_passed_on(site);
}

struct text_find {
	struct target *target;
	struct process_maps maps;
};

static int text_add(void *context, const struct plan *plan, const struct elf_file *file)
{
	struct text_find *find = context;

	return plan_text_add(&find->target->windows.text, &find->maps, plan, file,
			     is_site_of_windows, find->target);
}

/*
 * Notes where the sites of windows are in the text; those that are not found are taken for clear.
 */
static void target_text_find(struct target *target)
{
	struct text_find find = {.target = target};

	plan_text_free(&target->windows.text);
	if (process_maps_read(target->pid, &find.maps))
		return;
	target_plans_each(target, &target->windows.plan, text_add, &find);
	process_maps_free(&find.maps);
}

int target_recheck_feed(void *context, const void *record, size_t size)
{
	const struct target_recheck *look = context;

	if (look->fresh && !target_window_is_whole(look->target))
		return -ECANCELED;
	return look->target->ended ? -ESRCH : session_feed(look->session, record, size);
}

/* Reads pools until a time; returns how many of them. */
static size_t pools_read(const struct target_recheck *look, const uint64_t *pools, size_t count,
			 uint64_t until_ns)
{
	const struct target *target = look->target;
	const struct heap_kinds_opts opts = {
		.until_ns = until_ns, .record = target_recheck_feed, .context = (void *)look};
	size_t done = 0;
	int err;

	session_pull(look->session);
	if (!count || target->ended)
		return 0;
	err = heap_kinds_read(&target->runtime, pools, count, &opts, &done);
	if (err && err != -ESRCH && err != -ECANCELED)
		log_debug("PID %d: pools could not be read: %s", target->pid, error_reason(err));
	return done;
}

/*
 * Reads the pools of the open window again before it ends: a block that has died since the recheck
 * before would count as alive then. Those of the last window come first in every recheck until the
 * next one: how long short-lived blocks live is known as exactly as looks are close to each other.
 */
static void last_read(const struct target_recheck *look, uint64_t until_ns)
{
	uint64_t *pools;
	size_t count;

	if (trace_sighted_pools(look->session->trace, look->target->index, SIGHTED_LAST, &pools,
				&count))
		return;
	pools_read(look, pools, count, until_ns);
	free(pools);
}

/*
 * Within a window, reads the pools with blocks that no walk has shown: those that it does not show
 * are dropped at the window's end. What is found after the first probe has gone may be another
 * block, and is dropped.
 */
static void target_recheck_fresh(struct session *session, struct target *target)
{
	const struct target_recheck look = {session, target, 1};
	uint64_t began_ns = clock_ns(CLOCK_MONOTONIC), *pools;
	size_t count, done;
	int all;

	if (target->windows.dropped_ns && !target_is_native(target)) {
		last_read(&look, began_ns + LOOK_STRETCH_NS / 2);
		began_ns = clock_ns(CLOCK_MONOTONIC);
	}
	session_pull(session);
	/* Its records say for certain what has been allocated. */
	if (target_is_native(target)) {
		if (target->windows.dropped_ns && target_window_is_whole(target))
			target->windows.checked_ns = began_ns;
		return;
	}
	if (trace_sighted_pools(session->trace, target->index, SIGHTED_FRESH, &pools, &count))
		return;
	done = pools_read(&look, pools, count,
			  began_ns + (target->windows.dropped_ns ? LOOK_LAST_NS : LOOK_FIRST_NS));
	free(pools);
	all = target_large_fresh(session, target);
	if (done == count && all && target_window_is_whole(target))
		target->windows.checked_ns = began_ns;
}

static void target_last_begin(struct target *target)
{
	target->windows.last_after_ns = target_is_native(target) ? 0 : LAST_FIRST_NS;
	target->windows.last_took_ns = 0;
}

/* When the next recheck of the last window's pools is due; UINT64_MAX: none. */
static uint64_t target_last_due_ns(const struct target *target)
{
	const struct target_windows *windows = &target->windows;
	uint64_t most_ns = windows->windows.pause_ns / LAST_SHARE;

	return windows->last_after_ns && windows->last_took_ns * windows->windows.targets <= most_ns
		       ? windows->end.time_ns + windows->last_after_ns
		       : UINT64_MAX;
}

/*
 * After a window, reads its pools, at twice the time after its end each time: so it is known how
 * long blocks live, whether that is 10 ms or 200.
 */
static void target_recheck_last(struct session *session, struct target *target)
{
	const struct target_recheck look = {session, target, 0};
	struct target_windows *windows = &target->windows;
	uint64_t began_ns = clock_ns(CLOCK_MONOTONIC), now_ns;

	last_read(&look, began_ns + LOOK_STRETCH_NS / 2);
	now_ns = clock_ns(CLOCK_MONOTONIC);
	windows->last_took_ns += now_ns - began_ns;
	while (windows->end.time_ns + windows->last_after_ns <= now_ns)
		windows->last_after_ns *= 2;
	if (windows->last_after_ns > LAST_MOST_NS)
		windows->last_after_ns = 0;
}

/* Between windows, reads all pools in turn, as many as there is time for. */
static void target_recheck_all(struct session *session, struct target *target)
{
	const struct target_recheck look = {session, target, 0};
	struct target_windows *windows = &target->windows;
	uint64_t began_ns = clock_ns(CLOCK_MONOTONIC), *pools;
	size_t count, first = 0, done;

	if (target_is_native(target)) {
		target_native_walk(session, target);
		return;
	}
	last_read(&look, began_ns + LOOK_STRETCH_NS / 2);
	if (trace_sighted_pools(session->trace, target->index, SIGHTED_ALL, &pools, &count))
		return;
	while (first < count && pools[first] < windows->recheck_from)
		first++;
	if (first == count)
		first = 0;
	done = pools_read(&look, pools + first, count - first, began_ns + LOOK_STRETCH_NS);
	windows->recheck_from = first + done < count ? pools[first + done] : 0;
	free(pools);
	target_large_recheck(session, target);
	windows->recheck_ns = clock_ns(CLOCK_MONOTONIC);
	windows->recheck_took_ns = windows->recheck_ns - began_ns;
}

/* --- window cost ------------------------------------------------------------------------------ */

/* What a window has cost the target and the tracer. */

/* Placing and removing cost more than traps: copies of pages, flushes of translations. */
#define EDGES_SHARE 0.25

#define BUSY_THREADS 256u /* of a target that is asked for how long they run */

/* The CPU time of this process, and of the one that holds the probes. */
static uint64_t own_time(const struct session *session)
{
	pid_t holder = attach_holder(session->attach);
	clockid_t clock;

	return clock_ns(CLOCK_PROCESS_CPUTIME_ID) +
	       (holder > 0 && !clock_getcpuclockid(holder, &clock) ? clock_ns(clock) : 0);
}

/*
 * Hits cost what they do in that phase from here on; it is steady only if no window is open or
 * being closed.
 */
static void session_phase_enter(struct session *session, enum hit_phase phase)
{
	for (size_t i = 0; phase == HIT_STEADY && i < session->count; i++)
		if (target_window_busy(session->targets[i]))
			return;
	if (phase != session->hit_cost.phase)
		hit_cost_enter(&session->hit_cost, session->attach, phase);
}

/* This moment, of which only the time is valid without --overhead. */
static struct window_mark target_window_mark(const struct session *session,
					     const struct target *target)
{
	struct window_mark mark = {.time_ns = clock_ns(CLOCK_MONOTONIC)};

	if (session->opts.overhead <= 0)
		return mark;
	mark.cpu_ns = clock_ns(target->governor.clock);
	mark.own_ns = own_time(session);
	if (attach_hits(session->attach, target->pid, &mark.hits))
		mark.hits = 0;
	return mark;
}

static void target_window_times_begin(struct target *target)
{
	struct target_windows *windows = &target->windows;

	if (threads_time(target->pid, BUSY_THREADS, &windows->busy))
		windows->busy = (struct threads_time){0};
}

/* In the open window, as in event_window. */
static uint64_t target_window_busy_ns(const struct target *target)
{
	const struct threads_time *before = &target->windows.busy;
	struct threads_time now;

	/* The time of a thread that has ended meanwhile is not known. */
	if (!before->threads || threads_time(target->pid, BUSY_THREADS, &now) ||
	    now.threads != before->threads)
		return UINT64_MAX;
	return now.run_ns - before->run_ns + (now.wait_ns - before->wait_ns);
}

static double hits_cost(const struct session *session, const struct window_mark *from,
			const struct window_mark *to, enum hit_phase phase)
{
	return hit_cost_ns(&session->hit_cost, from->hits, to->hits, phase);
}

static double cpu_since(const struct window_mark *from, const struct window_mark *to)
{
	return to->cpu_ns > from->cpu_ns ? (double)(to->cpu_ns - from->cpu_ns) : 0;
}

/* CPU time that was lost, at most all of it. */
static double loss(const struct session *session, const struct window_mark *from,
		   const struct window_mark *to, double least_share)
{
	double cpu_ns = cpu_since(from, to);
	double cost_ns = hits_cost(session, from, to, HIT_WINDOW);

	if (cost_ns < least_share * cpu_ns)
		cost_ns = least_share * cpu_ns;
	return cost_ns < cpu_ns ? cost_ns : cpu_ns;
}

/* Of a target that is idle the budget is that of WINDOWS_RATE_MIN, so its share of that counts. */
static double base_share(const struct session *session, const struct target_windows *windows,
			 double cpu_ns, double elapsed_ns)
{
	double cost_ns = hits_cost(session, &windows->after, &windows->placing, HIT_STEADY);

	return fmin(cost_ns / fmax(cpu_ns, WINDOWS_RATE_MIN * elapsed_ns), 1);
}

/* Has the open window taken far more than windows do on average? */
static bool target_window_is_dear(const struct session *session, const struct target *target)
{
	const struct target_windows *windows = &target->windows;
	struct window_mark now = {.cpu_ns = clock_ns(target->governor.clock)};

	return !attach_hits(session->attach, target->pid, &now.hits) &&
	       loss(session, &windows->begin, &now, 0) > windows_loss_most(&windows->windows);
}

/* How long the last window was for the trace. */
static uint64_t shown_ns(const struct target_windows *windows)
{
	uint64_t end_ns = windows->checked_ns ? windows->checked_ns : windows->end.time_ns;

	return end_ns - windows->opened_ns;
}

/*
 * The kernel has removed the probes by now: tells the policy what the last window has cost. What
 * traps have taken after its last moment has shown nothing: where that is much, longer windows show
 * more for their price.
 */
static void target_window_judge(struct session *session, struct target *target,
				const struct window_mark *now)
{
	struct target_windows *windows = &target->windows;
	struct window_mark closing = windows->end;
	uint64_t open_ns = windows->end.time_ns - windows->opened_ns;
	double inside_ns = loss(session, &windows->begin, &windows->end, 0);
	struct windows_cost cost = {
		.length_ns = shown_ns(windows),
		.cpu_ns = (uint64_t)cpu_since(&windows->after, &windows->placing),
		.elapsed_ns = windows->placing.time_ns - windows->after.time_ns};
	double before_ns = cpu_since(&windows->after, &windows->placing), lost_ns;
	double cpu_ns = cpu_since(&windows->after, now);

	closing.hits = 0;
	cost.inside_ns = (uint64_t)(inside_ns * (double)cost.length_ns / ((double)open_ns + 1));
	cost.edges_ns = (uint64_t)(inside_ns - (double)cost.inside_ns +
				   loss(session, &windows->placing, &windows->begin, EDGES_SHARE) +
				   loss(session, &closing, now, EDGES_SHARE));
	/* What is read of the window's blocks takes as much as the target makes of them. */
	cost.own_ns = (windows->begin.own_ns - windows->placing.own_ns) +
		      (now->own_ns - windows->end.own_ns);
	if (before_ns > 0)
		cost.base = base_share(session, windows, before_ns, (double)cost.elapsed_ns);
	lost_ns = (double)(cost.inside_ns + cost.edges_ns);
	target->cost.probes_ns +=
		lost_ns + hits_cost(session, &windows->after, &windows->placing, HIT_STEADY);
	windows->inside = (struct governor_period){
		.now_ns = now->time_ns,
		.elapsed_ns = open_ns,
		.cpu_ns = (uint64_t)cpu_since(&windows->begin, &windows->end),
		.cost_ns = inside_ns};
	if (cpu_ns > 0)
		windows->share = fmin(cost.base + lost_ns / cpu_ns, 1);
	log_debug("PID %d: a window of %.1f ms took %.1f ms, and %.1f ms for its edges, of %.1f ms "
		  "CPU time in %.1f ms; other probes %.1f %%, the tracer %.1f ms",
		  target->pid, (double)cost.length_ns / 1e6, (double)cost.inside_ns / 1e6,
		  (double)cost.edges_ns / 1e6, cpu_ns / 1e6,
		  (double)(now->time_ns - windows->after.time_ns) / 1e6, cost.base * 100,
		  (double)cost.own_ns / 1e6);
	windows_took(&windows->windows, &cost);
}

/* --- target windows --------------------------------------------------------------------------- */

#define LOOK_PAUSE_NS   250000000ull
#define LOOK_SHARE      100u       /* looks take at most 1/100 of the time */
#define CLOSING_STEP_NS 5000000ull /* between two rechecks whether the kernel is done */
#define CLOSING_MAX_NS  2000000000ull
#define FOREIGN_NS      100000000ull /* closing, if other tracers' breakpoints are there, too */
#define GRACE_NS        15000000ull  /* the links are closed so long before the end */
#define GRACE_STEP_NS   4000000ull   /* between two rechecks of new blocks from then on */
#define NATIVE_STEP_NS  1000000ull   /* the same where there is nothing to read but probes */
#define GRACE_MAX_NS    40000000ull
#define FAILURES        5u /* in a row until windows are given up */

int target_windows_possible(const struct session *session, const struct target *target,
			    const struct plan_target *plan)
{
	if (attach_is_by_events(session->attach))
		return error_set(-ENOTSUP, "this kernel removes probes one by one, which takes "
					   "seconds");
	if (target_is_native(target))
		return target_native_possible(session, target, plan);
	if (target->heap_unreadable)
		return error_set(-ENOTSUP, "it has no Python heap that can be read");
	for (size_t i = 0; i < plan->python.count; i++)
		if (plan->python.sites[i].op == ABI_OP_POOL)
			return 0;
	return error_set(-ENOTSUP, "the probes of small and of large blocks cannot be told apart");
}

unsigned int target_window_groups(const struct target *target)
{
	if (target_is_native(target))
		return ATTACH_MALLOC;
	return ATTACH_POOLED | (target->large_windowed ? ATTACH_PASSED_ON : 0);
}

int target_window_busy(const struct target *target)
{
	return target->windows.state >= WINDOW_OPEN;
}

int session_windows_open(const struct session *session)
{
	for (size_t i = 0; i < session->count; i++)
		if (session->targets[i]->windows.state == WINDOW_OPEN)
			return 1;
	return 0;
}

static int window_feed(struct session *session, const struct target *target, uint64_t start_ns,
		       uint64_t end_ns, uint64_t busy_ns)
{
	const struct event_window record = {
		.header =
			RECORD_HEADER(EVENT_WINDOW, record, clock_ns(CLOCK_MONOTONIC), target->pid),
		.start_ns = start_ns,
		.end_ns = end_ns,
		.busy_ns = busy_ns};

	return target->ended ? -ESRCH : session_feed(session, &record, sizeof(record));
}

/* How BPF treats its probes between windows. */
static uint32_t target_paused(const struct target *target)
{
	return target_is_native(target) ? ABI_PAUSED_NATIVE
	       : target->large_windowed ? ABI_PAUSED_LARGE
					: ABI_PAUSED_POOLS;
}

static int pause_set(struct session *session, struct target *target, int paused)
{
	if (target->ended)
		return -ESRCH;
	target->runtime.target.paused = paused ? target_paused(target) : ABI_PAUSED_NO;
	target->runtime.target.window += !paused;
	return attach_target(session->attach, target->pid, &target->runtime.target);
}

/* The targets in windows mode, which share what the tracer may take. */
static size_t windowed_count(const struct session *session)
{
	size_t count = 0;

	for (size_t i = 0; i < session->count; i++)
		count += session->targets[i]->windows.state != WINDOW_NONE;
	return count;
}

/* Chooses the next window. */
static void wait_begin(struct session *session, struct target *target, uint64_t now_ns)
{
	struct target_windows *windows = &target->windows;

	windows->state = WINDOW_WAITING;
	windows->windows.targets = windowed_count(session);
	windows->windows.part = session_budget_part(session, now_ns);
	windows->windows.yields = governor_is_followed(&target->governor.governor);
	if (!windows_next(&windows->windows, now_ns, &windows->next))
		return;
	windows->next = (struct windows_next){.start_ns = UINT64_MAX};
	windows->refused = 1;
}

void target_windows_begin(struct session *session, struct target *target, struct plan_target *plan)
{
	struct target_windows *windows = &target->windows;

	target_windows_free(target);
	*windows = (struct target_windows){
		.windows = {.budget = session->opts.overhead,
			    .on_ns = session->opts.window_on_ns,
			    .off_ns = session->opts.window_off_ns,
			    .rate = target->governor.early ? target->governor.rate : 0,
			    .random = clock_ns(CLOCK_REALTIME) ^ (uint64_t)target->pid << 32},
		.plan = *plan,
		.recheck_ns = clock_ns(CLOCK_MONOTONIC),
	};
	*plan = (struct plan_target){0};
	/* These are the cache's, and are in place all the time. */
	if (!target_is_native(target))
		windows->plan.native_count = 0;
	target_text_find(target);
	windows->after = windows->end = target_window_mark(session, target);
	if (session->opts.overhead > 0)
		windows->state = WINDOW_CLOSING;
	else
		wait_begin(session, target, windows->recheck_ns);
}

void target_windows_again(struct session *session, struct target *target)
{
	struct target_windows *windows = &target->windows;

	target_text_find(target);
	windows->refused = 0;
	windows->opened_ns = 0;
	windows->end = target_window_mark(session, target);
	windows->closing_ns = windows->end.time_ns;
	windows->state = WINDOW_CLOSING;
}

void target_windows_extend(struct session *session, struct target *target, struct plan_target *plan)
{
	struct plan_target *old = &target->windows.plan;

	if (target->windows.state == WINDOW_NONE || !target_is_native(target))
		return;
	target_window_close(session, target);
	free(old->native);
	old->native = plan->native;
	old->native_count = plan->native_count;
	plan->native = NULL;
	plan->native_count = 0;
	target_text_find(target);
	/* Heaps of the new files are searched for by the next walk. */
	allocators_close(&target->windows.heaps);
	if (target_native_possible(session, target, old) == -ENOTSUP)
		log_info("PID %d: blocks of a newly mapped file count as freed after each window: "
			 "%s",
			 target->pid, error_reason(-ENOTSUP));
}

void target_windows_take(struct session *session, struct target *target)
{
	target->windows.state = WINDOW_OPEN;
	target_window_close(session, target);
	target->windows.state = WINDOW_WAITING;
	target->windows.next.start_ns = UINT64_MAX;
}

static void window_fail(struct session *session, struct target *target, int err)
{
	struct target_windows *windows = &target->windows;

	attach_drop(session->attach, target->pid, target_window_groups(target), 0);
	if (err == -ESRCH)
		return;
	if (!windows->failed++)
		log_info("PID %d: no probes in this window: %s", target->pid, error_reason(err));
	windows->refused |= windows->failed == FAILURES && session->opts.overhead > 0;
}

/*
 * Where windows follow closely, no recheck was due since the last one: what it has shown must be
 * asked for before the next one shows more.
 */
static void native_recheck(struct session *session, struct target *target)
{
	struct target_windows *windows = &target->windows;
	uint64_t since_ns = clock_ns(CLOCK_MONOTONIC) - windows->walked_ns;

	if (target_is_native(target) && windows->walked_ns < windows->end.time_ns &&
	    since_ns > LOOK_SHARE * windows->recheck_took_ns)
		target_native_walk(session, target);
}

static void window_open(struct session *session, struct target *target)
{
	struct target_windows *windows = &target->windows;
	int err;

	native_recheck(session, target);
	windows->site = 0;
	windows->foreign = target_window_is_probed(target);
	windows->dropped_ns = windows->checked_ns = 0;
	session_phase_enter(session, HIT_WINDOW);
	windows->placing = target_window_mark(session, target);
	err = target_probe(session, target, &windows->plan, target_window_groups(target));
	windows->marks = target_window_marks(target);
	session_pull(session);
	windows->opened_ns = clock_ns(CLOCK_MONOTONIC);
	if (!err)
		err = window_feed(session, target, windows->opened_ns, 0, 0);
	target_window_times_begin(target);
	windows->begin = target_window_mark(session, target);
	if (!err)
		err = pause_set(session, target, 0);
	if (err) {
		wait_begin(session, target, windows->opened_ns);
		window_fail(session, target, err);
		return;
	}
	windows->failed = 0;
	/* Hits are counted from zero after attach_target(). */
	windows->begin.hits = 0;
	windows->state = WINDOW_OPEN;
}

static uint64_t grace_step_ns(const struct target *target)
{
	return target_is_native(target) ? NATIVE_STEP_NS : GRACE_STEP_NS;
}

/* The removal begins. */
static void window_drop(struct session *session, struct target *target)
{
	struct target_windows *windows = &target->windows;

	/* Until now all are in place. */
	if (target_is_native(target))
		windows->checked_ns = clock_ns(CLOCK_MONOTONIC);
	attach_drop(session->attach, target->pid, target_window_groups(target), 0);
	windows->site = 0;
	windows->dropped_ns = clock_ns(CLOCK_MONOTONIC);
	windows->closing_ns = windows->dropped_ns + grace_step_ns(target);
}

/* From one recheck to the next. */
static uint64_t recheck_pause(const struct target_windows *windows)
{
	uint64_t targets = windows->windows.targets ? windows->windows.targets : 1;
	uint64_t pause_ns = LOOK_SHARE * targets * windows->recheck_took_ns;

	return pause_ns > LOOK_PAUSE_NS ? pause_ns : LOOK_PAUSE_NS;
}

void target_window_close(struct session *session, struct target *target)
{
	struct target_windows *windows = &target->windows;
	uint64_t end_ns, busy_ns;

	if (windows->state != WINDOW_OPEN)
		return;
	windows->state = WINDOW_CLOSING;
	busy_ns = target_window_busy_ns(target);
	target_recheck_fresh(session, target);
	windows->end = target_window_mark(session, target);
	end_ns = windows->opened_ns + shown_ns(windows);
	pause_set(session, target, 1);
	session_pull(session);
	window_feed(session, target, windows->opened_ns, end_ns, busy_ns);
	if (!target->ended && !windows->dropped_ns)
		window_drop(session, target);
	windows->recheck_ns = clock_ns(CLOCK_MONOTONIC);
	windows->closing_ns = windows->recheck_ns + CLOSING_STEP_NS;
	/* The first recheck comes at a random moment, so that it tells how long blocks live. */
	windows->recheck_ns -= hash_u64(windows->recheck_ns) % recheck_pause(windows);
	target_last_begin(target);
	/* What a window by hand costs is not measured. */
	if (session->opts.overhead > 0)
		return;
	log_debug("PID %d: a window of %.1f ms", target->pid,
		  (double)(end_ns - windows->opened_ns) / 1e6);
	wait_begin(session, target, clock_ns(CLOCK_MONOTONIC));
}

/* The window ends when the kernel begins to remove the breakpoints. */
static void window_ending(struct session *session, struct target *target, uint64_t now_ns)
{
	struct target_windows *windows = &target->windows;

	if (windows->foreign || now_ns - windows->dropped_ns >= GRACE_MAX_NS ||
	    !target_window_is_whole(target)) {
		target_window_close(session, target);
		return;
	}
	target_recheck_fresh(session, target);
	windows->closing_ns = clock_ns(CLOCK_MONOTONIC) + grace_step_ns(target);
}

/* Is the kernel done? Then the next window is chosen. */
static void closing_recheck(struct session *session, struct target *target, uint64_t now_ns)
{
	struct target_windows *windows = &target->windows;
	uint64_t since_ns = now_ns - windows->end.time_ns;
	struct window_mark now;

	windows->closing_ns = now_ns + CLOSING_STEP_NS;
	if (windows->foreign ? since_ns < FOREIGN_NS
			     : since_ns < CLOSING_MAX_NS && target_window_is_probed(target))
		return;
	now = target_window_mark(session, target);
	/* The first one is what census mode has seen, which was no window. */
	if (windows->opened_ns)
		target_window_judge(session, target, &now);
	windows->after = now;
	/* The governor judges the other probes from here on. */
	target_measure_begin(session, target);
	wait_begin(session, target, now.time_ns);
}

void target_windows_end(struct session *session, struct target *target)
{
	target_window_close(session, target);
	target_windows_free(target);
}

void target_windows_free(struct target *target)
{
	plan_target_free(&target->windows.plan);
	plan_text_free(&target->windows.text);
	allocators_close(&target->windows.heaps);
	target->windows = (struct target_windows){0};
}

int target_window_inherited(struct session *session, struct target *child)
{
	child->runtime.target.paused = target_paused(child);
	return window_feed(session, child, 0, clock_ns(CLOCK_MONOTONIC), UINT64_MAX);
}

static uint64_t grace_ns(const struct target_windows *windows)
{
	uint64_t half_ns = windows->next.length_ns / 2;

	return half_ns < GRACE_NS ? half_ns : GRACE_NS;
}

/* When something is due: a window's begin or end, or a recheck. */
static uint64_t due_ns(const struct target *target)
{
	const struct target_windows *windows = &target->windows;
	uint64_t recheck_ns;

	if (target->ended || windows->state == WINDOW_NONE)
		return UINT64_MAX;
	if (windows->state == WINDOW_OPEN && !windows->dropped_ns)
		return windows->opened_ns + windows->next.length_ns - grace_ns(windows);
	if (windows->state == WINDOW_OPEN || windows->state == WINDOW_CLOSING)
		return windows->closing_ns;
	recheck_ns = windows->recheck_ns + recheck_pause(windows);
	if (target_last_due_ns(target) < recheck_ns)
		recheck_ns = target_last_due_ns(target);
	return windows->next.start_ns < recheck_ns ? windows->next.start_ns : recheck_ns;
}

static bool is_ending(const struct target *target)
{
	return target->windows.state == WINDOW_OPEN || target->windows.state == WINDOW_CLOSING;
}

/* Is its first window what is due next? */
static bool begins_first(const struct target *target)
{
	const struct target_windows *windows = &target->windows;

	return windows->state == WINDOW_WAITING && !windows->windows.count &&
	       due_ns(target) == windows->next.start_ns;
}

uint64_t session_windows_left_ns(const struct session *session, uint64_t now_ns)
{
	uint64_t left_ns = UINT64_MAX;

	for (size_t i = 0; i < session->count; i++) {
		uint64_t at_ns = due_ns(session->targets[i]);

		if (begins_first(session->targets[i]) && at_ns < session->first_ns)
			at_ns = session->first_ns;
		if (at_ns != UINT64_MAX && (at_ns <= now_ns || at_ns - now_ns < left_ns))
			left_ns = at_ns <= now_ns ? 0 : at_ns - now_ns;
	}
	return left_ns;
}

static void target_due(struct session *session, struct target *target, uint64_t now_ns)
{
	struct target_windows *windows = &target->windows;

	/* Its table is final, or its next program is another target. */
	if (trace_process_at(session->trace, target->index)->end != TRACE_RUNNING) {
		target_windows_free(target);
		return;
	}
	if (windows->state == WINDOW_OPEN && !windows->dropped_ns) {
		/* The kernel may be faster than looks: what none has shown by then is dropped. */
		target_recheck_fresh(session, target);
		window_drop(session, target);
		/* Most pools: those that are left take less time at the window's end. */
		target_recheck_fresh(session, target);
	} else if (windows->state == WINDOW_OPEN)
		window_ending(session, target, now_ns);
	else if (windows->state == WINDOW_CLOSING)
		closing_recheck(session, target, now_ns);
	else if (windows->next.start_ns <= now_ns)
		window_open(session, target);
	else if (target_last_due_ns(target) <= now_ns)
		target_recheck_last(session, target);
	else
		target_recheck_all(session, target);
}

/*
 * The first windows of hundreds of processes are due at once, before anything is known of what they
 * cost: the kernel takes longer for each, the more processes have mapped the file. They take a
 * quarter of a CPU, and leave the rest to others.
 */
static void first_open(struct session *session, struct target *target, uint64_t now_ns)
{
	target_due(session, target, now_ns);
	uint64_t end_ns = clock_ns(CLOCK_MONOTONIC);

	session->first_ns = end_ns + FIRST_PAUSE * (end_ns - now_ns);
}

/* What is due, but for windows that are to end. */
static void due_step(struct session *session, struct target *target, uint64_t now_ns)
{
	if (!begins_first(target))
		target_due(session, target, now_ns);
	else if (session->first_ns <= now_ns)
		first_open(session, target, now_ns);
}

void session_windows_due(struct session *session, uint64_t now_ns)
{
	uint64_t until_ns;

	for (size_t i = 0; i < session->count; i++) {
		struct target *target = session->targets[i];

		if (target->windows.state == WINDOW_OPEN && session->opts.overhead > 0 &&
		    !target->ended && target_window_is_dear(session, target))
			target_window_close(session, target);
		if (!is_ending(target) || due_ns(target) > now_ns)
			continue;
		target_due(session, target, now_ns);
		now_ns = clock_ns(CLOCK_MONOTONIC);
	}
	/* In turn, and not for long: windows end meanwhile, and clients wait for answers. */
	until_ns = now_ns + DUE_STRETCH_NS;
	for (size_t n = session->count; n && now_ns < until_ns; n--) {
		struct target *target = session->targets[session->window_turn++ % session->count];

		if (is_ending(target) || due_ns(target) > now_ns)
			continue;
		due_step(session, target, now_ns);
		now_ns = clock_ns(CLOCK_MONOTONIC);
	}
	session_phase_enter(session, HIT_STEADY);
}
