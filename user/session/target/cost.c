/* SPDX-License-Identifier: Apache-2.0 */
#include "session/target/cost.h"

#include <errno.h>
#include <stdio.h>

#include "proc/patience.h"
#include "report/caveats/not_seen.h"
#include "session/target/state.h"
#include "session/target/target.h"
#include "session/target/target_governor.h"
#include "session/target/target_windows.h"
#include "util/clock.h"
#include "util/error.h"

#define WAIT_THREADS 64u /* of a process that is asked how long they wait */

/* The result over all processes. */
struct notice {
	const struct target *worst;
	double share; /* of that one */
	size_t dear;  /* so many lose more than COST_NOTICE_SHARE */
};

static void cost_give_up(struct session *session)
{
	session->cost.failed = 1;
	attach_count(session->attach, 0);
	hit_cost_end(&session->hit_cost);
}

/* Is it known what the hits of probes cost? */
static bool cost_is_known(const struct session *session)
{
	return (session->opts.overhead > 0 || session->cost.counts) &&
	       session->hit_cost.trap_ns > 0;
}

void session_cost_prepare(struct session *session)
{
	struct session_cost *cost = &session->cost;

	if (session->opts.overhead > 0 || session->opts.window_on_ns || cost->counts)
		return;
	cost->counts = 1;
	hit_cost_count(&session->hit_cost, session->attach);
	attach_count(session->attach, 1);
}

/* Only a notice depends on it: missing privileges are no error. */
void session_cost_trap_begin(struct session *session)
{
	/* It starts a process: while the kernel waits for a lock to place probes, none starts. */
	if (patience_is_ending())
		return;
	if (session->cost.counts && !session->cost.failed && !(session->hit_cost.trap_ns > 0) &&
	    hit_cost_trap_begin(&session->hit_cost, session->attach))
		cost_give_up(session);
}

/* CPU time of the process. 0; -ESRCH: it has ended. */
/* Threads that begin or end meanwhile take what they waited with them. */
static void wait_take(struct target *target)
{
	struct target_cost *cost = &target->cost;
	struct threads_time now;

	if (threads_time(target->pid, WAIT_THREADS, &now))
		return;
	if (now.threads == cost->waited.threads && now.wait_ns > cost->waited.wait_ns)
		cost->wait_ns += now.wait_ns - cost->waited.wait_ns;
	cost->waited = now;
}

void target_cost_begin(struct session *session, struct target *target, int ran)
{
	struct target_cost *cost = &target->cost;

	if (clock_getcpuclockid(target->pid, &cost->clock) ||
	    clock_read(cost->clock, &cost->begin_cpu_ns))
		return;
	if (attach_hits(session->attach, target->pid, &cost->hits))
		cost->hits = 0;
	cost->begun = 1;
	wait_take(target);
	cost->wait_ns = 0;
	if (!session->cost.counts || session->cost.failed)
		return;
	if (!session->cost.recheck_ns)
		session->cost.recheck_ns = clock_ns(CLOCK_MONOTONIC) + COST_NOTICE_NS;
	if (ran && !target_clock_begin(target))
		target_measure_begin(session, target);
}

/* What windows took is added as they are judged. */
static void hits_take(struct session *session, struct target *target)
{
	struct target_cost *cost = &target->cost;
	uint64_t hits;

	if (!cost_is_known(session) || attach_hits(session->attach, target->pid, &hits))
		return;
	if (target->mode != EVENT_MODE_WINDOWS || target->off)
		cost->probes_ns += hit_cost_ns(&session->hit_cost, cost->hits, hits, HIT_STEADY);
	cost->hits = hits;
}

void target_cost_feed(struct session *session, struct target *target, uint64_t now_ns)
{
	const struct target_cost *cost = &target->cost;
	struct event_cost record = {.header =
					    RECORD_HEADER(EVENT_COST, record, now_ns, target->pid),
				    .probes_ns = EVENT_COST_UNKNOWN};

	uint64_t cpu_ns;

	if (target->ended || !cost->begun || clock_read(cost->clock, &cpu_ns))
		return;
	hits_take(session, target);
	wait_take(target);
	record.cpu_ns = cpu_ns - cost->begin_cpu_ns;
	record.wait_ns = cost->wait_ns;
	/* The cost of a hit is a mean, so it may exceed what the process ran. */
	if (cost_is_known(session) && (double)record.cpu_ns > cost->probes_ns)
		record.probes_ns = (uint64_t)cost->probes_ns;
	else if (cost_is_known(session))
		record.probes_ns = record.cpu_ns;
	session_feed(session, &record, sizeof(record));
}

static void target_recheck(struct session *session, struct target *target, uint64_t now_ns,
			   struct notice *notice)
{
	struct governor_period period;
	double share;

	if (target->ended || !target->governor.measured_ns ||
	    target_period(session, target, now_ns, &period))
		return;
	target_measure_begin(session, target);
	if (period.cpu_ns * 100 < period.elapsed_ns * GOVERNOR_IDLE_PERCENT)
		return;
	/* The cost of a hit is a mean, so the share may exceed 1. */
	share = period.cost_ns < (double)period.cpu_ns ? period.cost_ns / (double)period.cpu_ns : 1;
	notice->dear += share > COST_NOTICE_SHARE;
	if (notice->worst && notice->share >= share)
		return;
	notice->worst = target;
	notice->share = share;
}

/* The cheaper modes for the process. */
static const char *cheaper_modes(const struct session *session, const struct target *target)
{
	if (target->mode == EVENT_MODE_GROWTH)
		return "--overhead 5 holds that under a budget";
	if (target->layers & 1u << EVENT_LAYER_PYTHON)
		return "--overhead 5 holds that under a budget, -m growth sees only where the heap "
		       "grows, at next to no cost";
	if (target_large_possible(target))
		return session->opts.sample_bytes ? "no mode is cheaper, since its malloc is not "
						    "glibc's"
						  : "--sample 512K spares stacks and records";
	return session->opts.sample_bytes
		       ? "--overhead 5 holds that under a budget"
		       : "--overhead 5 holds that under a budget, --sample 512K spares stacks and "
			 "records";
}

/* Measures what a hit costs. 0; -errno: it cannot be. */
static int hits_measure(struct session *session)
{
	struct hit_cost *hit = &session->hit_cost;
	int err = hit->trap_ns > 0 ? 0 : hit_cost_trap(hit, session->attach);

	if (err || hit->stats < 0)
		return err;
	hit_cost_update(hit, session->attach);
	/* Counting costs each hit, too. */
	if (hit->run_ns[HIT_STEADY] > 0)
		hit_cost_end(hit);
	return 0;
}

static void notice_print(const struct session *session, const struct notice *notice)
{
	char took[COST_TEXT], slows[COST_TEXT], slowed[48] = "", others[64] = "";

	if (notice->share >= COST_SLOWED)
		snprintf(slowed, sizeof(slowed), ", which slows it to %s",
			 cost_slowed_text(slows, notice->share));
	if (notice->dear > 1)
		snprintf(others, sizeof(others), " (more than half for %zu others, too)",
			 notice->dear - 1);
	log_info("PID %d: the probes take %s of its CPU time%s%s%s%s", notice->worst->pid,
		 cost_share_text(took, notice->share), slowed, others, notice->dear ? ": " : "",
		 notice->dear ? cheaper_modes(session, notice->worst) : "");
}

void session_cost_due(struct session *session, uint64_t now_ns)
{
	struct session_cost *cost = &session->cost;
	struct notice notice = {0};

	if (cost->failed || !cost->recheck_ns || now_ns < cost->recheck_ns)
		return;
	cost->recheck_ns = now_ns + COST_NOTICE_NS;
	if (hits_measure(session)) {
		cost_give_up(session);
		return;
	}
	for (size_t i = 0; i < session->count && !cost->reported; i++)
		target_recheck(session, session->targets[i], now_ns, &notice);
	/* What is cheap is said once. That growth mode is, is why it was chosen. */
	if (!notice.worst ||
	    (!notice.dear && (cost->said || notice.worst->mode == EVENT_MODE_GROWTH)))
		return;
	cost->said = 1;
	cost->reported = notice.dear > 0;
	notice_print(session, &notice);
}
