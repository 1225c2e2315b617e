/* SPDX-License-Identifier: Apache-2.0 */
#include "member/governor.h"

#include <errno.h>

#include "base/clock.h"
#include "base/error.h"
#include "links/obstacles.h"
#include "member/member.h"
#include "member/mode.h"
#include "member/state.h"

/* So many processes are looked at as often as a period allows. */
#define LOOKS 16

int session_governor_begin(struct session *session)
{
	int err;

	if (session->opts.overhead <= 0)
		return 0;
	err = hit_cost_trap(&session->hit_cost, session->attach);
	if (err)
		return obstacle_tell(OBSTACLE_PROBE, err);
	hit_cost_count(&session->hit_cost, session->attach);
	log_debug("a probe costs %.2f us here, before its program runs",
		  session->hit_cost.trap_ns / 1e3);
	attach_count(session->attach, 1);
	return 0;
}

static uint64_t cpu_time(const struct member *member)
{
	return clock_ns(member->governor.clock);
}

uint64_t member_measure_begin(struct session *session, struct member *member)
{
	struct member_governor *state = &member->governor;

	if (attach_hits(session->attach, member->pid, &state->hits))
		state->hits = 0;
	state->measured_ns = clock_ns(CLOCK_MONOTONIC);
	state->cpu_ns = cpu_time(member);
	return state->hits;
}

int member_clock_begin(struct member *member)
{
	return clock_getcpuclockid(member->pid, &member->governor.clock) ? -ESRCH : 0;
}

int member_governor_begin(struct session *session, struct member *member)
{
	struct member_governor *governor = &member->governor;
	const struct governor_step first = {.mode = governor->early ? governor->mode : member->mode,
					    .sample_bytes = member->announced.sample_bytes};

	if (session->opts.overhead <= 0)
		return 0;
	if (member_clock_begin(member))
		return error_set(-ESRCH, "its CPU time cannot be read");
	governor_plan(&governor->governor, session->opts.overhead, &first,
		      !member->heap_unreadable);
	/* Its heap could not be read after all: the windows end. */
	if (governor->early && !governor_begin_early(&governor->governor, governor->rate))
		member->windows.refused = 1;
	/* No windows are possible, and all probes are in place. */
	if (!governor->early && governor->careful)
		governor_be_careful(&governor->governor, governor->rate);
	if (member->off)
		governor->governor.step = governor->governor.count - 1;
	member_measure_begin(session, member);
	return 0;
}

void member_busy_begin(const struct session *session, struct member *member)
{
	struct member_governor *state = &member->governor;

	if (session->opts.overhead <= 0 || member_clock_begin(member))
		return;
	state->measured_ns = clock_ns(CLOCK_MONOTONIC);
	state->cpu_ns = cpu_time(member);
}

static void rate_measure(struct member *member, uint64_t least_ns)
{
	struct member_governor *state = &member->governor;
	uint64_t elapsed_ns = clock_ns(CLOCK_MONOTONIC) - state->measured_ns;

	if (elapsed_ns < least_ns) {
		const struct timespec rest = {.tv_nsec = (long)(least_ns - elapsed_ns)};

		nanosleep(&rest, NULL);
		elapsed_ns = clock_ns(CLOCK_MONOTONIC) - state->measured_ns;
	}
	state->rate = (double)(cpu_time(member) - state->cpu_ns) / (double)(elapsed_ns + 1);
}

void member_begin_early(const struct session *session, struct member *member,
			const struct plan_target *plan)
{
	struct member_governor *state = &member->governor;
	int asked = session->opts.plan.mode_asked;

	if (session->opts.overhead <= 0 || !state->measured_ns || session->opts.sample_bytes ||
	    (member->mode != EVENT_MODE_CENSUS && member->mode != EVENT_MODE_EXACT))
		return;
	/* An idle process begins in the mode that was asked for. */
	rate_measure(member, asked ? EARLY_LEAST_NS : 0);
	if (asked && state->rate < EARLY_BUSY_SHARE)
		return;
	state->careful = 1;
	if (member_windows_possible(session, member, plan))
		return;
	state->early = 1;
	state->mode = member->mode;
	member_mode_take(member, EVENT_MODE_WINDOWS);
}

/* Skips steps that fail; the last one cannot fail. */
static void step_take(struct session *session, struct member *member)
{
	struct governor *governor = &member->governor.governor;
	int err;

	member_cost_feed(session, member, clock_ns(CLOCK_MONOTONIC));
	for (;;) {
		const struct governor_step *step = &governor->steps[governor->step];
		double cost = governor->tried ? 0 : governor->share;

		err = member_mode_change(session, member, step, cost, governor->budget);
		if (!err || err == -ESRCH || step->mode == EVENT_MODE_OFF)
			break;
		log_info("PID %d: not in %s mode: %s", member->pid, snapshot_mode_name(step->mode),
			 error_reason(err));
		governor_refuse(governor);
	}
	hit_cost_count(&session->hit_cost, session->attach);
}

int member_period(struct session *session, const struct member *member, uint64_t now_ns,
		  struct governor_period *out)
{
	const struct member_governor *state = &member->governor;
	uint64_t hits;

	/* It has ended or called exec. */
	if (trace_process_at(session->trace, member->index)->end != TRACE_RUNNING ||
	    attach_hits(session->attach, member->pid, &hits))
		return -ESRCH;
	*out = (struct governor_period){
		.now_ns = now_ns,
		.elapsed_ns = now_ns - state->measured_ns,
		.cpu_ns = cpu_time(member) - state->cpu_ns,
		.cost_ns = hit_cost_ns(&session->hit_cost, state->hits, hits, HIT_STEADY),
	};
	return 0;
}

/* 1: its first window allows another mode. */
static int window_judge(struct member *member)
{
	struct governor_period window = member->windows.inside;

	member->windows.inside.cpu_ns = 0;
	return window.cpu_ns && governor_first_window(&member->governor.governor, &window);
}

static void member_judge(struct session *session, struct member *member, uint64_t now_ns)
{
	struct member_governor *state = &member->governor;
	struct governor_period period;
	uint64_t hits;

	if (member_period(session, member, now_ns, &period))
		return;
	hits = member_measure_begin(session, member);
	log_debug("PID %d: probes took %.1f %% of %.1f ms (a program runs %.0f ns)", member->pid,
		  period.cpu_ns ? period.cost_ns * 100 / (double)period.cpu_ns : 0,
		  (double)period.cpu_ns / 1e6, session->hit_cost.run_ns[HIT_STEADY]);
	windows_others_took(&member->windows.windows, period.cost_ns, period.elapsed_ns);
	if (member->windows.refused) {
		member->windows.refused = 0;
		state->governor.share = member->windows.share;
		governor_narrow(&state->governor, now_ns);
	} else if (!window_judge(member) && !governor_judge(&state->governor, &period)) {
		return;
	}
	step_take(session, member);
	period.cost_ns = hit_cost_ns(&session->hit_cost, hits,
				     member_measure_begin(session, member), HIT_STEADY);
	governor_changed(&state->governor, state->measured_ns, period.cost_ns);
	windows_others_took(&member->windows.windows, period.cost_ns, 0);
	windows_others_gone(&member->windows.windows, state->measured_ns);
}

/*
 * A refused window, and the first one, are judged at once: where windows follow closely, no period
 * between two of them is long enough.
 */
static int window_waits(const struct member *member)
{
	return member->windows.refused ||
	       (member->governor.governor.early && member->windows.inside.cpu_ns);
}

/* Does it cost too much since it was measured? It may have become busy a moment ago. */
static int is_exceeded(const struct session *session, struct member *member, uint64_t now_ns)
{
	struct member_governor *state = &member->governor;
	uint64_t hits;

	if (now_ns < state->looked_ns + GOVERNOR_SHORT_NS * (1 + session->count / LOOKS))
		return 0;
	state->looked_ns = now_ns;
	return !attach_hits(session->attach, member->pid, &hits) &&
	       governor_is_exceeded(&state->governor,
				    hit_cost_ns(&session->hit_cost, state->hits, hits, HIT_STEADY),
				    now_ns);
}

static int is_due(const struct session *session, struct member *member, uint64_t now_ns)
{
	const struct member_governor *state = &member->governor;

	return window_waits(member) ||
	       now_ns - state->measured_ns >= governor_wait(&state->governor, now_ns) ||
	       is_exceeded(session, member, now_ns);
}

void session_governor_due(struct session *session, uint64_t now_ns)
{
	int looked = 0;

	if (session->opts.overhead <= 0)
		return;
	for (size_t i = 0; i < session->count; i++) {
		struct member *member = session->members[i];

		if (member->ended || member->inherited || !member->governor.measured_ns ||
		    member_window_busy(member) || !is_due(session, member, now_ns))
			continue;
		if (!looked++)
			hit_cost_update(&session->hit_cost, session->attach);
		member_judge(session, member, now_ns);
	}
}
