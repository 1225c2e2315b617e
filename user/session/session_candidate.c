/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Candidates: processes that are watched and not traced. Each is looked at until its loader is
 * done, and then again whenever it has mapped another file with code.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "plan/plan_target.h"
#include "session/session_state.h"

#define LOOK_FIRST_NS 2000000ull  /* after a candidate has changed */
#define LOOK_LAST_NS  20000000ull /* the longest pause between two looks until it is settled */
/* between two looks at a settled one, where no one tells us that it maps a file */
#define LOOK_BLIND_NS 100000000ull
#define LOADED_NS     10000000ull /* without a new file with code: then its loader is done */

struct candidate *candidate_find(struct session *session, uint32_t pid)
{
	for (size_t i = session->candidate_count; i-- > 0;)
		if ((uint32_t)session->candidates[i].late.pid == pid)
			return &session->candidates[i];
	return NULL;
}

void candidate_remove(struct session *session, struct candidate *candidate)
{
	*candidate = session->candidates[--session->candidate_count];
}

/*
 * The last that was known of a process: 1, it was traced or to be traced without Python; 0 not so;
 * -1: nothing is known.
 */
static int was_native(struct session *session, uint32_t pid)
{
	const struct candidate *candidate = candidate_find(session, pid);

	if (candidate)
		return candidate->native;
	for (size_t i = session->count; i-- > 0;)
		if ((uint32_t)session->members[i]->pid == pid)
			return !(session->members[i]->layers & 1u << EVENT_LAYER_PYTHON);
	return -1;
}

/*
 * If nothing else was said, what a Python starts is not wanted, or each of its helpers would be
 * another process in the report; what another program starts is, and so is everything where all is
 * watched.
 */
static int native_wanted(struct session *session, uint32_t pid, uint32_t parent)
{
	uint32_t layers = session->opts.plan.layers;
	int native;

	if (layers || session->opts.everywhere)
		return layers != 1u << EVENT_LAYER_PYTHON;
	native = was_native(session, pid);
	if (native < 0)
		native = was_native(session, parent);
	return native > 0;
}

void candidate_renew(struct session *session, uint32_t pid, uint32_t parent)
{
	int native = native_wanted(session, pid, parent);
	struct candidate *candidate = candidate_find(session, pid);

	if (candidate)
		candidate_remove(session, candidate);
	candidate = candidate_touch(session, pid);
	if (candidate)
		candidate->native = native;
}

struct candidate *candidate_touch(struct session *session, uint32_t pid)
{
	struct candidate *candidate = candidate_find(session, pid);
	uint64_t now = clock_ns(CLOCK_MONOTONIC);

	if (!candidate) {
		if (array_reserve(&session->candidates, &session->candidate_room,
				  session->candidate_count, 1, sizeof(*session->candidates)))
			return NULL;
		candidate = &session->candidates[session->candidate_count++];
		*candidate = (struct candidate){.late.pid = (pid_t)pid};
	}
	candidate->settled = 0;
	candidate->born_ns = now;
	candidate->next_ns = now + LOOK_FIRST_NS;
	return candidate;
}

void refuse(struct session *session, pid_t pid, int err)
{
	const char *reason = error_reason(err);

	if (err == -EOWNERDEAD) /* the session ends by it, and says so once */
		return;
	/* Of whatever appears it is to be expected that some cannot be. */
	if (session->opts.watch != ABI_WATCH_ALL && session->refused++ < SESSION_TOLD)
		log_info("PID %d is not traced: %s", (int)pid, reason);
	else
		log_debug("PID %d is not traced: %s", (int)pid, reason);
	if (session->refused == SESSION_TOLD)
		log_info("of further processes that are not traced only -v tells");
}

/*
 * There is nothing in what it has mapped so far, as where its loader was kept waiting: it is looked
 * at again when it maps a file. 1: somebody tells of that.
 */
static int candidate_rest(struct session *session, pid_t pid, uint64_t now)
{
	struct candidate *candidate = session->maps ? candidate_find(session, (uint32_t)pid) : NULL;

	if (!candidate)
		return 0;
	if (candidate->born_ns <= now) {
		candidate->settled = 1;
		candidate->next_ns = UINT64_MAX;
	}
	return 1;
}

/* 1: it need not be looked at any more. */
static int candidate_look(struct session *session, struct candidate *candidate, uint64_t now)
{
	uint64_t pause = (now - candidate->born_ns) / 4;
	pid_t pid = candidate->late.pid;
	struct member *member = member_find(session, (uint32_t)pid);
	int found, settled, err;

	if (member && !member->newborn)
		return 1;
	if (session->opts.wanted && !candidate->late.mapped &&
	    !session->opts.wanted(session->opts.wanted_context, pid))
		return 1;
	found = late_look(&candidate->late, plan_cache_files(session->plans.python));
	if (found == -ESRCH)
		return 1;
	/* One that is being loaded may come to its Python yet. */
	settled = !found && candidate->late.looked == candidate->late.mapped;
	if (settled && candidate->native) {
		found = now - candidate->born_ns >= LOADED_NS;
		settled = 0;
	}
	if (found > 0) {
		/*
		 * It may come in a drain meanwhile that candidates move: this one is not touched
		 * any more.
		 */
		err = session_add(session, pid, 0);
		if (err && err != -ESRCH)
			refuse(session, pid, err);
		return !(err == -ENOENT && candidate_rest(session, pid, now));
	}
	if (found < 0)
		refuse(session, pid, found);
	candidate->settled = settled || found < 0;
	if (candidate->settled)
		pause = session->maps ? UINT64_MAX - now : LOOK_BLIND_NS;
	else if (pause < LOOK_FIRST_NS)
		pause = LOOK_FIRST_NS;
	else if (pause > LOOK_LAST_NS)
		pause = LOOK_LAST_NS;
	candidate->next_ns = now + pause;
	return 0;
}

uint64_t candidates_look(struct session *session, uint64_t now, uint64_t until)
{
	for (size_t i = 0; i < session->candidate_count && now < until; i++) {
		pid_t pid = session->candidates[i].late.pid;

		if (session->candidates[i].next_ns > now)
			continue;
		if (candidate_look(session, &session->candidates[i], now)) {
			struct candidate *candidate = candidate_find(session, (uint32_t)pid);

			/* A process that has called exec meanwhile is another candidate. */
			if (candidate && candidate->born_ns <= now)
				candidate_remove(session, candidate);
		}
		now = clock_ns(CLOCK_MONOTONIC);
	}
	return now;
}

void strangers_find(struct session *session)
{
	pid_t *pids = NULL;
	size_t count = 0;

	if (process_list(&pids, &count))
		return;
	for (size_t i = 0; i < count; i++)
		if (pids[i] != getpid() && !member_find(session, pids[i]) &&
		    !candidate_find(session, pids[i]))
			candidate_renew(session, (uint32_t)pids[i], 0);
	free(pids);
}

int session_undecided(const struct session *session)
{
	for (size_t i = 0; i < session->candidate_count; i++)
		if (!session->candidates[i].settled)
			return 1;
	return 0;
}
