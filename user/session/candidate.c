/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each candidate is inspected until its loader is done, and then again whenever it maps another
 * file with code.
 */
#include "session/candidate.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "probe/process/plan_target.h"
#include "proc/process.h"
#include "session/session.h"
#include "session/target/state.h"
#include "session/target/target.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/error.h"

#define LOOK_FIRST_NS 2000000ull  /* after a candidate has changed */
#define LOOK_LAST_NS  20000000ull /* the longest pause between inspections until it is settled */
/* between inspections of a settled one, if mmap events are not available */
#define LOOK_BLIND_NS 100000000ull
#define LOADED_NS     10000000ull /* its loader is done if it maps no file with code for so long */

static int is_wanted(const struct session *session, pid_t pid, const char *name)
{
	return session->opts.wanted ? session->opts.wanted(session->opts.wanted_context, pid, name)
				    : 1;
}

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

void candidate_ended(struct session *session, struct candidate *candidate)
{
	if (!candidate->examined) {
		session->ended_unexamined += candidate->wanted > 0;
		session->ended_unnamed += candidate->wanted < 0;
	}
	candidate_remove(session, candidate);
}

/*
 * 1: the process was last known as one that is traced, or to be traced, without Python; 0: as
 * another one; -1: it is not known.
 */
static int was_native(struct session *session, uint32_t pid)
{
	const struct candidate *candidate = candidate_find(session, pid);

	if (candidate)
		return candidate->native;
	for (size_t i = session->count; i-- > 0;)
		if ((uint32_t)session->targets[i]->pid == pid)
			return !(session->targets[i]->layers & 1u << EVENT_LAYER_PYTHON);
	return -1;
}

/*
 * By default, programs that a Python process starts are not wanted without Python: each helper
 * would be another process in the report. Programs that other processes start are, and so are all
 * programs if all processes are traced.
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

void candidate_renew(struct session *session, uint32_t pid, uint32_t parent, const char *name)
{
	int native = native_wanted(session, pid, parent);
	struct candidate *candidate = candidate_find(session, pid);

	if (candidate)
		candidate_remove(session, candidate);
	candidate = candidate_touch(session, pid);
	if (!candidate)
		return;
	candidate->native = native;
	/* Asked at once: it may end before it is inspected. */
	candidate->wanted = is_wanted(session, (pid_t)pid, name);
}

struct candidate *candidate_touch(struct session *session, uint32_t pid)
{
	struct candidate *candidate = candidate_find(session, pid);
	uint64_t now = clock_ns(CLOCK_MONOTONIC);

	if (!candidate) {
		if (ARRAY_RESERVE(NULL, session, candidates, candidate_count, candidate_capacity,
				  1))
			return NULL;
		candidate = &session->candidates[session->candidate_count++];
		*candidate = (struct candidate){.late.pid = (pid_t)pid, .wanted = -ESRCH};
	}
	candidate->settled = 0;
	candidate->born_ns = now;
	candidate->next_ns = now + LOOK_FIRST_NS;
	return candidate;
}

int ending_error(pid_t pid, int err)
{
	struct process_info info;

	if (!err || err == -EOWNERDEAD)
		return err;
	return process_info_read(pid, &info) || info.zombie || info.headless ? -ESRCH : err;
}

void refuse(struct session *session, pid_t pid, int err)
{
	const char *reason = error_reason(err);

	if (err == -EOWNERDEAD) /* the session ends, and reports it once */
		return;
	/* If all processes are watched, some refusals are to be expected. */
	if (session->opts.watch != ABI_WATCH_ALL && session->refusals++ < SESSION_LOGS)
		log_info("PID %d is not traced: %s", (int)pid, reason);
	else
		log_debug("PID %d is not traced: %s", (int)pid, reason);
	if (session->refusals == SESSION_LOGS)
		log_info("further processes that are not traced are logged only with -v");
}

/*
 * Nothing is wanted in the files mapped so far; its loader may have been delayed. It is inspected
 * again when it maps a file. 0: mmap events are not available.
 */
static int candidate_rest(struct session *session, pid_t pid, uint64_t now)
{
	struct candidate *candidate = session->maps ? candidate_find(session, (uint32_t)pid) : NULL;

	if (!candidate)
		return 0;
	if (candidate->born_ns <= now) {
		candidate->settled = candidate->examined = 1;
		candidate->next_ns = UINT64_MAX;
	}
	return 1;
}

/* What becomes of a candidate that was inspected. */
enum candidate_look { LOOK_KEEP, LOOK_REMOVE, LOOK_ENDED };

static enum candidate_look candidate_look(struct session *session, struct candidate *candidate,
					  uint64_t now)
{
	uint64_t pause = (now - candidate->born_ns) / 4;
	pid_t pid = candidate->late.pid;
	struct target *target = target_find(session, (uint32_t)pid);
	int found, settled, err;

	if (target && !target->execd)
		return LOOK_REMOVE;
	if (!candidate->late.mapped) {
		int wanted = is_wanted(session, pid, NULL);

		if (!wanted)
			return LOOK_REMOVE;
		if (wanted > 0)
			candidate->wanted = 1;
	}
	found = late_look(&candidate->late, plan_cache_files(session->plans.python));
	if (found == -ESRCH)
		return LOOK_ENDED;
	/* While it is being loaded, it may still map Python. */
	settled = !found && candidate->late.looked == candidate->late.mapped;
	if (settled && candidate->native) {
		found = now - candidate->born_ns >= LOADED_NS;
		settled = 0;
	}
	if (found > 0) {
		/* It drains, which may move candidates: the pointer is invalid then. */
		err = ending_error(pid, session_add_followed(session, pid));
		if (err == -ESRCH)
			return LOOK_ENDED;
		if (err)
			refuse(session, pid, err);
		return err == -ENOENT && candidate_rest(session, pid, now) ? LOOK_KEEP
									   : LOOK_REMOVE;
	}
	if (found < 0)
		refuse(session, pid, found);
	candidate->settled = settled || found < 0;
	candidate->examined |= candidate->settled;
	if (candidate->settled)
		pause = session->maps ? UINT64_MAX - now : LOOK_BLIND_NS;
	else if (pause < LOOK_FIRST_NS)
		pause = LOOK_FIRST_NS;
	else if (pause > LOOK_LAST_NS)
		pause = LOOK_LAST_NS;
	candidate->next_ns = now + pause;
	return LOOK_KEEP;
}

uint64_t candidates_look(struct session *session, uint64_t now, uint64_t until)
{
	for (size_t i = 0; i < session->candidate_count && now < until; i++) {
		pid_t pid = session->candidates[i].late.pid;
		struct candidate *candidate;
		enum candidate_look look;

		if (session->candidates[i].next_ns > now)
			continue;
		look = candidate_look(session, &session->candidates[i], now);
		candidate = candidate_find(session, (uint32_t)pid);
		/* If it has called exec meanwhile, the candidate is a new one. */
		if (candidate && candidate->born_ns <= now) {
			if (look == LOOK_ENDED)
				candidate_ended(session, candidate);
			else if (look == LOOK_REMOVE)
				candidate_remove(session, candidate);
		}
		now = clock_ns(CLOCK_MONOTONIC);
	}
	return now;
}

void untracked_find(struct session *session)
{
	pid_t *pids = NULL;
	size_t count = 0;

	if (process_list(&pids, &count))
		return;
	for (size_t i = 0; i < count; i++)
		if (pids[i] != getpid() && !target_find(session, pids[i]) &&
		    !candidate_find(session, pids[i]))
			candidate_renew(session, (uint32_t)pids[i], 0, NULL);
	free(pids);
}

size_t session_unnamed(const struct session *session)
{
	return session->ended_unnamed;
}

size_t session_unexamined(const struct session *session)
{
	return session->ended_unexamined;
}

int session_undecided(const struct session *session)
{
	for (size_t i = 0; i < session->candidate_count; i++)
		if (!session->candidates[i].settled)
			return 1;
	return 0;
}
