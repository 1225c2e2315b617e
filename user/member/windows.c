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
 *             last moment is that of the last look at new blocks before (of the native layer: at
 *             the breakpoints)
 *   closing   the kernel removes the others
 *
 * The CPU time from placing to the end of closing that is not the target's own is the loss.
 * Between windows the pools with blocks that were seen are read a few times a second, so that
 * blocks that die are noticed before their addresses hold others.
 */
#include "member/windows.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "malloc/glibc.h"
#include "member/governor.h"
#include "member/member.h"
#include "member/probe.h"
#include "member/state.h"

#define LOOK_PAUSE_NS   250000000ull
#define LOOK_SHARE      100u       /* looks take at most 1/100 of the time */
#define CLOSING_STEP_NS 5000000ull /* between two looks whether the kernel is done */
#define CLOSING_MAX_NS  2000000000ull
#define FOREIGN_NS      100000000ull /* closing, if other tracers' breakpoints are there, too */
#define GRACE_NS        15000000ull  /* the links are closed so long before the end */
#define GRACE_STEP_NS   4000000ull   /* between two looks at new blocks from then on */
#define NATIVE_STEP_NS  1000000ull   /* the same where there is nothing to read but probes */
#define GRACE_MAX_NS    40000000ull
#define FAILURES        5u /* in a row until windows are given up */

int member_windows_possible(const struct session *session, const struct member *member,
			    const struct plan_target *plan)
{
	if (attach_is_by_events(session->attach))
		return error_set(-ENOTSUP, "this kernel removes probes one by one, which takes "
					   "seconds");
	if (member_is_native(member))
		return member_native_possible(session, member, plan);
	if (member->heap_unreadable)
		return error_set(-ENOTSUP, "it has no Python heap that can be read");
	for (size_t i = 0; i < plan->python.count; i++)
		if (plan->python.sites[i].op == ABI_OP_POOL)
			return 0;
	return error_set(-ENOTSUP, "the probes of small and of large blocks cannot be told apart");
}

unsigned int member_window_groups(const struct member *member)
{
	if (member_is_native(member))
		return ATTACH_MALLOC;
	return ATTACH_POOLED | (member->large_windowed ? ATTACH_PASSED_ON : 0);
}

int member_window_busy(const struct member *member)
{
	return member->windows.state >= WINDOW_OPEN;
}

int session_windows_open(const struct session *session)
{
	for (size_t i = 0; i < session->count; i++)
		if (session->members[i]->windows.state == WINDOW_OPEN)
			return 1;
	return 0;
}

static int window_feed(struct session *session, const struct member *member, uint64_t start_ns,
		       uint64_t end_ns, uint64_t busy_ns)
{
	const struct event_window record = {.header = {.type = EVENT_WINDOW,
						       .size = sizeof(record),
						       .time_ns = clock_ns(CLOCK_MONOTONIC),
						       .tgid = member->pid,
						       .tid = member->pid},
					    .start_ns = start_ns,
					    .end_ns = end_ns,
					    .busy_ns = busy_ns};

	return member->ended ? -ESRCH : session_feed(session, &record, sizeof(record));
}

/* How BPF treats its probes between windows. */
static uint32_t member_paused(const struct member *member)
{
	return member_is_native(member) ? ABI_PAUSED_NATIVE
	       : member->large_windowed ? ABI_PAUSED_LARGE
					: ABI_PAUSED_POOLS;
}

static int pause_set(struct session *session, struct member *member, int paused)
{
	if (member->ended)
		return -ESRCH;
	member->runtime.target.paused = paused ? member_paused(member) : ABI_PAUSED_NO;
	member->runtime.target.window += !paused;
	return attach_target(session->attach, member->pid, &member->runtime.target);
}

/* The members in windows mode, which share what the tracer may take. */
static size_t windowed_count(const struct session *session)
{
	size_t count = 0;

	for (size_t i = 0; i < session->count; i++)
		count += session->members[i]->windows.state != WINDOW_NONE;
	return count;
}

/* Chooses the next window. */
static void wait_begin(const struct session *session, struct member *member, uint64_t now_ns)
{
	struct member_windows *windows = &member->windows;

	windows->state = WINDOW_WAITING;
	windows->windows.targets = windowed_count(session);
	windows->windows.yields = governor_is_followed(&member->governor.governor);
	if (!windows_next(&windows->windows, now_ns, &windows->next))
		return;
	windows->next = (struct windows_next){.start_ns = UINT64_MAX};
	windows->refused = 1;
}

void member_windows_begin(struct session *session, struct member *member, struct plan_target *plan)
{
	struct member_windows *windows = &member->windows;

	member_windows_free(member);
	*windows = (struct member_windows){
		.windows = {.budget = session->opts.overhead,
			    .on_ns = session->opts.window_on_ns,
			    .off_ns = session->opts.window_off_ns,
			    .rate = member->governor.early ? member->governor.rate : 0,
			    .random = clock_ns(CLOCK_REALTIME) ^ (uint64_t)member->pid << 32},
		.plan = *plan,
		.look_ns = clock_ns(CLOCK_MONOTONIC),
	};
	*plan = (struct plan_target){0};
	/* These are the cache's, and are in place all the time. */
	if (!member_is_native(member))
		windows->plan.native_count = 0;
	member_text_find(member);
	windows->after = windows->end = member_window_mark(session, member);
	if (session->opts.overhead > 0)
		windows->state = WINDOW_CLOSING;
	else
		wait_begin(session, member, windows->look_ns);
}

void member_windows_again(struct session *session, struct member *member)
{
	struct member_windows *windows = &member->windows;

	member_text_find(member);
	windows->refused = 0;
	windows->opened_ns = 0;
	windows->end = member_window_mark(session, member);
	windows->closing_ns = windows->end.time_ns;
	windows->state = WINDOW_CLOSING;
}

void member_windows_extend(struct session *session, struct member *member, struct plan_target *plan)
{
	struct plan_target *old = &member->windows.plan;

	if (member->windows.state == WINDOW_NONE || !member_is_native(member))
		return;
	member_window_close(session, member);
	free(old->native);
	old->native = plan->native;
	old->native_count = plan->native_count;
	plan->native = NULL;
	plan->native_count = 0;
	member_text_find(member);
}

void member_windows_take(struct session *session, struct member *member)
{
	member->windows.state = WINDOW_OPEN;
	member_window_close(session, member);
	member->windows.state = WINDOW_WAITING;
	member->windows.next.start_ns = UINT64_MAX;
}

static void window_fail(struct session *session, struct member *member, int err)
{
	struct member_windows *windows = &member->windows;

	attach_drop(session->attach, member->pid, member_window_groups(member), 0);
	if (err == -ESRCH)
		return;
	if (!windows->failed++)
		log_info("PID %d: no probes in this window: %s", member->pid, error_reason(err));
	windows->refused |= windows->failed == FAILURES && session->opts.overhead > 0;
}

/*
 * Where windows follow closely, no look was due since the last one: what it has shown must be asked
 * for before the next one shows more.
 */
static void native_look(struct session *session, struct member *member)
{
	struct member_windows *windows = &member->windows;
	uint64_t since_ns = clock_ns(CLOCK_MONOTONIC) - windows->walked_ns;

	if (member_is_native(member) && windows->walked_ns < windows->end.time_ns &&
	    since_ns > LOOK_SHARE * windows->look_took_ns)
		member_native_walk(session, member);
}

static void window_open(struct session *session, struct member *member)
{
	struct member_windows *windows = &member->windows;
	int err;

	native_look(session, member);
	windows->site = 0;
	windows->foreign = member_window_is_probed(member);
	windows->dropped_ns = windows->checked_ns = 0;
	session_phase_enter(session, HIT_WINDOW);
	windows->placing = member_window_mark(session, member);
	err = member_probe(session, member, &windows->plan, member_window_groups(member));
	windows->marks = member_window_marks(member);
	session_pull(session);
	windows->opened_ns = clock_ns(CLOCK_MONOTONIC);
	if (!err)
		err = window_feed(session, member, windows->opened_ns, 0, 0);
	member_window_times_begin(member);
	windows->begin = member_window_mark(session, member);
	if (!err)
		err = pause_set(session, member, 0);
	if (err) {
		wait_begin(session, member, windows->opened_ns);
		window_fail(session, member, err);
		return;
	}
	windows->failed = 0;
	/* Hits are counted from zero after attach_target(). */
	windows->begin.hits = 0;
	windows->state = WINDOW_OPEN;
}

static uint64_t grace_step_ns(const struct member *member)
{
	return member_is_native(member) ? NATIVE_STEP_NS : GRACE_STEP_NS;
}

/* The removal begins. */
static void window_drop(struct session *session, struct member *member)
{
	struct member_windows *windows = &member->windows;

	/* Until now all are in place. */
	if (member_is_native(member))
		windows->checked_ns = clock_ns(CLOCK_MONOTONIC);
	attach_drop(session->attach, member->pid, member_window_groups(member), 0);
	windows->site = 0;
	windows->dropped_ns = clock_ns(CLOCK_MONOTONIC);
	windows->closing_ns = windows->dropped_ns + grace_step_ns(member);
}

/* From one look to the next. */
static uint64_t look_pause(const struct member_windows *windows)
{
	uint64_t targets = windows->windows.targets ? windows->windows.targets : 1;
	uint64_t pause_ns = LOOK_SHARE * targets * windows->look_took_ns;

	return pause_ns > LOOK_PAUSE_NS ? pause_ns : LOOK_PAUSE_NS;
}

void member_window_close(struct session *session, struct member *member)
{
	struct member_windows *windows = &member->windows;
	uint64_t end_ns, busy_ns;

	if (windows->state != WINDOW_OPEN)
		return;
	windows->state = WINDOW_CLOSING;
	busy_ns = member_window_busy_ns(member);
	member_look_fresh(session, member);
	windows->end = member_window_mark(session, member);
	end_ns = windows->checked_ns ? windows->checked_ns : windows->end.time_ns;
	/* The kernel is faster than the looks: from now on one comes before it begins. */
	windows->look_first |= !windows->checked_ns;
	pause_set(session, member, 1);
	session_pull(session);
	window_feed(session, member, windows->opened_ns, end_ns, busy_ns);
	if (!member->ended && !windows->dropped_ns)
		window_drop(session, member);
	windows->look_ns = clock_ns(CLOCK_MONOTONIC);
	windows->closing_ns = windows->look_ns + CLOSING_STEP_NS;
	/* The first look comes at a random moment, so that it tells how long blocks live. */
	windows->look_ns -= hash_u64(windows->look_ns) % look_pause(windows);
	member_last_begin(member);
	/* What a window by hand costs is not measured. */
	if (session->opts.overhead > 0)
		return;
	log_debug("PID %d: a window of %.1f ms", member->pid,
		  (double)(end_ns - windows->opened_ns) / 1e6);
	wait_begin(session, member, clock_ns(CLOCK_MONOTONIC));
}

/* The window ends when the kernel begins to remove the breakpoints. */
static void window_ending(struct session *session, struct member *member, uint64_t now_ns)
{
	struct member_windows *windows = &member->windows;

	if (windows->foreign || now_ns - windows->dropped_ns >= GRACE_MAX_NS ||
	    !member_window_is_whole(member)) {
		member_window_close(session, member);
		return;
	}
	member_look_fresh(session, member);
	windows->closing_ns = clock_ns(CLOCK_MONOTONIC) + grace_step_ns(member);
}

/* Is the kernel done? Then the next window is chosen. */
static void closing_look(struct session *session, struct member *member, uint64_t now_ns)
{
	struct member_windows *windows = &member->windows;
	uint64_t since_ns = now_ns - windows->end.time_ns;
	struct window_mark now;

	windows->closing_ns = now_ns + CLOSING_STEP_NS;
	if (windows->foreign ? since_ns < FOREIGN_NS
			     : since_ns < CLOSING_MAX_NS && member_window_is_probed(member))
		return;
	now = member_window_mark(session, member);
	/* The first one is what census mode has seen, which was no window. */
	if (windows->opened_ns)
		member_window_judge(session, member, &now);
	windows->after = now;
	/* The governor judges the other probes from here on. */
	member_measure_begin(session, member);
	wait_begin(session, member, now.time_ns);
}

void member_windows_end(struct session *session, struct member *member)
{
	member_window_close(session, member);
	member_windows_free(member);
}

void member_windows_free(struct member *member)
{
	plan_target_free(&member->windows.plan);
	plan_text_free(&member->windows.text);
	glibc_close(member->windows.glibc);
	member->windows = (struct member_windows){0};
}

int member_window_inherited(struct session *session, struct member *child)
{
	child->runtime.target.paused = member_paused(child);
	return window_feed(session, child, 0, clock_ns(CLOCK_MONOTONIC), UINT64_MAX);
}

static uint64_t grace_ns(const struct member_windows *windows)
{
	uint64_t half_ns = windows->next.length_ns / 2;

	return half_ns < GRACE_NS ? half_ns : GRACE_NS;
}

/* When something is due: a window's begin or end, or a look. */
static uint64_t due_ns(const struct member *member)
{
	const struct member_windows *windows = &member->windows;
	uint64_t look_ns;

	if (member->ended || windows->state == WINDOW_NONE)
		return UINT64_MAX;
	if (windows->state == WINDOW_OPEN && !windows->dropped_ns)
		return windows->opened_ns + windows->next.length_ns - grace_ns(windows);
	if (windows->state == WINDOW_OPEN || windows->state == WINDOW_CLOSING)
		return windows->closing_ns;
	look_ns = windows->look_ns + look_pause(windows);
	if (member_last_due_ns(member) < look_ns)
		look_ns = member_last_due_ns(member);
	return windows->next.start_ns < look_ns ? windows->next.start_ns : look_ns;
}

uint64_t session_windows_left_ns(const struct session *session, uint64_t now_ns)
{
	uint64_t left_ns = UINT64_MAX;

	for (size_t i = 0; i < session->count; i++) {
		uint64_t at_ns = due_ns(session->members[i]);

		if (at_ns != UINT64_MAX && (at_ns <= now_ns || at_ns - now_ns < left_ns))
			left_ns = at_ns <= now_ns ? 0 : at_ns - now_ns;
	}
	return left_ns;
}

static void member_due(struct session *session, struct member *member, uint64_t now_ns)
{
	struct member_windows *windows = &member->windows;

	/* Its table is final, or its next program is another member. */
	if (trace_process_at(session->trace, member->index)->end != TRACE_RUNNING) {
		member_windows_free(member);
		return;
	}
	if (windows->state == WINDOW_OPEN && !windows->dropped_ns) {
		if (windows->look_first)
			member_look_fresh(session, member);
		window_drop(session, member);
		/* Most pools: those that are left take less time at the window's end. */
		member_look_fresh(session, member);
	} else if (windows->state == WINDOW_OPEN)
		window_ending(session, member, now_ns);
	else if (windows->state == WINDOW_CLOSING)
		closing_look(session, member, now_ns);
	else if (windows->next.start_ns <= now_ns)
		window_open(session, member);
	else if (member_last_due_ns(member) <= now_ns)
		member_look_last(session, member);
	else
		member_look_all(session, member);
}

void session_windows_due(struct session *session, uint64_t now_ns)
{
	for (size_t i = 0; i < session->count; i++) {
		struct member *member = session->members[i];

		if (member->windows.state == WINDOW_OPEN && session->opts.overhead > 0 &&
		    !member->ended && member_window_is_dear(session, member))
			member_window_close(session, member);
		if (due_ns(member) > now_ns)
			continue;
		member_due(session, member, now_ns);
		now_ns = clock_ns(CLOCK_MONOTONIC);
	}
	session_phase_enter(session, HIT_STEADY);
}
