/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that appear while a session runs.
 *
 * A child of a member is traced from its first instruction: BPF makes it a target, and the session
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
#include "attach/map_watch.h"
#include "base/clock.h"
#include "base/error.h"
#include "container/memory_headroom.h"
#include "links/obstacles.h"
#include "member/census.h"
#include "member/governor.h"
#include "member/member.h"
#include "member/mode.h"
#include "member/probe.h"
#include "member/provider.h"
#include "member/state.h"
#include "member/symbols.h"
#include "member/translators.h"
#include "process_plan/plan_target.h"
#include "process_plan/translator.h"
#include "session/candidate.h"
#include "session/execd.h"
#include "session/returns.h"
#include "session/unwind_tables.h"
#include "symbols/symbols.h"

#define SETTLE_NS      2000000ull  /* after a member has mapped a file with code */
#define CHILD_DELAY_NS 50000000ull /* after the fork */
#define STRETCH_NS     20000000ull /* of work, until the ring buffer is drained */

/* Events of processes that are not watched are ignored. */
static void process_mapped(struct session *session, uint32_t tgid)
{
	struct member *member = member_find(session, tgid);
	struct candidate *candidate = candidate_find(session, tgid);

	if (candidate || (member && member->execd))
		candidate = candidate_touch(session, tgid);
	if (candidate && member)
		candidate->native = 1;
	if (member && !member->execd && !member->mapped_ns &&
	    member->layers & 1u << EVENT_LAYER_NATIVE)
		member->mapped_ns = clock_ns(CLOCK_MONOTONIC);
}

static void mapped_take(void *context, const struct map_watch_record *record)
{
	struct session *session = context;
	struct member *member = record->exec ? NULL : member_find(session, record->tgid);

	if (record->map.inode && translator_of(record->map.path))
		translator_appears(session, (pid_t)record->tgid, translator_of(record->map.path));
	if (session->unwind && !record->exec && (session->opts.everywhere || member))
		unwind_loader_map(session->unwind, (pid_t)record->tgid, &record->map);
	if (member && record->map.inode)
		member->symbols.looked_ns = 0; /* its names are looked for in the file at once */
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
		if (!session->members[i]->ended)
			process_mapped(session, (uint32_t)session->members[i]->pid);
}

/* If no member can be made of a program, BPF stops tracing it and its records are dropped. */
static void execd_appear(struct session *session, const struct event_appear *event)
{
	int err = execd_announce(session, event);

	if (!err)
		return;
	session_discard(session, event->header.tgid, event->space_id);
	refuse(session, (pid_t)event->header.tgid, err);
}

/* A child that BPF has made a target: if its parent is no member, the child is dropped. */
static int fork_takes(struct session *session, const struct event_process *fork)
{
	if (member_find(session, fork->header.tgid))
		return 0;
	if (fork->code & EVENT_FORK_TRACED) {
		session_discard(session, fork->other, fork->space_id);
		candidate_touch(session, fork->other);
	}
	return 1;
}

/*
 * A program or a child begins with the pid of a member: the record of that member's end was lost,
 * or it called exec while it was attached to, and the member describes the previous program.
 */
static void member_supersede(struct session *session, uint32_t tgid, uint32_t type)
{
	struct member *member = member_find(session, tgid);

	if (!member)
		return;
	member_forget(session, member);
	member_end(session, member, type);
}

static void program_appears(struct session *session, const struct event_appear *event)
{
	struct candidate *candidate = candidate_find(session, event->header.tgid);

	member_supersede(session, event->header.tgid, EVENT_EXEC);
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
	struct member *member;

	switch (header->type) {
	case EVENT_APPEAR:
		program_appears(session, record);
		return 1;
	case EVENT_FORK:
		return fork_takes(session, record);
	case EVENT_EXIT:
	case EVENT_EXEC:
		candidate = candidate_find(session, header->tgid);
		member = member_find(session, header->tgid);
		/* A member has a table, or is counted as unprobed. */
		if (candidate && !member && header->type == EVENT_EXIT)
			candidate_ended(session, candidate);
		else if (candidate)
			candidate_remove(session, candidate);
		if (member && execd_ended_unprobed(session, member))
			member = NULL;
		return !member;
	default:
		return 0;
	}
}

/* Called after the fork's record was fed: the child inherits the tables as of then. */
static int child_announce(struct session *session, const struct member *parent,
			  const struct event_process *fork)
{
	struct event_target record = parent->announced;
	struct member *member;
	int err;

	member_supersede(session, fork->other, EVENT_EXIT);
	err = member_new(session, (pid_t)fork->other, &member);
	if (err)
		return err;
	err = python_runtime_inherit(&parent->runtime, member->pid, &member->runtime);
	member->runtime.target.space_id = fork->space_id;
	record.header.tgid = record.header.tid = fork->other;
	record.header.time_ns = fork->header.time_ns;
	record.realtime_ns += fork->header.time_ns - parent->announced.header.time_ns;
	record.parent = fork->header.tgid;
	record.ns_pid = 0;
	if (!err)
		err = member_begin(session, member, &record);
	if (err) {
		member_abandon(session, member);
		return err;
	}
	if (trace_process_at(session->trace, member->index)->not_inherited)
		log_info("PID %d does not begin with the blocks of PID %u, which has forked it: "
			 "there is no memory for a copy of its tables (--budget)",
			 member->pid, record.parent);
	member->mode = parent->mode;
	member->layers = parent->layers;
	member->large_blocks = parent->large_blocks;
	member->large_windowed = parent->large_windowed;
	member->pools_off = parent->pools_off;
	member->reuse_unseen = parent->reuse_unseen;
	member->self_sampled = parent->self_sampled;
	member->ends_unseen = parent->ends_unseen;
	member->off = parent->off;
	member->heap_unreadable = parent->heap_unreadable;
	member->census_ns = clock_ns(CLOCK_MONOTONIC);
	if (member->mode == EVENT_MODE_WINDOWS)
		member_window_inherited(session, member);
	/* The child maps what its parent maps. */
	member->execd = parent->execd;
	member->inherited = !parent->execd;
	session->inherited += member->inherited;
	if (parent->execd && candidate_find(session, (uint32_t)parent->pid))
		process_mapped(session, fork->other);
	return member_symbols_inherit(session, member, parent);
}

/* The kernel sends SIGTRAP for a breakpoint that it has not placed itself. */
static void end_explain(const struct member *member, uint32_t status)
{
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGTRAP)
		log_info("PID %d was killed by SIGTRAP. If it has not done that itself, it ran a "
			 "copy of its code with a probe's breakpoint in it: programs that move "
			 "their code to huge pages make such copies, libraries that hook functions "
			 "and debuggers, too",
			 member->pid);
}

void follow_note(struct session *session, const void *record)
{
	const struct event_header *header = record;
	const struct event_process *event = record;
	struct member *member;

	if (header->type != EVENT_EXIT && header->type != EVENT_EXEC && header->type != EVENT_FORK)
		return;
	member = member_find(session, header->tgid);
	if (!member)
		return;
	if (header->type == EVENT_EXIT)
		end_explain(member, event->code);
	if (header->type != EVENT_FORK)
		member->ended = 1;
	else if (event->code & EVENT_FORK_TRACED && child_announce(session, member, event))
		log_info("PID %u, which PID %d has forked, is not traced: no memory", event->other,
			 member->pid);
}

/*
 * The child has the probes that are in files; private ones are placed here. A walk of its heap
 * finds what it allocated before.
 */
static void child_attach(struct session *session, struct member *member)
{
	struct plan_target_opts opts = member_plan_opts(session, member);
	struct plan_target target;
	int err;

	/* Its parent's mode, which the governor may have changed. */
	if (member->layers & 1u << EVENT_LAYER_PYTHON)
		opts.python.mode = member_plan_mode(member->mode);
	err = plan_target(member->pid, &opts, &session->plans, &target);
	member->inherited = 0;
	session->inherited--;
	if (!err) {
		err = member->off ? 0
				  : member_probe(session, member, &target, member_groups(member));
		if (!err)
			err = member_provider_begin(session, member, &target);
		if (!err && member->mode == EVENT_MODE_WINDOWS && !member->off)
			member_windows_begin(session, member, &target);
		plan_target_free(&target);
	}
	if (!err)
		err = member_governor_begin(session, member);
	if (!err)
		member_cost_begin(session, member, 0);
	if (!err)
		member_reconcile(session, member, 0, 0);
	/* -ESRCH: its end will be reported. */
	if (err && ending_error(member->pid, err) != -ESRCH) {
		refuse(session, member->pid, err);
		member_forget(session, member);
		member_end(session, member, EVENT_EXIT);
	} else if (!err) {
		log_debug("PID %d, forked by PID %u, is traced, too", member->pid,
			  member->announced.parent);
	}
}

/*
 * If the probes are in files, a child has them, and nothing is urgent. Most children call exec
 * soon, and need no attachment at all.
 */
static int child_is_due(const struct session *session, const struct member *member, uint64_t now)
{
	return member->inherited && !member->ended &&
	       (!session->opts.everywhere || now - member->census_ns >= CHILD_DELAY_NS);
}

/* Probes the allocators in newly mapped files of a member. Existing probes are kept. */
static void member_extend(struct session *session, struct member *member)
{
	struct plan_target target = {0};
	int err = plan_native_process(member->pid, session->plans.native, &target.native,
				      &target.native_count);

	member->mapped_ns = 0;
	if (!err)
		err = returns_check(session, member->pid, &target);
	if (!err)
		err = member_probe(session, member, &target, member_groups(member));
	if (!err)
		member_windows_extend(session, member, &target);
	if (!err)
		err = member_provider_begin(session, member, &target);
	free(target.native);
	if (err && err != -ESRCH)
		refuse(session, member->pid, err);
}

void follow_step(struct session *session)
{
	uint64_t begin = clock_ns(CLOCK_MONOTONIC), now = begin;

	maps_drain(session);
	/* Before probes are placed: until then all stacks through the new files end in them. */
	session_unwind_step(session);
	for (size_t i = 0; i < session->count && now - begin < STRETCH_NS; i++) {
		struct member *member = session->members[i];

		if (!member->mapped_ns || member->ended || member->off ||
		    now - member->mapped_ns < SETTLE_NS)
			continue;
		member_extend(session, member);
		now = clock_ns(CLOCK_MONOTONIC);
	}
	now = candidates_look(session, now, begin + STRETCH_NS);
	for (size_t i = 0; i < session->count && session->inherited && now - begin < STRETCH_NS;
	     i++) {
		if (child_is_due(session, session->members[i], now))
			child_attach(session, session->members[i]);
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
		err = obstacle_tell(OBSTACLE_EVENT, err);
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
		struct member *member = session->members[i];
		uint32_t tgid = (uint32_t)member->pid;

		if (member->ended ||
		    attach_is_target(session->attach, tgid, member->runtime.target.space_id))
			continue;
		member_end(session, member, EVENT_EXEC);
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
