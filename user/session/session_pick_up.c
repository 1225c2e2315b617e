/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that come while a session runs.
 *
 * A child that is forked of a member is under trace from its first instruction: BPF has put it
 * among the targets, and here it is announced in the stream behind its parent's fork, before any
 * record of its own. A process that has called exec is a candidate (session_candidate.c), or has
 * been made a target by BPF, too (session_newborn.c). Records come while the ring buffer is
 * drained, where nothing may be attached: what they ask for is done after it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attach/obstacles.h"
#include "base/clock.h"
#include "base/error.h"
#include "plan/plan_target.h"
#include "session/session_state.h"
#include "symbols/symbols.h"

#define SETTLE_NS  2000000ull  /* after a member has mapped a file with code */
#define ADOPT_NS   50000000ull /* after the fork */
#define PICK_UP_NS 20000000ull /* at a stretch: then the ring buffer is drained */

/* Who is not watched at all is none of ours. */
static void process_mapped(struct session *session, uint32_t tgid)
{
	struct member *member = member_find(session, tgid);
	struct candidate *candidate = candidate_find(session, tgid);

	if (candidate || (member && member->newborn))
		candidate = candidate_touch(session, tgid);
	if (candidate && member)
		candidate->native = 1;
	if (member && !member->newborn && !member->mapped_ns &&
	    member->layers & 1u << EVENT_LAYER_NATIVE)
		member->mapped_ns = clock_ns(CLOCK_MONOTONIC);
}

static void mapped_take(void *context, const struct map_watch_record *record)
{
	struct session *session = context;

	/* Only files have functions that are probed. */
	if ((record->exec || record->map.inode) && !newborn_told(session, record) && !record->exec)
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

/* Of a program of which no member can be made, the records are of nobody. */
static void newborn_appear(struct session *session, const struct event_appear *event)
{
	int err = newborn_announce(session, event);

	if (!err)
		return;
	session_discard(session, event->header.tgid, event->space);
	refuse(session, (pid_t)event->header.tgid, err);
}

/*
 * A child that BPF has made a target, as its parent was: if that is none any more, it is not,
 * either.
 */
static int fork_takes(struct session *session, const struct event_process *fork)
{
	if (member_find(session, fork->header.tgid))
		return 0;
	if (fork->code & EVENT_FORK_TRACED) {
		session_discard(session, fork->other, fork->space);
		candidate_touch(session, fork->other);
	}
	return 1;
}

/*
 * A program or a child begins whose number a member has. The record of that one's end was lost; or
 * it has called this program while it was attached to, and what is known of the one before is taken
 * for this one's.
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
		candidate_renew(session, event->header.tgid, event->parent);
		return;
	}
	if (candidate)
		candidate_remove(session, candidate);
	maps_drain(session);
	newborn_appear(session, event);
}

int pick_up_takes(struct session *session, const void *record)
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
		if (member && newborn_unseen(session, member))
			member = NULL;
		if (candidate)
			candidate_remove(session, candidate);
		return !member;
	default:
		return 0;
	}
}

/* The fork's record is the last one of the time before. */
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
	member->runtime.target.space = fork->space;
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
	member->reuse_unseen = parent->reuse_unseen;
	member->ends_unseen = parent->ends_unseen;
	member->off = parent->off;
	member->heap_unreadable = parent->heap_unreadable;
	member->census_ns = clock_ns(CLOCK_MONOTONIC);
	/* All that its parent has mapped, it has. */
	member->newborn = parent->newborn;
	member->adopted = !parent->newborn;
	session->adopted += member->adopted;
	if (parent->newborn && candidate_find(session, (uint32_t)parent->pid))
		process_mapped(session, fork->other);
	if (parent->symbols.told)
		return modules_copy(&member->symbols.told, parent->symbols.told, member->pid);
	return member_symbols_begin(session, member);
}

void pick_up_note(struct session *session, const void *record)
{
	const struct event_header *header = record;
	const struct event_process *event = record;
	struct member *member;

	if (header->type != EVENT_EXIT && header->type != EVENT_EXEC && header->type != EVENT_FORK)
		return;
	member = member_find(session, header->tgid);
	if (!member)
		return;
	if (header->type != EVENT_FORK)
		member->ended = 1;
	else if (event->code & EVENT_FORK_TRACED && child_announce(session, member, event))
		log_info("PID %u, which PID %d has forked, is not traced: no memory", event->other,
			 member->pid);
}

/*
 * The child has the probes that lie in files. Others are to be placed; what it did before, its heap
 * tells.
 */
static void member_adopt(struct session *session, struct member *member)
{
	struct plan_target_opts opts = session->opts.plan;
	struct plan_target target;
	int err;

	/* Its parent's mode, which need not be the one that was asked for any more. */
	if (member->layers & 1u << EVENT_LAYER_PYTHON)
		opts.python.mode = member->mode;
	err = plan_target(member->pid, &opts, &session->plans, &target);
	member->adopted = 0;
	session->adopted--;
	if (!err) {
		err = member->off ? 0 : member_probe(session, member, &target, ATTACH_ALL);
		plan_target_free(&target);
	}
	if (!err)
		err = member_governor_begin(session, member);
	if (!err)
		member_reconcile(session, member, 0, 0);
	/* Its end will be told. */
	if (err && err != -ESRCH) {
		refuse(session, member->pid, err);
		member_forget(session, member);
		member_end(session, member, EVENT_EXIT);
	} else if (!err) {
		log_debug("PID %d, forked by PID %u, is traced, too", member->pid,
			  member->announced.parent);
	}
}

/*
 * Where the probes lie in the files, a child has them: there is no haste, and one that is going to
 * call exec, as most are, need not be seen to at all.
 */
static int adoption_is_due(const struct session *session, const struct member *member, uint64_t now)
{
	return member->adopted && !member->ended &&
	       (!session->opts.everywhere || now - member->census_ns >= ADOPT_NS);
}

/*
 * The allocators in files that a member has mapped since it was planned. What is probed already
 * stays as it is.
 */
static void member_extend(struct session *session, struct member *member)
{
	struct plan_target target = {0};
	int err = plan_native_process(member->pid, session->plans.native, &target.native,
				      &target.native_count);

	member->mapped_ns = 0;
	for (size_t i = 0; i < target.native_count && !err; i++)
		err = seccomp_check(&session->seccomp, &session->features, member->pid,
				    target.native[i].plan);
	if (!err)
		err = member_probe(session, member, &target, ATTACH_ALL);
	free(target.native);
	if (err && err != -ESRCH)
		refuse(session, member->pid, err);
}

void pick_up(struct session *session)
{
	uint64_t begin = clock_ns(CLOCK_MONOTONIC), now = begin;

	maps_drain(session);
	for (size_t i = 0; i < session->count && now - begin < PICK_UP_NS; i++) {
		struct member *member = session->members[i];

		if (!member->mapped_ns || member->ended || member->off ||
		    now - member->mapped_ns < SETTLE_NS)
			continue;
		member_extend(session, member);
		now = clock_ns(CLOCK_MONOTONIC);
	}
	now = candidates_look(session, now, begin + PICK_UP_NS);
	for (size_t i = 0; i < session->count && session->adopted && now - begin < PICK_UP_NS;
	     i++) {
		if (adoption_is_due(session, session->members[i], now))
			member_adopt(session, session->members[i]);
		now = clock_ns(CLOCK_MONOTONIC);
	}
}

int pick_up_new(struct session *session)
{
	int err;

	if (session->opts.watch == ABI_WATCH_NONE)
		return 0;
	/* It forks a process of its own, best while this one is small. */
	err = newborn_layers(&session->opts)
		      ? symbols_new_in(&session->symbols, trace_account(session->trace))
		      : 0;
	if (err)
		return err;
	err = map_watch_open(&session->maps);
	/* Then candidates are looked at now and then. */
	if (err) {
		err = obstacle_tell(OBSTACLE_EVENT, err);
		log_info("what processes map later is found by looking now and then: %s",
			 error_reason(err));
	}
	return err == -ENOMEM ? err : 0;
}

/*
 * Members that have called exec, as the programs know. What they run now may not have been told of,
 * either.
 */
static void execs_find(struct session *session)
{
	session_pull(session);
	for (size_t i = 0; i < session->count; i++) {
		struct member *member = session->members[i];
		uint32_t tgid = (uint32_t)member->pid;

		if (member->ended ||
		    attach_is_target(session->attach, tgid, member->runtime.target.space))
			continue;
		member_end(session, member, EVENT_EXEC);
		candidate_renew(session, tgid, 0);
	}
}

void pick_up_lost(struct session *session, uint64_t lost)
{
	if (session->opts.watch == ABI_WATCH_NONE || lost == session->lost)
		return;
	session->lost = lost;
	execs_find(session);
	if (session->opts.watch == ABI_WATCH_ALL)
		strangers_find(session);
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

void pick_up_free(struct session *session)
{
	map_watch_close(session->maps);
	newborns_free(session);
	container_list_free(&session->containers);
	free(session->candidates);
	free(session->expected);
	file_users_free(session->users);
	memory_room_free(session->room);
}
