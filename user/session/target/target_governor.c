/* SPDX-License-Identifier: Apache-2.0 */
#include "session/target/target_governor.h"

#include <errno.h>
#include <stdlib.h>

#include "attach/links/hints.h"
#include "session/overhead/machine.h"
#include "session/target/mode.h"
#include "session/target/state.h"
#include "session/target/target.h"
#include "util/clock.h"
#include "util/error.h"

/* So many processes are looked at as often as a period allows. */
#define JUDGE_STRETCH_NS 20000000ull /* of all targets, until the buffer is drained */
#define LOOKS            16
#define RATE_LEAST_NS    100000000ull /* over which a process is seen to take CPU time */

int session_governor_begin(struct session *session)
{
	int err;

	if (session->opts.overhead <= 0)
		return 0;
	err = hit_cost_trap(&session->hit_cost, session->attach);
	if (err)
		return hint_tell(HINT_PROBE, err);
	hit_cost_count(&session->hit_cost, session->attach);
	log_debug("a probe costs %.2f us here, before its program runs",
		  session->hit_cost.trap_ns / 1e3);
	attach_count(session->attach, 1);
	return 0;
}

static uint64_t cpu_time(const struct target *target)
{
	return clock_ns(target->governor.clock);
}

double target_rate(const struct target *target)
{
	double rate =
		target->mode == EVENT_MODE_WINDOWS && !target->off && target->windows.windows.count
			? target->windows.windows.rate
			: target->governor.rate;

	return rate > 0 || target->windows.windows.count ? rate : WINDOWS_RATE_MIN;
}

double session_budget_part(struct session *session, uint64_t now_ns)
{
	double *rates;
	size_t count = 0;

	if (!(session->opts.machine_overhead > 0))
		return 1;
	if (session->part > 0 && now_ns < session->part_ns + GOVERNOR_PERIOD_NS)
		return session->part;
	rates = calloc(session->count + 1, sizeof(*rates));
	/* Without memory it stays as it is. */
	if (!rates)
		return session->part > 0 ? session->part : 1;
	for (size_t i = 0; i < session->count; i++)
		if (!session->targets[i]->ended && !session->targets[i]->off)
			rates[count++] = target_rate(session->targets[i]);
	session->part =
		machine_part(rates, count, session->opts.overhead, session->opts.machine_overhead);
	session->part_ns = now_ns;
	free(rates);
	return session->part;
}

uint64_t target_measure_begin(struct session *session, struct target *target)
{
	struct target_governor *state = &target->governor;

	if (attach_hits(session->attach, target->pid, &state->hits))
		state->hits = 0;
	state->measured_ns = clock_ns(CLOCK_MONOTONIC);
	state->cpu_ns = cpu_time(target);
	return state->hits;
}

int target_clock_begin(struct target *target)
{
	return clock_getcpuclockid(target->pid, &target->governor.clock) ? -ESRCH : 0;
}

int target_governor_begin(struct session *session, struct target *target)
{
	struct target_governor *governor = &target->governor;
	const struct governor_step first = {.mode = governor->early ? governor->mode : target->mode,
					    .sample_bytes = target->announced.sample_bytes};

	if (session->opts.overhead <= 0)
		return 0;
	if (target_clock_begin(target))
		return error_set(-ESRCH, "its CPU time cannot be read");
	governor_plan(&governor->governor, session->opts.overhead, &first,
		      target_is_pages(target)   ? GOVERNOR_PAGES
		      : target->heap_unreadable ? GOVERNOR_NATIVE
						: GOVERNOR_HEAP);
	/* Its heap could not be read after all: the windows end. */
	if (governor->early && !governor_begin_early(&governor->governor, governor->rate))
		target->windows.refused = 1;
	/* No windows are possible, and all probes are in place. */
	if (!governor->early && governor->careful)
		governor_be_careful(&governor->governor, governor->rate);
	if (target->off)
		governor->governor.step = governor->governor.count - 1;
	target_measure_begin(session, target);
	return 0;
}

void target_busy_begin(const struct session *session, struct target *target)
{
	struct target_governor *state = &target->governor;

	if (session->opts.overhead <= 0 || target_clock_begin(target))
		return;
	state->measured_ns = clock_ns(CLOCK_MONOTONIC);
	state->cpu_ns = cpu_time(target);
}

static void rate_measure(struct target *target, uint64_t least_ns)
{
	struct target_governor *state = &target->governor;
	uint64_t elapsed_ns = clock_ns(CLOCK_MONOTONIC) - state->measured_ns;

	if (elapsed_ns < least_ns) {
		const struct timespec rest = {.tv_nsec = (long)(least_ns - elapsed_ns)};

		nanosleep(&rest, NULL);
		elapsed_ns = clock_ns(CLOCK_MONOTONIC) - state->measured_ns;
	}
	state->rate = (double)(cpu_time(target) - state->cpu_ns) / (double)(elapsed_ns + 1);
}

void target_begin_early(const struct session *session, struct target *target,
			const struct plan_target *plan)
{
	struct target_governor *state = &target->governor;
	int asked = session->opts.plan.mode_asked;

	if (session->opts.overhead <= 0 || !state->measured_ns || session->opts.sample_bytes ||
	    target_is_pages(target) ||
	    (target->mode != EVENT_MODE_CENSUS && target->mode != EVENT_MODE_EXACT))
		return;
	/* An idle process begins in the mode that was asked for. */
	rate_measure(target, asked ? EARLY_LEAST_NS : 0);
	if (asked && state->rate < EARLY_BUSY_SHARE)
		return;
	state->careful = 1;
	if (target_windows_possible(session, target, plan))
		return;
	state->early = 1;
	state->mode = target->mode;
	target_mode_take(target, EVENT_MODE_WINDOWS);
}

/* Skips steps that fail; the last one cannot fail. */
static void step_take(struct session *session, struct target *target)
{
	struct governor *governor = &target->governor.governor;
	int err;

	target_cost_feed(session, target, clock_ns(CLOCK_MONOTONIC));
	for (;;) {
		const struct governor_step *step = &governor->steps[governor->step];
		double cost = governor->tried ? 0 : governor->share;

		err = target_mode_change(session, target, step, cost, governor->budget);
		if (!err || err == -ESRCH || step->mode == EVENT_MODE_OFF)
			break;
		log_info("PID %d: not in %s mode: %s", target->pid, snapshot_mode_name(step->mode),
			 error_reason(err));
		governor_refuse(governor);
	}
	hit_cost_count(&session->hit_cost, session->attach);
}

int target_period(struct session *session, const struct target *target, uint64_t now_ns,
		  struct governor_period *out)
{
	const struct target_governor *state = &target->governor;
	uint64_t hits;

	/* It has ended or called exec. */
	if (trace_process_at(session->trace, target->index)->end != TRACE_RUNNING ||
	    attach_hits(session->attach, target->pid, &hits))
		return -ESRCH;
	*out = (struct governor_period){
		.now_ns = now_ns,
		.elapsed_ns = now_ns - state->measured_ns,
		.cpu_ns = cpu_time(target) - state->cpu_ns,
		.cost_ns = hit_cost_ns(&session->hit_cost, state->hits, hits, HIT_STEADY),
	};
	return 0;
}

/* 1: its first window allows another mode. */
static int window_judge(struct target *target)
{
	struct governor_period window = target->windows.inside;

	target->windows.inside.cpu_ns = 0;
	return window.cpu_ns && governor_first_window(&target->governor.governor, &window);
}

static void target_judge(struct session *session, struct target *target, uint64_t now_ns)
{
	struct target_governor *state = &target->governor;
	struct governor_period period;
	uint64_t hits;

	if (target_period(session, target, now_ns, &period))
		return;
	hits = target_measure_begin(session, target);
	if (period.elapsed_ns >= RATE_LEAST_NS)
		state->rate = (double)period.cpu_ns / (double)period.elapsed_ns;
	state->governor.budget = session->opts.overhead * session_budget_part(session, now_ns);
	log_debug("PID %d: probes took %.1f %% of %.1f ms (a program runs %.0f ns)", target->pid,
		  period.cpu_ns ? period.cost_ns * 100 / (double)period.cpu_ns : 0,
		  (double)period.cpu_ns / 1e6, session->hit_cost.run_ns[HIT_STEADY]);
	windows_others_took(&target->windows.windows, period.cost_ns, period.elapsed_ns);
	if (target->windows.refused) {
		target->windows.refused = 0;
		state->governor.share = target->windows.share;
		governor_narrow(&state->governor, now_ns);
	} else if (!window_judge(target) && !governor_judge(&state->governor, &period)) {
		return;
	}
	step_take(session, target);
	period.cost_ns = hit_cost_ns(&session->hit_cost, hits,
				     target_measure_begin(session, target), HIT_STEADY);
	governor_changed(&state->governor, state->measured_ns, period.cost_ns);
	windows_others_took(&target->windows.windows, period.cost_ns, 0);
	windows_others_gone(&target->windows.windows, state->measured_ns);
}

/*
 * A refused window, and the first one, are judged at once: where windows follow closely, no period
 * between two of them is long enough.
 */
static int window_waits(const struct target *target)
{
	return target->windows.refused ||
	       (target->governor.governor.early && target->windows.inside.cpu_ns);
}

/* Does it cost too much since it was measured? It may have become busy a moment ago. */
static bool is_exceeded(const struct session *session, struct target *target, uint64_t now_ns)
{
	struct target_governor *state = &target->governor;
	uint64_t hits;

	if (now_ns < state->looked_ns + GOVERNOR_SHORT_NS * (1 + session->count / LOOKS))
		return 0;
	state->looked_ns = now_ns;
	return !attach_hits(session->attach, target->pid, &hits) &&
	       governor_is_exceeded(&state->governor,
				    hit_cost_ns(&session->hit_cost, state->hits, hits, HIT_STEADY),
				    now_ns);
}

static bool is_due(const struct session *session, struct target *target, uint64_t now_ns)
{
	const struct target_governor *state = &target->governor;

	return window_waits(target) ||
	       now_ns - state->measured_ns >= governor_wait(&state->governor, now_ns) ||
	       is_exceeded(session, target, now_ns);
}

void session_governor_due(struct session *session, uint64_t now_ns)
{
	uint64_t until_ns = now_ns + JUDGE_STRETCH_NS;
	int looked = 0;

	if (session->opts.overhead <= 0)
		return;
	/* To remove probes may take a second of each of hundreds: clients wait for answers. */
	for (size_t n = session->count; n && clock_ns(CLOCK_MONOTONIC) < until_ns; n--) {
		struct target *target = session->targets[session->judge_turn++ % session->count];

		if (target->ended || target->inherited || !target->governor.measured_ns ||
		    target_window_busy(target) || !is_due(session, target, now_ns))
			continue;
		if (!looked++)
			hit_cost_update(&session->hit_cost, session->attach);
		target_judge(session, target, now_ns);
	}
}
