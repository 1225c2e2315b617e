/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes the mode of a process under trace. Two changes are made in place: between exact and
 * census mode the probes of pools' frees are removed or placed again, and another sample is a
 * number in the target. Any other change is planned anew: the probes are removed, the change is fed
 * to the stream, other probes are placed, and blocks that are then on the heap count as older.
 */
#include "member/mode.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "member/census.h"
#include "member/member.h"
#include "member/probe.h"
#include "member/provider.h"
#include "member/state.h"
#include "process_plan/plan_target.h"

#define PROBES (ATTACH_ALL & ~ATTACH_LAST)

enum event_mode member_plan_mode(enum event_mode mode)
{
	return mode == EVENT_MODE_WINDOWS ? EVENT_MODE_CENSUS : mode;
}

void member_mode_take(struct member *member, enum event_mode mode)
{
	member->mode = mode;
	member->runtime.target.paused = mode != EVENT_MODE_WINDOWS ? ABI_PAUSED_NO
					: member_is_native(member) ? ABI_PAUSED_NATIVE
								   : ABI_PAUSED_POOLS;
	member->large_windowed = 0;
	member->pools_off = 0;
	if (mode == EVENT_MODE_WINDOWS)
		member->large_blocks = 1;
}

/* The state of one change. */
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

	/* A drain may have ended it, and its pid may be reused. */
	if (member->ended)
		return -ESRCH;
	/* Its children are announced with these. */
	if (change->step->mode != EVENT_MODE_OFF)
		member->announced.mode = record.mode;
	member->announced.sample_bytes = record.sample_bytes;
	return session_feed(change->session, &record, sizeof(record));
}

/*
 * all_ends: the table holds blocks that are not in BPF's map of sampled blocks, so BPF emits the
 * frees of all blocks.
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

/* Plans for the mode of the step. */
static int plan_begin(struct change *change)
{
	struct plan_target_opts opts = member_plan_opts(change->session, change->member);
	int err;

	opts.python.mode = member_plan_mode(change->step->mode);
	err = plan_target(change->member->pid, &opts, &change->session->plans, &change->plan);
	if (err || member_is_native(change->member))
		return err;
	return change->plan.python.mode == opts.python.mode
		       ? 0
		       : error_set(-ENOTSUP, "%s", change->plan.python.mode_why);
}

static int windows_plan(struct change *change)
{
	int err = plan_begin(change);

	return err ? err : member_windows_possible(change->session, change->member, &change->plan);
}

/*
 * From census to windows, or from exact natively: what is in the table was seen in a window that
 * has lasted since that mode began. The probes that only windows have are removed before the plan
 * for the windows is made, which takes a while.
 */
static int windows_take(struct change *change)
{
	struct session *session = change->session;
	struct member *member = change->member;
	int err = 0;

	/* Native plans are cached. If another allocator rules windows out, nothing has changed. */
	if (member_is_native(member))
		err = windows_plan(change);
	if (err)
		return err;
	session_pull(session);
	member->large_blocks = 1;
	member->large_windowed = 0;
	member->pools_off = 0;
	err = change_announce(change);
	if (err)
		return err;
	member->mode = EVENT_MODE_WINDOWS;
	member_windows_take(session, member);
	if (!member_is_native(member))
		err = windows_plan(change);
	if (err)
		return err;
	err = member_probe(session, member, &change->plan, ATTACH_NEW_POOLS);
	if (err)
		log_debug("PID %d: pools that are taken into use are not seen: %s", member->pid,
			  error_reason(err));
	member_windows_begin(session, member, &change->plan);
	return 0;
}

/*
 * Where malloc's heap cannot be read, nothing tells which large blocks are still allocated: they
 * are not traced any more, and the trace drops them.
 */
static void large_restrict(struct change *change)
{
	struct member *member = change->member;
	int unreadable;

	attach_drop(change->session->attach, member->pid, ATTACH_PASSED_ON, 1);
	session_pull(change->session);
	unreadable = member_large_possible(member);
	member->large_windowed = !unreadable;
	member->large_blocks = !unreadable;
	if (unreadable)
		log_info("PID %d: large blocks are not traced in windows: %s", member->pid,
			 error_reason(unreadable));
}

/*
 * In windows the probes of large blocks, and of pools that are taken into use, are in place all the
 * time. If these cost too much, the former are in place in windows only; then the latter are gone.
 */
static int between_restrict(struct change *change)
{
	struct member *member = change->member;
	enum governor_between now = member_between(member);
	int err = 0;

	if (change->step->between <= now)
		return error_set(-ENOTSUP, "no more is traced between its windows");
	member_window_close(change->session, member);
	if (now == GOVERNOR_BETWEEN_LARGE) {
		large_restrict(change);
		err = change_announce(change);
	}
	member->pools_off = change->step->between == GOVERNOR_BETWEEN_NOTHING;
	if (member->pools_off) {
		attach_drop(change->session->attach, member->pid, ATTACH_NEW_POOLS, 1);
		session_pull(change->session);
	}
	if (!err)
		member_windows_again(change->session, member);
	return err;
}

/*
 * From exact to census. The change is fed first: a free after it does no harm, but one that is
 * missed before it would.
 */
static int frees_remove(struct change *change)
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

/* From census to exact. A walk of the heap finds the blocks that were freed unseen. */
static int frees_restore(struct change *change)
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

/* Removing probes takes a while, and nothing is drained meanwhile: BPF ignores them first. */
static void probes_drop(struct change *change)
{
	if (change->dropped_ns)
		return;
	member_forget(change->session, change->member);
	attach_drop(change->session->attach, change->member->pid, PROBES, 1);
	session_pull(change->session);
	change->dropped_ns = clock_ns(CLOCK_MONOTONIC);
}

static int change_replan(struct change *change)
{
	struct session *session = change->session;
	struct member *member = change->member;
	int err;

	/*
	 * Planning alone takes as long as the governor allows a step that is too expensive: remove
	 * its probes first. If planning fails, cheaper steps follow, and the last one needs no
	 * plan.
	 */
	if (change->cost > 0)
		probes_drop(change);
	err = plan_begin(change);
	if (!err && change->step->mode == EVENT_MODE_WINDOWS)
		err = member_windows_possible(session, member, &change->plan);
	if (err)
		return err;
	probes_drop(change);
	member_planned(member, &change->plan);
	member_mode_take(member, change->step->mode);
	if (change->step->between != GOVERNOR_BETWEEN_LARGE) {
		member->large_windowed = !member_large_possible(member);
		member->large_blocks = member->large_windowed;
	}
	member->pools_off = change->step->between == GOVERNOR_BETWEEN_NOTHING;
	err = change_announce(change);
	if (!err)
		err = target_update(change, 0);
	if (!err)
		err = member_probe(session, member, &change->plan, PROBES & member_groups(member));
	if (!err)
		err = member_provider_begin(session, member, &change->plan);
	if (err)
		return err;
	if (member_is_native(member) && member->mode != EVENT_MODE_WINDOWS)
		return 0;
	/* A walk of a large heap takes longer than a trial step may: it follows later. */
	member->baseline_due = 1;
	member->census_ns = clock_ns(CLOCK_MONOTONIC);
	if (change->cost > 0)
		member_reconcile(session, member, 1, 0);
	if (member->mode == EVENT_MODE_WINDOWS)
		member_windows_begin(session, member, &change->plan);
	return 0;
}

/*
 * Enters the blocks of a layer's table in BPF's map of sampled blocks. Blocks that were freed
 * meanwhile do no harm there.
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
			.space_id = change->member->runtime.target.space_id,
			.domain =
				block->domain | (layer == EVENT_LAYER_NATIVE ? SAMPLED_NATIVE : 0),
		};

		err = attach_sampled(session->attach, &key, 1);
	}
	return err;
}

/*
 * The trace thins out the table to the new sample; the remaining blocks are entered in the map.
 * Meanwhile, and if they do not fit in the map, BPF emits the frees of all blocks.
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
	/* Its end must still be reported. */
	return err ? err
		   : attach_target(change->session->attach, change->member->pid,
				   &change->member->runtime.target);
}

/* Are changes between two such modes made in place? */
static int is_in_place(enum event_mode mode)
{
	return mode == EVENT_MODE_EXACT || mode == EVENT_MODE_CENSUS;
}

static int change_make(struct change *change)
{
	struct member *member = change->member;
	enum event_mode from = member->mode, to = change->step->mode;
	int err;

	if (!member->off && from == EVENT_MODE_WINDOWS && to == EVENT_MODE_WINDOWS)
		return between_restrict(change);
	member_windows_end(change->session, member);
	if (to == EVENT_MODE_OFF)
		return change_off(change);
	if (!member->off && to == EVENT_MODE_WINDOWS &&
	    from == (member_is_native(member) ? EVENT_MODE_EXACT : EVENT_MODE_CENSUS))
		return windows_take(change);
	if (!member->off && from != to && is_in_place(from) && is_in_place(to))
		return to == EVENT_MODE_EXACT ? frees_restore(change) : frees_remove(change);
	if (!member->off && from == to)
		return sample_change(change);
	err = change_replan(change);
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
	member_windows_end(session, member);
	member->heap_unreadable = 1;
	err = change_replan(&change);
	plan_target_free(&change.plan);
	if (err == -ESRCH)
		return;
	log_info("PID %d: its heap cannot be read: %s; what was traced is dropped, exact mode from "
		 "here on",
		 member->pid, why);
	if (!err)
		return;
	log_info("PID %d: it is not traced any more: %s", member->pid, error_reason(err));
	/* The change, which drops the table, may not have been fed. */
	err = change_announce(&change);
	change.step = &off;
	if (!err)
		change_off(&change);
}

/*
 * "exact", "exact (a sample, a block for every 65536 bytes)", "windows of large blocks, too",
 * "windows without large blocks", "windows of large blocks, too, and nothing else".
 */
static void mode_describe(const struct member *member, enum event_mode mode, uint64_t sample_bytes,
			  char out[64])
{
	int at = snprintf(out, 64, "%s", snapshot_mode_name(mode));

	if (sample_bytes && mode != EVENT_MODE_OFF)
		snprintf(out + at, 64 - at, " (a sample, a block for every %llu bytes)",
			 (unsigned long long)sample_bytes);
	else if (mode == EVENT_MODE_WINDOWS)
		snprintf(out + at, 64 - at, "%s%s",
			 snapshot_large_name(!member->large_blocks    ? SNAPSHOT_LARGE_NONE
					     : member->large_windowed ? SNAPSHOT_LARGE_WINDOWS
								      : SNAPSHOT_LARGE_ALWAYS),
			 member->pools_off ? ", and nothing else" : "");
}

int member_mode_change(struct session *session, struct member *member,
		       const struct governor_step *step, double cost, double budget)
{
	struct change change = {
		.session = session, .member = member, .step = step, .cost = cost, .budget = budget};
	char from[64], to[64];
	int err;

	mode_describe(member, member->off ? EVENT_MODE_OFF : member->mode,
		      member->runtime.target.sample_bytes, from);
	err = change_make(&change);
	mode_describe(member, step->mode, step->sample_bytes, to);
	plan_target_free(&change.plan);
	if (err)
		return err;
	if (cost > 0)
		log_info("PID %d: %s, then %s: the probes took %.1f %% of its CPU time, the budget "
			 "is %.1f %%",
			 member->pid, from, to, cost * 100, budget * 100);
	else
		log_info("PID %d: %s, then %s: the budget allows it", member->pid, from, to);
	return 0;
}
