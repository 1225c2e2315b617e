/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that appear while a session runs.
 *
 * A child of a target is traced from its first instruction: BPF makes it a target, and the session
 * announces it in the stream after its parent's fork, before any record of its own. A process that
 * has called exec becomes a candidate (candidate.c), or BPF makes it a target, too (execd.c).
 * Nothing may be attached while the ring buffer is drained: follow_step() does it afterwards.
 */
#include "session/follow.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "attach/file_users.h"
#include "attach/links/hints.h"
#include "attach/map_watch.h"
#include "object/symbols/symbols.h"
#include "probe/process/plan_target.h"
#include "probe/process/translator.h"
#include "proc/container/memory_headroom.h"
#include "session/candidate.h"
#include "session/execd.h"
#include "session/returns.h"
#include "session/target/census.h"
#include "session/target/mode.h"
#include "session/target/place.h"
#include "session/target/state.h"
#include "session/target/symbols.h"
#include "session/target/target.h"
#include "session/target/target_governor.h"
#include "session/unwind_tables.h"
#include "util/clock.h"
#include "util/error.h"

#define SETTLE_NS      2000000ull  /* after a target has mapped a file with code */
#define CHILD_DELAY_NS 50000000ull /* after the fork */
#define STRETCH_NS     20000000ull /* of work, until the ring buffer is drained */

/* Events of processes that are not watched are ignored. */
static void process_mapped(struct session *session, uint32_t tgid)
{
	struct target *target = target_find(session, tgid);
	struct candidate *candidate = candidate_find(session, tgid);

	if (candidate || (target && target->execd))
		candidate = candidate_touch(session, tgid);
	if (candidate && target)
		candidate->native = 1;
	if (target && !target->execd && !target->mapped_ns &&
	    target->layers & 1u << EVENT_LAYER_NATIVE)
		target->mapped_ns = clock_ns(CLOCK_MONOTONIC);
}

static void mapped_take(void *context, const struct map_watch_record *record)
{
	struct session *session = context;
	struct target *target = record->exec ? NULL : target_find(session, record->tgid);

	if (record->map.inode && translator_of(record->map.path))
		translator_appears(session, (pid_t)record->tgid, translator_of(record->map.path));
	if (session->unwind && !record->exec && (session->opts.everywhere || target))
		unwind_loader_map(session->unwind, (pid_t)record->tgid, &record->map);
	if (target && record->map.inode)
		target->symbols.looked_ns = 0; /* its names are looked for in the file at once */
	/* Anonymous memory has nothing to probe. */
	if ((record->exec || record->map.inode) && !execd_mapped(session, record) && !record->exec)
		process_mapped(session, record->tgid);
}

static void maps_drain(struct session *session)
{
	uint64_t lost;

	if (!session->maps)
		return;
	map_watch_drain(session->maps, mapped_take, session);
	lost = map_watch_lost(session->maps);
	if (lost == session->maps_lost)
		return;
	session->maps_lost = lost;
	for (size_t i = 0; i < session->candidate_count; i++)
		candidate_touch(session, (uint32_t)session->candidates[i].late.pid);
	for (size_t i = 0; i < session->count; i++)
		if (!session->targets[i]->ended)
			process_mapped(session, (uint32_t)session->targets[i]->pid);
}

/* If no target can be made of a program, BPF stops tracing it and its records are dropped. */
static void execd_appear(struct session *session, const struct event_appear *event)
{
	int err = execd_announce(session, event);

	if (!err)
		return;
	session_discard(session, event->header.tgid, event->space_id);
	refuse(session, (pid_t)event->header.tgid, err);
}

/* A child that BPF has made a target: if its parent is no target, the child is dropped. */
static int fork_takes(struct session *session, const struct event_process *fork)
{
	if (target_find(session, fork->header.tgid))
		return 0;
	if (fork->code & EVENT_FORK_TRACED) {
		session_discard(session, fork->other, fork->space_id);
		candidate_touch(session, fork->other);
	}
	return 1;
}

/*
 * A program or a child begins with the pid of a target: the record of that target's end was lost,
 * or it called exec while it was attached to, and the target describes the previous program.
 */
static void target_supersede(struct session *session, uint32_t tgid, uint32_t type)
{
	struct target *target = target_find(session, tgid);

	if (!target)
		return;
	target_forget(session, target);
	target_end(session, target, type);
}

static void program_appears(struct session *session, const struct event_appear *event)
{
	struct candidate *candidate = candidate_find(session, event->header.tgid);

	target_supersede(session, event->header.tgid, EVENT_EXEC);
	if (!event->layers) {
		candidate_renew(session, event->header.tgid, event->parent, event->name);
		return;
	}
	if (candidate)
		candidate_remove(session, candidate);
	maps_drain(session);
	execd_appear(session, event);
}

int follow_takes(struct session *session, const void *record)
{
	const struct event_header *header = record;
	struct candidate *candidate;
	struct target *target;

	switch (header->type) {
	case EVENT_APPEAR:
		program_appears(session, record);
		return 1;
	case EVENT_FORK:
		return fork_takes(session, record);
	case EVENT_EXIT:
	case EVENT_EXEC:
		candidate = candidate_find(session, header->tgid);
		target = target_find(session, header->tgid);
		/* A target has a table, or is counted as unprobed. */
		if (candidate && !target && header->type == EVENT_EXIT)
			candidate_ended(session, candidate);
		else if (candidate)
			candidate_remove(session, candidate);
		if (target && execd_ended_unprobed(session, target))
			target = NULL;
		return !target;
	default:
		return 0;
	}
}

/* Called after the fork's record was fed: the child inherits the tables as of then. */
static int child_announce(struct session *session, const struct target *parent,
			  const struct event_process *fork)
{
	struct event_target record = parent->announced;
	struct target *target;
	int err;

	target_supersede(session, fork->other, EVENT_EXIT);
	err = target_new(session, (pid_t)fork->other, &target);
	if (err)
		return err;
	err = python_runtime_inherit(&parent->runtime, target->pid, &target->runtime);
	target->runtime.target.space_id = fork->space_id;
	record.header.tgid = record.header.tid = fork->other;
	record.header.time_ns = fork->header.time_ns;
	record.realtime_ns += fork->header.time_ns - parent->announced.header.time_ns;
	record.parent = fork->header.tgid;
	record.ns_pid = 0;
	if (!err)
		err = target_begin(session, target, &record);
	if (err) {
		target_abandon(session, target);
		return err;
	}
	if (trace_process_at(session->trace, target->index)->not_inherited)
		log_info("PID %d does not begin with the blocks of PID %u, which has forked it: "
			 "there is no memory for a copy of its tables (--budget)",
			 target->pid, record.parent);
	target->mode = parent->mode;
	target->layers = parent->layers;
	target->large_blocks = parent->large_blocks;
	target->large_windowed = parent->large_windowed;
	target->pools_off = parent->pools_off;
	target->reuse_unseen = parent->reuse_unseen;
	target->self_sampled = parent->self_sampled;
	target->ends_unseen = parent->ends_unseen;
	target->off = parent->off;
	target->heap_unreadable = parent->heap_unreadable;
	target->census_ns = clock_ns(CLOCK_MONOTONIC);
	if (target->mode == EVENT_MODE_WINDOWS)
		target_window_inherited(session, target);
	/* The child maps what its parent maps. */
	target->execd = parent->execd;
	target->inherited = !parent->execd;
	session->inherited += target->inherited;
	if (parent->execd && candidate_find(session, (uint32_t)parent->pid))
		process_mapped(session, fork->other);
	return target_symbols_inherit(session, target, parent);
}

/* The kernel sends SIGTRAP for a breakpoint that it has not placed itself. */
static void end_explain(const struct target *target, uint32_t status)
{
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGTRAP)
		log_info("PID %d was killed by SIGTRAP. If it has not done that itself, it ran a "
			 "copy of its code with a probe's breakpoint in it: programs that move "
			 "their code to huge pages make such copies, libraries that hook functions "
			 "and debuggers, too",
			 target->pid);
}

void follow_note(struct session *session, const void *record)
{
	const struct event_header *header = record;
	const struct event_process *event = record;
	struct target *target;

	if (header->type != EVENT_EXIT && header->type != EVENT_EXEC && header->type != EVENT_FORK)
		return;
	target = target_find(session, header->tgid);
	if (!target)
		return;
	if (header->type == EVENT_EXIT)
		end_explain(target, event->code);
	if (header->type != EVENT_FORK)
		target->ended = 1;
	else if (event->code & EVENT_FORK_TRACED && child_announce(session, target, event))
		log_info("PID %u, which PID %d has forked, is not traced: no memory", event->other,
			 target->pid);
}

/*
 * The child has the probes that are in files; private ones are placed here. A walk of its heap
 * finds what it allocated before.
 */
static void child_attach(struct session *session, struct target *target)
{
	struct plan_target_opts opts = target_plan_opts(session, target);
	struct plan_target plans;
	int err;

	/* Its parent's mode, which the governor may have changed. */
	if (target->layers & 1u << EVENT_LAYER_PYTHON)
		opts.python.mode = target_plan_mode(target->mode);
	err = plan_target(target->pid, &opts, &session->plans, &plans);
	target->inherited = 0;
	session->inherited--;
	if (!err) {
		err = target->off ? 0
				  : target_probe(session, target, &plans, target_groups(target));
		if (!err)
			err = target_provider_begin(session, target, &plans);
		if (!err && target->mode == EVENT_MODE_WINDOWS && !target->off)
			target_windows_begin(session, target, &plans);
		plan_target_free(&plans);
	}
	if (!err)
		err = target_governor_begin(session, target);
	if (!err)
		target_cost_begin(session, target, 0);
	if (!err)
		target_reconcile(session, target, 0, 0);
	/* -ESRCH: its end will be reported. */
	if (err && ending_error(target->pid, err) != -ESRCH) {
		refuse(session, target->pid, err);
		target_forget(session, target);
		target_end(session, target, EVENT_EXIT);
	} else if (!err) {
		log_debug("PID %d, forked by PID %u, is traced, too", target->pid,
			  target->announced.parent);
	}
}

/*
 * If the probes are in files, a child has them, and nothing is urgent. Most children call exec
 * soon, and need no attachment at all.
 */
static int child_is_due(const struct session *session, const struct target *target, uint64_t now)
{
	return target->inherited && !target->ended &&
	       (!session->opts.everywhere || now - target->census_ns >= CHILD_DELAY_NS);
}

/* Probes the allocators in newly mapped files of a target. Existing probes are kept. */
static void target_extend(struct session *session, struct target *target)
{
	struct plan_target plans = {0};
	int err = plan_native_process(target->pid, session->plans.native, &plans.native,
				      &plans.native_count);

	target->mapped_ns = 0;
	if (!err)
		err = returns_check(session, target->pid, &plans)
			      ?: target_probe(session, target, &plans, target_groups(target));
	if (!err)
		target_windows_extend(session, target, &plans);
	if (!err)
		err = target_provider_begin(session, target, &plans);
	free(plans.native);
	if (err && err != -ESRCH)
		refuse(session, target->pid, err);
}

void follow_step(struct session *session)
{
	uint64_t begin = clock_ns(CLOCK_MONOTONIC), now = begin;

	maps_drain(session);
	/* Before probes are placed: until then all stacks through the new files end in them. */
	session_unwind_step(session);
	for (size_t i = 0; i < session->count && now - begin < STRETCH_NS; i++) {
		struct target *target = session->targets[i];

		if (!target->mapped_ns || target->ended || target->off ||
		    now - target->mapped_ns < SETTLE_NS)
			continue;
		target_extend(session, target);
		now = clock_ns(CLOCK_MONOTONIC);
	}
	now = candidates_look(session, now, begin + STRETCH_NS);
	for (size_t i = 0; i < session->count && session->inherited && now - begin < STRETCH_NS;
	     i++) {
		if (child_is_due(session, session->targets[i], now))
			child_attach(session, session->targets[i]);
		now = clock_ns(CLOCK_MONOTONIC);
	}
}

/* The processes for names are forked here, while this one is small and may use the network. */
static int names_new(struct session *session)
{
	const char *servers = session->opts.debuginfod;
	int early = session->opts.watch != ABI_WATCH_NONE && execd_layers(&session->opts);
	int err = early || servers
			  ? symbols_new_in(&session->symbols, trace_account(session->trace))
			  : 0;

	return !err && servers ? symbols_fetch_from(session->symbols, servers) : err;
}

int follow_new(struct session *session)
{
	int err = names_new(session);

	if (err || session->opts.watch == ABI_WATCH_NONE)
		return err;
	err = map_watch_open(&session->maps);
	/* Without it, candidates are inspected periodically. */
	if (err) {
		err = hint_tell(HINT_EVENT, err);
		log_info("what processes map later is found by periodic inspection: %s",
			 error_reason(err));
	}
	return err == -ENOMEM ? err : 0;
}

/*
 * Members whose exec record was lost: BPF has removed them from its targets. The record of the new
 * program may be lost, too.
 */
static void missed_execs_find(struct session *session)
{
	session_pull(session);
	for (size_t i = 0; i < session->count; i++) {
		struct target *target = session->targets[i];
		uint32_t tgid = (uint32_t)target->pid;

		if (target->ended ||
		    attach_is_target(session->attach, tgid, target->runtime.target.space_id))
			continue;
		target_end(session, target, EVENT_EXEC);
		candidate_renew(session, tgid, 0, NULL);
	}
}

void follow_lost(struct session *session, uint64_t lost)
{
	if (session->opts.watch == ABI_WATCH_NONE || lost == session->process_lost)
		return;
	session->process_lost = lost;
	missed_execs_find(session);
	if (session->opts.watch == ABI_WATCH_ALL)
		untracked_find(session);
}

int session_expect(struct session *session, const pid_t *pids, size_t count)
{
	pid_t *expected = malloc((count + 1) * sizeof(*expected));

	if (!expected)
		return -ENOMEM;
	memcpy(expected, pids, count * sizeof(*expected));
	free(session->expected);
	session->expected = expected;
	session->expected_count = count;
	return 0;
}

int session_watch(struct session *session, pid_t pid)
{
	return attach_follow(session->attach, pid);
}

void follow_free(struct session *session)
{
	map_watch_close(session->maps);
	execs_free(session);
	container_names_free(&session->container_names);
	free(session->candidates);
	free(session->expected);
	file_users_free(session->users);
	memory_headroom_free(session->headroom);
}
