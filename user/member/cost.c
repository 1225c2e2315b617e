/* SPDX-License-Identifier: Apache-2.0 */
#include "member/cost.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "member/governor.h"
#include "member/member.h"
#include "member/state.h"

/* The result over all processes. */
struct notice {
	const struct member *worst;
	double share; /* of that one */
	size_t others;
};

static void cost_end(struct session *session)
{
	session->cost.done = 1;
	attach_count(session->attach, 0);
	hit_cost_end(&session->hit_cost);
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
	if (session->cost.counts && !session->cost.done && !(session->hit_cost.trap_ns > 0) &&
	    hit_cost_trap_begin(&session->hit_cost, session->attach))
		cost_end(session);
}

void member_cost_begin(struct session *session, struct member *member)
{
	struct session_cost *cost = &session->cost;

	if (!cost->counts || cost->done || member_clock_begin(member))
		return;
	member_measure_begin(session, member);
	if (!cost->begin_ns)
		cost->begin_ns = member->governor.measured_ns;
}

static void member_look(struct session *session, const struct member *member, uint64_t now_ns,
			struct notice *notice)
{
	struct governor_period period;

	if (member->ended || !member->governor.measured_ns ||
	    member_period(session, member, now_ns, &period) ||
	    period.cpu_ns * 100 < period.elapsed_ns * GOVERNOR_IDLE_PERCENT ||
	    period.cost_ns <= COST_NOTICE_SHARE * (double)period.cpu_ns)
		return;
	notice->others += notice->worst != NULL;
	if (notice->worst && notice->share >= period.cost_ns / (double)period.cpu_ns)
		return;
	notice->worst = member;
	notice->share = period.cost_ns / (double)period.cpu_ns;
}

/* The cheaper modes for the process. */
static const char *cheaper_modes(const struct session *session, const struct member *member)
{
	if (member->mode == EVENT_MODE_GROWTH)
		return "--overhead 5 holds that under a budget";
	if (member->layers & 1u << EVENT_LAYER_PYTHON)
		return "--overhead 5 holds that under a budget, -m growth sees only where the heap "
		       "grows, at next to no cost";
	return session->opts.sample_bytes
		       ? "--overhead 5 holds that under a budget"
		       : "--overhead 5 holds that under a budget, --sample 512K spares stacks and "
			 "records";
}

void session_cost_due(struct session *session, uint64_t now_ns)
{
	struct session_cost *cost = &session->cost;
	struct notice notice = {0};
	char others[64] = "";

	if (cost->done || !cost->begin_ns || now_ns - cost->begin_ns < COST_NOTICE_NS)
		return;
	if (!(session->hit_cost.trap_ns > 0) &&
	    hit_cost_trap(&session->hit_cost, session->attach)) {
		cost_end(session);
		return;
	}
	hit_cost_update(&session->hit_cost, session->attach);
	for (size_t i = 0; i < session->count; i++)
		member_look(session, session->members[i], now_ns, &notice);
	cost_end(session);
	if (!notice.worst)
		return;
	if (notice.others)
		snprintf(others, sizeof(others), " (more than half for %zu others, too)",
			 notice.others);
	/* The cost of a hit is a mean, so the share may exceed 1. */
	log_info("PID %d: the probes take %.0f %% of its CPU time%s: %s", notice.worst->pid,
		 notice.share < 1 ? notice.share * 100 : 100, others,
		 cheaper_modes(session, notice.worst));
}
