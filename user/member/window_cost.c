/* SPDX-License-Identifier: Apache-2.0 */
/* What a window has cost the target and the tracer. */
#include <math.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "member/member.h"
#include "member/state.h"
#include "member/windows.h"
#include "process/threads.h"

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

void session_phase_enter(struct session *session, enum hit_phase phase)
{
	for (size_t i = 0; phase == HIT_STEADY && i < session->count; i++)
		if (member_window_busy(session->members[i]))
			return;
	if (phase != session->hit_cost.phase)
		hit_cost_enter(&session->hit_cost, session->attach, phase);
}

struct window_mark member_window_mark(const struct session *session, const struct member *member)
{
	struct window_mark mark = {.time_ns = clock_ns(CLOCK_MONOTONIC)};

	if (session->opts.overhead <= 0)
		return mark;
	mark.cpu_ns = clock_ns(member->governor.clock);
	mark.own_ns = own_time(session);
	if (attach_hits(session->attach, member->pid, &mark.hits))
		mark.hits = 0;
	return mark;
}

void member_window_times_begin(struct member *member)
{
	struct member_windows *windows = &member->windows;

	if (threads_time(member->pid, BUSY_THREADS, &windows->busy))
		windows->busy = (struct threads_time){0};
}

uint64_t member_window_busy_ns(const struct member *member)
{
	const struct threads_time *before = &member->windows.busy;
	struct threads_time now;

	/* Threads that have ended meanwhile took what they had to tell with them. */
	if (!before->threads || threads_time(member->pid, BUSY_THREADS, &now) ||
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
static double base_share(const struct session *session, const struct member_windows *windows,
			 double cpu_ns, double elapsed_ns)
{
	double cost_ns = hits_cost(session, &windows->after, &windows->placing, HIT_STEADY);

	return fmin(cost_ns / fmax(cpu_ns, WINDOWS_RATE_MIN * elapsed_ns), 1);
}

int member_window_is_dear(const struct session *session, const struct member *member)
{
	const struct member_windows *windows = &member->windows;
	struct window_mark now = {.cpu_ns = clock_ns(member->governor.clock)};

	return !attach_hits(session->attach, member->pid, &now.hits) &&
	       loss(session, &windows->begin, &now, 0) > windows_loss_most(&windows->windows);
}

void member_window_judge(struct session *session, struct member *member,
			 const struct window_mark *now)
{
	struct member_windows *windows = &member->windows;
	struct window_mark closing = windows->end;
	struct windows_cost cost = {
		.length_ns = windows->end.time_ns - windows->opened_ns,
		.cpu_ns = (uint64_t)cpu_since(&windows->after, &windows->placing),
		.elapsed_ns = windows->placing.time_ns - windows->after.time_ns};
	double before_ns = cpu_since(&windows->after, &windows->placing), lost_ns;
	double cpu_ns = cpu_since(&windows->after, now);

	closing.hits = 0;
	cost.inside_ns = (uint64_t)loss(session, &windows->begin, &windows->end, 0);
	cost.edges_ns = (uint64_t)(loss(session, &windows->placing, &windows->begin, EDGES_SHARE) +
				   loss(session, &closing, now, EDGES_SHARE));
	/* What is read of the window's blocks takes as much as the target makes of them. */
	cost.own_ns = (windows->begin.own_ns - windows->placing.own_ns) +
		      (now->own_ns - windows->end.own_ns);
	if (before_ns > 0)
		cost.base = base_share(session, windows, before_ns, (double)cost.elapsed_ns);
	lost_ns = (double)(cost.inside_ns + cost.edges_ns);
	member->cost.probes_ns +=
		lost_ns + hits_cost(session, &windows->after, &windows->placing, HIT_STEADY);
	windows->inside = (struct governor_period){
		.now_ns = now->time_ns,
		.elapsed_ns = cost.length_ns,
		.cpu_ns = (uint64_t)cpu_since(&windows->begin, &windows->end),
		.cost_ns = (double)cost.inside_ns};
	if (cpu_ns > 0)
		windows->share = fmin(cost.base + lost_ns / cpu_ns, 1);
	log_debug("PID %d: a window of %.1f ms took %.1f ms, and %.1f ms for its edges, of %.1f ms "
		  "CPU time in %.1f ms; other probes %.1f %%, the tracer %.1f ms",
		  member->pid, (double)cost.length_ns / 1e6, (double)cost.inside_ns / 1e6,
		  (double)cost.edges_ns / 1e6, cpu_ns / 1e6,
		  (double)(now->time_ns - windows->after.time_ns) / 1e6, cost.base * 100,
		  (double)cost.own_ns / 1e6);
	windows_took(&windows->windows, &cost);
}
