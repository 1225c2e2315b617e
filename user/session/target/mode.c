/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes the mode of a process under trace. Two changes are made in place: between exact and
 * census mode the probes of pools' frees are removed or placed again, and another sample is a
 * number in the target. Any other change is planned anew: the probes are removed, the change is fed
 * to the stream, other probes are placed, and blocks that are then on the heap count as older.
 */
#include "session/target/mode.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "probe/process/plan_target.h"
#include "session/target/census.h"
#include "session/target/place.h"
#include "session/target/state.h"
#include "session/target/target.h"
#include "snapshot/estimate.h"
#include "util/clock.h"
#include "util/error.h"

#define PROBES (ATTACH_ALL & ~ATTACH_LAST)

enum event_mode target_plan_mode(enum event_mode mode)
{
	return mode == EVENT_MODE_WINDOWS ? EVENT_MODE_CENSUS : mode;
}

void target_mode_take(struct target *target, enum event_mode mode)
{
	target->mode = mode;
	target->runtime.target.paused = mode != EVENT_MODE_WINDOWS ? ABI_PAUSED_NO
					: target_is_native(target) ? ABI_PAUSED_NATIVE
								   : ABI_PAUSED_POOLS;
	target->large_windowed = 0;
	target->pools_off = 0;
	if (mode == EVENT_MODE_WINDOWS)
		target->large_blocks = 1;
}

/* The state of one change. */
struct mode_change {
	struct session *session;
	struct target *target;
	const struct governor_step *step;
	double cost, budget;
	uint64_t dropped_ns;     /* when the probes were taken out; 0: they are in place */
	struct plan_target plan; /* of a mode that needs one */
};

static int change_announce(const struct mode_change *change)
{
	struct target *target = change->target;
	struct event_mode_change record = {
		.header =
			RECORD_HEADER(EVENT_MODE_CHANGE, record,
				      change->dropped_ns ?: clock_ns(CLOCK_MONOTONIC), target->pid),
		.mode = change->step->mode | target_mode_flags(target),
		.cost_permille = (uint32_t)(change->cost * 1000),
		.budget_permille = (uint32_t)(change->budget * 1000),
		.sample_bytes = change->step->sample_bytes,
	};

	/* A drain may have ended it, and its pid may be reused. */
	if (target->ended)
		return -ESRCH;
	/* Its children are announced with these. */
	if (change->step->mode != EVENT_MODE_OFF)
		target->announced.mode = record.mode;
	target->announced.sample_bytes = record.sample_bytes;
	return session_feed(change->session, &record, sizeof(record));
}

/*
 * all_ends: the table holds blocks that are not in BPF's map of sampled blocks, so BPF emits the
 * frees of all blocks.
 */
static int target_update(const struct mode_change *change, int all_ends)
{
	struct abi_target *abi = &change->target->runtime.target;

	if (change->target->ended)
		return -ESRCH;
	abi->sample_bytes = change->step->sample_bytes;
	abi->page_share = estimate_page_share(abi->sample_bytes);
	abi->sample_overflow = all_ends;
	return attach_target(change->session->attach, change->target->pid, abi);
}

/* Plans for the mode of the step. */
static int plan_begin(struct mode_change *change)
{
	struct plan_target_opts opts = target_plan_opts(change->session, change->target);
	int err;

	opts.python.mode = target_plan_mode(change->step->mode);
	err = plan_target(change->target->pid, &opts, &change->session->plans, &change->plan);
	if (err || target_is_native(change->target))
		return err;
	return change->plan.python.mode == opts.python.mode
		       ? 0
		       : error_set(-ENOTSUP, "%s", change->plan.python.mode_why);
}

static int windows_plan(struct mode_change *change)
{
	int err = plan_begin(change);

	return err ?: target_windows_possible(change->session, change->target, &change->plan);
}

/*
 * From census to windows, or from exact natively: what is in the table was seen in a window that
 * has lasted since that mode began. The probes that only windows have are removed before the plan
 * for the windows is made, which takes a while.
 */
static int windows_take(struct mode_change *change)
{
	struct session *session = change->session;
	struct target *target = change->target;
	int err = 0;

	/* Native plans are cached. If another allocator rules windows out, nothing has changed. */
	if (target_is_native(target))
		err = windows_plan(change);
	if (err)
		return err;
	session_pull(session);
	target->large_blocks = 1;
	target->large_windowed = 0;
	target->pools_off = 0;
	err = change_announce(change);
	if (err)
		return err;
	target->mode = EVENT_MODE_WINDOWS;
	target_windows_take(session, target);
	if (!target_is_native(target))
		err = windows_plan(change);
	if (err)
		return err;
	err = target_probe(session, target, &change->plan, ATTACH_NEW_POOLS);
	if (err)
		log_debug("PID %d: pools that are taken into use are not seen: %s", target->pid,
			  error_reason(err));
	target_windows_begin(session, target, &change->plan);
	return 0;
}

/*
 * Where malloc's heap cannot be read, nothing tells which large blocks are still allocated: they
 * are not traced any more, and the trace drops them.
 */
static void large_restrict(struct mode_change *change)
{
	struct target *target = change->target;
	int unreadable;

	attach_drop(change->session->attach, target->pid, ATTACH_PASSED_ON, 1);
	session_pull(change->session);
	unreadable = target_large_possible(target);
	target->large_windowed = !unreadable;
	target->large_blocks = !unreadable;
	if (unreadable)
		log_info("PID %d: large blocks are not traced in windows: %s", target->pid,
			 error_reason(unreadable));
}

/*
 * In windows the probes of large blocks, and of pools that are taken into use, are in place all the
 * time. If these cost too much, the former are in place in windows only; then the latter are gone.
 */
static int between_restrict(struct mode_change *change)
{
	struct target *target = change->target;
	enum governor_between now = target_between(target);
	int err = 0;

	if (change->step->between <= now)
		return error_set(-ENOTSUP, "no more is traced between its windows");
	target_window_close(change->session, target);
	if (now == GOVERNOR_BETWEEN_LARGE) {
		large_restrict(change);
		err = change_announce(change);
	}
	target->pools_off = change->step->between == GOVERNOR_BETWEEN_NOTHING;
	if (target->pools_off) {
		attach_drop(change->session->attach, target->pid, ATTACH_NEW_POOLS, 1);
		session_pull(change->session);
	}
	if (!err)
		target_windows_again(change->session, target);
	return err;
}

/*
 * From exact to census. The change is fed first: a free after it does no harm, but one that is
 * missed before it would.
 */
static int frees_remove(struct mode_change *change)
{
	int err;

	session_pull(change->session);
	err = change_announce(change);
	if (err)
		return err;
	change->target->mode = EVENT_MODE_CENSUS;
	attach_drop(change->session->attach, change->target->pid, ATTACH_POOL_FREES, 0);
	return 0;
}

/* From census to exact. A walk of the heap finds the blocks that were freed unseen. */
static int frees_restore(struct mode_change *change)
{
	struct session *session = change->session;
	struct target *target = change->target;
	int err = plan_begin(change)
			  ?: target_probe(session, target, &change->plan, ATTACH_POOL_FREES);

	if (err)
		return err;
	session_pull(session);
	target->mode = EVENT_MODE_EXACT;
	err = change_announce(change);
	if (!err)
		target_reconcile(session, target, 0, 0);
	return err;
}

/* Removing probes takes a while, and nothing is drained meanwhile: BPF ignores them first. */
static void probes_drop(struct mode_change *change)
{
	if (change->dropped_ns)
		return;
	target_forget(change->session, change->target);
	attach_drop(change->session->attach, change->target->pid, PROBES, 1);
	session_pull(change->session);
	change->dropped_ns = clock_ns(CLOCK_MONOTONIC);
}

static int change_replan(struct mode_change *change)
{
	struct session *session = change->session;
	struct target *target = change->target;
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
		err = target_windows_possible(session, target, &change->plan);
	if (err)
		return err;
	probes_drop(change);
	target_planned(target, &change->plan);
	target_mode_take(target, change->step->mode);
	if (change->step->between != GOVERNOR_BETWEEN_LARGE) {
		target->large_windowed = !target_large_possible(target);
		target->large_blocks = target->large_windowed;
	}
	target->pools_off = change->step->between == GOVERNOR_BETWEEN_NOTHING;
	err = change_announce(change)
			?: target_update(change, 0)
			?: target_probe(session, target, &change->plan,
				PROBES & target_groups(target))
			?: target_provider_begin(session, target, &change->plan);
	if (err)
		return err;
	if (target_is_native(target) && target->mode != EVENT_MODE_WINDOWS)
		return 0;
	/* A walk of a large heap takes longer than a trial step may: it follows later. */
	target->baseline_due = 1;
	target->census_ns = clock_ns(CLOCK_MONOTONIC);
	if (change->cost > 0)
		target_reconcile(session, target, 1, 0);
	if (target->mode == EVENT_MODE_WINDOWS)
		target_windows_begin(session, target, &change->plan);
	return 0;
}

/*
 * Enters the blocks of a layer's table in BPF's map of sampled blocks. Blocks that were freed
 * meanwhile do no harm there.
 */
static int layer_sampled(const struct mode_change *change, enum event_layer layer)
{
	const struct session *session = change->session;
	const struct blocks *blocks = trace_blocks(session->trace, change->target->index, layer);
	const struct block *block;
	int err = 0;

	for (size_t cursor = 0; !err && (block = blocks_next(blocks, &cursor));) {
		const struct sampled_key key = {
			.address = block->address,
			.space_id = change->target->runtime.target.space_id,
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
static int sample_change(struct mode_change *change)
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

static int change_off(struct mode_change *change)
{
	int err;

	probes_drop(change);
	change->target->off = 1;
	err = change_announce(change);
	if (target_is_pages(change->target))
		change->target->runtime.target.layers = 0;
	/* Its end must still be reported. */
	return err ? err
		   : attach_target(change->session->attach, change->target->pid,
				   &change->target->runtime.target);
}

/* Are changes between two such modes made in place? */
static bool is_in_place(enum event_mode mode)
{
	return mode == EVENT_MODE_EXACT || mode == EVENT_MODE_CENSUS;
}

static int change_make(struct mode_change *change)
{
	struct target *target = change->target;
	enum event_mode from = target->mode, to = change->step->mode;
	int err;

	if (!target->off && from == EVENT_MODE_WINDOWS && to == EVENT_MODE_WINDOWS)
		return between_restrict(change);
	target_windows_end(change->session, target);
	if (to == EVENT_MODE_OFF)
		return change_off(change);
	if (!target->off && to == EVENT_MODE_WINDOWS &&
	    from == (target_is_native(target) ? EVENT_MODE_EXACT : EVENT_MODE_CENSUS))
		return windows_take(change);
	if (!target->off && from != to && is_in_place(from) && is_in_place(to))
		return to == EVENT_MODE_EXACT ? frees_restore(change) : frees_remove(change);
	if (!target->off && from == to)
		return sample_change(change);
	err = change_replan(change);
	if (!err)
		target->off = 0;
	return err;
}

void target_mode_fall_back(struct session *session, struct target *target)
{
	const struct governor_step step = {.mode = EVENT_MODE_EXACT,
					   .sample_bytes = target->runtime.target.sample_bytes};
	static const struct governor_step off = {.mode = EVENT_MODE_OFF};
	struct mode_change change = {.session = session, .target = target, .step = &step};
	char why[256];
	int err;

	snprintf(why, sizeof(why), "%s", error_reason(-ENOTSUP));
	target_windows_end(session, target);
	target->heap_unreadable = 1;
	err = change_replan(&change);
	plan_target_free(&change.plan);
	if (err == -ESRCH)
		return;
	log_info("PID %d: its heap cannot be read: %s; what was traced is dropped, exact mode from "
		 "here on",
		 target->pid, why);
	if (!err)
		return;
	log_info("PID %d: it is not traced any more: %s", target->pid, error_reason(err));
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
static void mode_describe(const struct target *target, enum event_mode mode, uint64_t sample_bytes,
			  char out[64])
{
	int at = snprintf(out, 64, "%s", snapshot_mode_name(mode));

	if (sample_bytes && mode != EVENT_MODE_OFF)
		snprintf(out + at, 64 - at, " (a sample, a block for every %llu bytes)",
			 (unsigned long long)sample_bytes);
	else if (mode == EVENT_MODE_WINDOWS)
		snprintf(out + at, 64 - at, "%s%s",
			 snapshot_large_name(!target->large_blocks    ? SNAPSHOT_LARGE_NONE
					     : target->large_windowed ? SNAPSHOT_LARGE_WINDOWS
								      : SNAPSHOT_LARGE_ALWAYS),
			 target->pools_off ? ", and nothing else" : "");
}

int target_mode_change(struct session *session, struct target *target,
		       const struct governor_step *step, double cost, double budget)
{
	struct mode_change change = {
		.session = session, .target = target, .step = step, .cost = cost, .budget = budget};
	char from[64], to[64];
	int err;

	mode_describe(target, target->off ? EVENT_MODE_OFF : target->mode,
		      target->runtime.target.sample_bytes, from);
	err = change_make(&change);
	mode_describe(target, step->mode, step->sample_bytes, to);
	plan_target_free(&change.plan);
	if (err)
		return err;
	if (cost > 0)
		log_info("PID %d: %s, then %s: the probes took %.1f %% of its CPU time just "
			 "before, the budget is %.1f %%",
			 target->pid, from, to, cost * 100, budget * 100);
	else
		log_info("PID %d: %s, then %s: the budget allows it", target->pid, from, to);
	return 0;
}
