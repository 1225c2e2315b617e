/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that come while a session runs.
 *
 * A child that is forked of a member is under trace from its first instruction: BPF has put it among the targets, and here it
 * is announced in the stream behind its parent's fork, before any record of its own. A process that has called exec is a
 * candidate: it is looked at until its loader is done, and then again whenever it has mapped another file with code.
 * Records come while the ring buffer is drained, where nothing may be attached: what they ask for is done after it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "probe/plan_process.h"
#include "probe/session_state.h"

#define LOOK_FIRST_NS  2000000ull   /* after a candidate has changed */
#define LOOK_LAST_NS   20000000ull  /* the longest pause between two looks until it is settled */
#define LOOK_BLIND_NS  100000000ull /* between two looks at a settled one, where no one tells us that it maps a file */
#define PICK_UP_NS     20000000ull  /* at a stretch: then the ring buffer is drained */
#define TOLD_ONE_BY_ONE 8u

static struct candidate *candidate_find(struct session *session, uint32_t pid)
{
	for (size_t i = session->candidate_count; i-- > 0;)
		if ((uint32_t)session->candidates[i].late.pid == pid)
			return &session->candidates[i];
	return NULL;
}

static void candidate_remove(struct session *session, struct candidate *candidate)
{
	*candidate = session->candidates[--session->candidate_count];
}

/* A new program, or a new file in one that is known. */
static void candidate_touch(struct session *session, uint32_t pid)
{
	struct candidate *candidate = candidate_find(session, pid);
	uint64_t now = clock_ns(CLOCK_MONOTONIC);

	if (!candidate) {
		if (array_reserve(&session->candidates, &session->candidate_room, session->candidate_count, 1,
				  sizeof(*session->candidates)))
			return;
		candidate = &session->candidates[session->candidate_count++];
		*candidate = (struct candidate){.late.pid = (pid_t)pid};
	}
	candidate->settled = 0;
	candidate->born_ns = now;
	candidate->next_ns = now + LOOK_FIRST_NS;
}

int pick_up_takes(struct session *session, const void *record)
{
	const struct event_header *header = record;
	struct candidate *candidate;

	switch (header->type) {
	case EVENT_APPEAR:
		candidate_touch(session, header->tgid);
		return 1;
	case EVENT_EXIT:
		candidate = candidate_find(session, header->tgid);
		if (candidate)
			candidate_remove(session, candidate);
		return !member_find(session, header->tgid);
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
	int err = member_new(session, (pid_t)fork->other, &member);

	if (err)
		return err;
	err = python_runtime_inherit(&parent->runtime, member->pid, &member->runtime);
	record.header.tgid = record.header.tid = fork->other;
	record.header.time_ns = fork->header.time_ns;
	record.realtime_ns += fork->header.time_ns - parent->announced.header.time_ns;
	record.parent = fork->header.tgid;
	record.ns_pid = 0;
	if (!err)
		err = session_feed(session, &record, sizeof(record));
	if (!err)
		err = trace_process_find(session->trace, fork->other, &member->index);
	if (err) {
		member_close(member);
		return err;
	}
	member->announced = record;
	member->mode = parent->mode;
	member->mapped = parent->mapped;
	member->large_blocks = parent->large_blocks;
	member->heap_unreadable = parent->heap_unreadable;
	member->census_ns = clock_ns(CLOCK_MONOTONIC);
	member->adopted = 1;
	session->adopted++;
	session->members[session->count++] = member;
	return 0;
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
		log_info("PID %u, which PID %d has forked, is not traced: no memory", event->other, member->pid);
}

/* One of many: the first ones are told of. */
static void refuse(struct session *session, pid_t pid, int err)
{
	const char *reason = error_reason(err);

	if (session->refused++ < TOLD_ONE_BY_ONE)
		log_info("PID %d is not traced: %s", (int)pid, reason);
	else
		log_debug("PID %d is not traced: %s", (int)pid, reason);
	if (session->refused == TOLD_ONE_BY_ONE)
		log_info("of further processes that are not traced only -v tells");
}

/* The probes lie in the files already, or the child's alone are to be placed: what it did before they are the heap tells. */
static void member_adopt(struct session *session, struct member *member)
{
	struct python_runtime runtime = {0};
	struct process_info info;
	struct plan plan = {0};
	int err = 0;

	member->adopted = 0;
	session->adopted--;
	if (!attach_is_everywhere(session->attach, member->runtime.file)) {
		err = plan_process(member->pid, &session->opts.plan, session->plans, &info, &runtime, &plan);
		if (!err)
			err = member_probe(session, member, &plan);
		plan_free(&plan);
		python_runtime_close(&runtime);
		if (!err)
			member_reconcile(session, member, 0, 0);
	}
	if (err && err != -ESRCH) {
		refuse(session, member->pid, err);
		attach_forget(session->attach, member->pid);
		member_end(session, member);
	} else if (!err) {
		log_debug("PID %d, forked by PID %u, is traced, too", member->pid, member->announced.parent);
	}
}

/* 1: it need not be looked at any more. */
static int candidate_look(struct session *session, struct candidate *candidate, uint64_t now)
{
	uint64_t pause = (now - candidate->born_ns) / 4;
	pid_t pid = candidate->late.pid;
	int found, err;

	if (member_find(session, pid))
		return 1;
	found = late_look(&candidate->late);
	if (found == -ESRCH)
		return 1;
	if (found > 0) {
		/* It may come in a drain meanwhile that candidates move: this one is not touched any more. */
		err = session_add(session, pid, 0);
		if (err && err != -ESRCH)
			refuse(session, pid, err);
		return 1;
	}
	if (found < 0)
		refuse(session, pid, found);
	candidate->settled = found < 0 || candidate->late.looked == candidate->late.mapped;
	if (candidate->settled)
		pause = session->maps ? UINT64_MAX - now : LOOK_BLIND_NS;
	else if (pause < LOOK_FIRST_NS)
		pause = LOOK_FIRST_NS;
	else if (pause > LOOK_LAST_NS)
		pause = LOOK_LAST_NS;
	candidate->next_ns = now + pause;
	return 0;
}

/* Who is under trace or not watched at all is none of ours. */
static void process_mapped(void *context, uint32_t tgid)
{
	struct session *session = context;

	if (candidate_find(session, tgid))
		candidate_touch(session, tgid);
}

void pick_up(struct session *session)
{
	uint64_t begin = clock_ns(CLOCK_MONOTONIC), now = begin;

	if (session->maps)
		map_watch_drain(session->maps, process_mapped, session);
	for (size_t i = 0; i < session->count && session->adopted && now - begin < PICK_UP_NS; i++) {
		if (session->members[i]->adopted && !session->members[i]->ended)
			member_adopt(session, session->members[i]);
		now = clock_ns(CLOCK_MONOTONIC);
	}
	for (size_t i = 0; i < session->candidate_count && now - begin < PICK_UP_NS; i++) {
		pid_t pid = session->candidates[i].late.pid;

		if (session->candidates[i].next_ns > now)
			continue;
		if (candidate_look(session, &session->candidates[i], now)) {
			struct candidate *candidate = candidate_find(session, pid);

			/* A process that has called exec meanwhile is another candidate. */
			if (candidate && candidate->born_ns <= now)
				candidate_remove(session, candidate);
		}
		now = clock_ns(CLOCK_MONOTONIC);
	}
}

int pick_up_new(struct session *session)
{
	int err;

	if (session->opts.watch == ABI_WATCH_NONE)
		return 0;
	err = map_watch_open(&session->maps);
	/* Then candidates are looked at now and then. */
	if (err)
		log_debug("mapped files are not told of: %s", error_reason(err));
	return err == -ENOMEM ? err : 0;
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

int session_undecided(const struct session *session)
{
	for (size_t i = 0; i < session->candidate_count; i++)
		if (!session->candidates[i].settled)
			return 1;
	return 0;
}

void pick_up_free(struct session *session)
{
	map_watch_close(session->maps);
	free(session->candidates);
	free(session->expected);
	file_users_free(session->users);
}
