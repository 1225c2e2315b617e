/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process under trace is traced in another way. What can be is changed in place: from exact to
 * census the probes of pools' frees go, and come back the other way; another sample is a number in
 * the target. Everything else is planned anew: the probes go, the stream says so, others come, and
 * what is on the heap then is older.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "plan/plan_target.h"
#include "session/session_governor.h"
#include "session/session_state.h"

#define PROBES (ATTACH_POOL_FREES | ATTACH_OTHERS)

/* The work on one change. */
struct change {
	struct session *session;
	struct member *member;
	const struct governor_step *step;
	double cost, budget;
	uint64_t dropped_ns;     /* when the probes were taken out; 0: they are in place */
	struct plan_target plan; /* of a mode that needs one */
};

static int change_announce(const struct change *change)
{
	struct member *member = change->member;
	struct event_mode_change record = {
		.header = {.type = EVENT_MODE_CHANGE,
			   .size = sizeof(record),
			   .time_ns = change->dropped_ns ?: clock_ns(CLOCK_MONOTONIC),
			   .tgid = member->pid,
			   .tid = member->pid},
		.mode = change->step->mode | member_mode_flags(member),
		.cost_permille = (uint32_t)(change->cost * 1000),
		.budget_permille = (uint32_t)(change->budget * 1000),
		.sample_bytes = change->step->sample_bytes,
	};

	/* It has ended in what was drained, and another may have its number. */
	if (member->ended)
		return -ESRCH;
	/* What its children are announced with. */
	if (change->step->mode != EVENT_MODE_OFF)
		member->announced.mode = record.mode;
	member->announced.sample_bytes = record.sample_bytes;
	return session_feed(change->session, &record, sizeof(record));
}

/*
 * all_ends: blocks from before are in the table, and not in the map of sampled ones: the ends of
 * all are told.
 */
static int target_update(const struct change *change, int all_ends)
{
	struct abi_target *target = &change->member->runtime.target;

	if (change->member->ended)
		return -ESRCH;
	target->sample_bytes = change->step->sample_bytes;
	target->sample_overflow = all_ends;
	return attach_target(change->session->attach, change->member->pid, target);
}

/* Planned anew: kinds of probes that are not there by now are placed. */
static int plan_begin(struct change *change)
{
	struct plan_target_opts opts = change->session->opts.plan;
	int err;

	opts.python.mode = change->step->mode;
	err = plan_target(change->member->pid, &opts, &change->session->plans, &change->plan);
	if (err)
		return err;
	return change->plan.python.mode == opts.python.mode
		       ? 0
		       : error_set(-ENOTSUP, "%s", change->plan.python.mode_why);
}

/*
 * From exact to census. The stream says so first: a free that is told of then does no harm, one
 * that is missed before would.
 */
static int frees_leave(struct change *change)
{
	int err;

	session_pull(change->session);
	err = change_announce(change);
	if (err)
		return err;
	change->member->mode = EVENT_MODE_CENSUS;
	attach_drop(change->session->attach, change->member->pid, ATTACH_POOL_FREES, 0);
	return 0;
}

/* And back: what has died unseen until then the heap tells. */
static int frees_follow(struct change *change)
{
	struct session *session = change->session;
	struct member *member = change->member;
	int err = plan_begin(change);

	if (!err)
		err = member_probe(session, member, &change->plan, ATTACH_POOL_FREES);
	if (err)
		return err;
	session_pull(session);
	member->mode = EVENT_MODE_EXACT;
	err = change_announce(change);
	if (!err)
		member_reconcile(session, member, 0, 0);
	return err;
}

/*
 * To take them out takes a while, in which nobody empties the ring buffer: they do nothing from
 * here on.
 */
static void probes_drop(struct change *change)
{
	if (change->dropped_ns)
		return;
	member_forget(change->session, change->member);
	attach_drop(change->session->attach, change->member->pid, PROBES, 1);
	session_pull(change->session);
	change->dropped_ns = clock_ns(CLOCK_MONOTONIC);
}

static int change_anew(struct change *change)
{
	struct session *session = change->session;
	struct member *member = change->member;
	int err;

	/*
	 * Planning takes as long as a try may. If it fails there are cheaper ways, and at last none
	 * that needs a plan.
	 */
	if (change->cost > 0)
		probes_drop(change);
	err = plan_begin(change);
	if (err)
		return err;
	probes_drop(change);
	member_planned(member, &change->plan);
	err = change_announce(change);
	if (!err)
		err = target_update(change, 0);
	if (!err)
		err = member_probe(session, member, &change->plan, PROBES);
	if (err || !(member->layers & 1u << EVENT_LAYER_PYTHON))
		return err;
	/*
	 * To read a large heap takes longer than a try may: it comes when the governor has looked.
	 */
	member->baseline_due = 1;
	member->census_ns = clock_ns(CLOCK_MONOTONIC);
	if (change->cost > 0)
		member_reconcile(session, member, 1, 0);
	return 0;
}

/*
 * The blocks of a layer's table into the map of sampled ones. One that has ended since does no harm
 * there.
 */
static int layer_sampled(const struct change *change, enum event_layer layer)
{
	const struct session *session = change->session;
	const struct blocks *blocks = trace_blocks(session->trace, change->member->index, layer);
	const struct block *block;
	size_t cursor = 0;
	int err = 0;

	while (!err && (block = blocks_next(blocks, &cursor))) {
		const struct sampled_key key = {
			.address = block->address,
			.space = change->member->runtime.target.space,
			.domain =
				block->domain | (layer == EVENT_LAYER_NATIVE ? SAMPLED_NATIVE : 0),
		};

		err = attach_sampled(session->attach, &key, 1);
	}
	return err;
}

/*
 * The table is thinned out to the new sample; what is left in it goes into the map. Meanwhile, and
 * if they do not fit in there, the ends of all blocks are told.
 */
static int sample_change(struct change *change)
{
	int err = target_update(change, 1);

	session_pull(change->session);
	if (!err)
		err = change_announce(change);
	if (err || layer_sampled(change, EVENT_LAYER_PYTHON) ||
	    layer_sampled(change, EVENT_LAYER_NATIVE))
		return err;
	return target_update(change, 0);
}

static int change_off(struct change *change)
{
	int err;

	probes_drop(change);
	change->member->off = 1;
	err = change_announce(change);
	/* It is still to be heard of when it ends. */
	return err ? err
		   : attach_target(change->session->attach, change->member->pid,
				   &change->member->runtime.target);
}

static int change_make(struct change *change)
{
	struct member *member = change->member;
	enum event_mode from = member->mode, to = change->step->mode;
	int err;

	if (to == EVENT_MODE_OFF)
		return change_off(change);
	if (!member->off && from != to && from != EVENT_MODE_GROWTH && to != EVENT_MODE_GROWTH)
		return to == EVENT_MODE_EXACT ? frees_follow(change) : frees_leave(change);
	if (!member->off && from == to)
		return sample_change(change);
	err = change_anew(change);
	if (!err)
		member->off = 0;
	return err;
}

void member_mode_fall_back(struct session *session, struct member *member)
{
	const struct governor_step step = {.mode = EVENT_MODE_EXACT,
					   .sample_bytes = member->runtime.target.sample_bytes};
	static const struct governor_step off = {.mode = EVENT_MODE_OFF};
	struct change change = {.session = session, .member = member, .step = &step};
	char why[256];
	int err;

	snprintf(why, sizeof(why), "%s", error_reason(-ENOTSUP));
	member->heap_unreadable = 1;
	err = change_anew(&change);
	plan_target_free(&change.plan);
	if (err == -ESRCH)
		return;
	log_info("PID %d: its heap cannot be read: %s; what was traced is dropped, exact mode from "
		 "here on",
		 member->pid, why);
	if (!err)
		return;
	log_info("PID %d: it is not traced any more: %s", member->pid, error_reason(err));
	/* That the table is dropped may not have been told. */
	err = change_announce(&change);
	change.step = &off;
	if (!err)
		change_off(&change);
}

/* "exact", "exact (a sample, a block for every 65536 bytes)". */
static void way_describe(enum event_mode mode, uint64_t sample_bytes, char out[64])
{
	int at = snprintf(out, 64, "%s", snapshot_mode_name(mode));

	if (sample_bytes && mode != EVENT_MODE_OFF)
		snprintf(out + at, 64 - at, " (a sample, a block for every %llu bytes)",
			 (unsigned long long)sample_bytes);
}

int member_mode_change(struct session *session, struct member *member,
		       const struct governor_step *step, double cost, double budget)
{
	struct change change = {
		.session = session, .member = member, .step = step, .cost = cost, .budget = budget};
	char from[64], to[64];
	int err;

	way_describe(member->off ? EVENT_MODE_OFF : member->mode,
		     member->runtime.target.sample_bytes, from);
	way_describe(step->mode, step->sample_bytes, to);
	err = change_make(&change);

	plan_target_free(&change.plan);
	if (err)
		return err;
	if (cost > 0)
		log_info("PID %d: %s, then %s: the probes took %.1f %% of its CPU time, the budget "
			 "is %.1f %%",
			 member->pid, from, to, cost * 100, budget * 100);
	else
		log_info("PID %d: %s, then %s: there is room for it again", member->pid, from, to);
	return 0;
}
