/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks a member's heap, within the limit of the session (session/census.c). A walk that has begun
 * moves the limit to its own end.
 */
#include "member/census.h"

#include <errno.h>

#include "base/clock.h"
#include "base/error.h"
#include "heap/census.h"
#include "member/member.h"
#include "member/mode.h"
#include "member/probe.h"
#include "member/state.h"
#include "member/symbols.h"
#include "process/threads.h"
#include "remarks/contradictions.h"

#define THREADS_AT_ONCE 256u /* names that are read at a time */

int session_is_beyond(const struct session *session, uint64_t time_ns)
{
	return session->limit_ns && !session->walk && time_ns > session->limit_ns;
}

/* A walk of a member's heap. */
struct walk {
	struct session *session;
	const struct member *member;
};

/*
 * The member may have ended in the records that were drained meanwhile, and its pid been reused:
 * the rest of the walk must not be fed. The walk also ends if the trace gave it up for lack of
 * memory.
 */
static int record_feed(void *context, const void *record, size_t size)
{
	const struct walk *walk = context;
	const struct event_header *header = record;
	int err = walk->member->ended ? -ESRCH : session_feed(walk->session, record, size);

	if (err || header->type != EVENT_CENSUS_POOL ||
	    trace_is_walk(walk->session->trace, walk->member->index))
		return err;
	return error_set(-EDQUOT, "it holds more than there is memory for (--budget)");
}

static void records_pull(void *context)
{
	const struct walk *walk = context;

	session_pull(walk->session);
}

/* Logged once while the trace runs, since a report may come much later. */
static void contradiction_log(struct session *session, struct member *member)
{
	struct snapshot_meta meta;
	char text[320];

	if (member->contradicted || trace_meta(session->trace, member->index, &meta) ||
	    !meta.coverage_known)
		return;
	member->contradicted = contradictions_first(&meta, text, sizeof(text));
	if (member->contradicted)
		log_info("PID %d: %s", member->pid, text);
}

int member_census(struct session *session, struct member *member, int baseline, int freeze)
{
	struct walk walk = {.session = session, .member = member};
	const int native = member->mode == EVENT_MODE_WINDOWS && member_is_native(member);
	struct census_opts opts = {.baseline = baseline || member->baseline_due,
				   .freeze = freeze,
				   .types = !baseline && member->mode != EVENT_MODE_GROWTH,
				   .kinds = member->mode == EVENT_MODE_WINDOWS,
				   .record = record_feed,
				   .refresh = records_pull,
				   .context = &walk};
	uint64_t start;
	int err;

	/* A walk takes longer than a window may. */
	member_window_close(session, member);
	start = clock_ns(CLOCK_MONOTONIC);
	if ((member->heap_unreadable && !native) || member->ended ||
	    trace_process_at(session->trace, member->index)->end != TRACE_RUNNING)
		return 0;
	member_cost_feed(session, member, start);
	session->walk = 1;
	member_large_walk(session, member);
	err = native ? member_native_walk(session, member) : census_take(&member->runtime, &opts);
	if (!err)
		member->baseline_due = 0;
	member->census_ns = clock_ns(CLOCK_MONOTONIC);
	member->census_cost_ns = member->census_ns - start;
	session->walk = 0;
	if (session_is_beyond(session, member->census_ns))
		session->limit_ns = member->census_ns;
	/* What census mode has recorded so far relies on a heap that cannot be read. */
	if (err == -ENOTSUP && !opts.baseline && !native &&
	    (member->mode == EVENT_MODE_CENSUS || member->mode == EVENT_MODE_WINDOWS) &&
	    !member->off) {
		member_mode_fall_back(session, member);
		return 0;
	}
	contradiction_log(session, member);
	/* The baseline has told that there is no heap. */
	return err == -ESRCH || (err == -ENODATA && !baseline) ? 0 : err;
}

void member_reconcile(struct session *session, struct member *member, int baseline, int freeze)
{
	int err = member_census(session, member, baseline, freeze);

	if (err)
		log_info("PID %d: its heap could not be read: %s", member->pid, error_reason(err));
}

/* A thread that has ended by now keeps its number only. */
static void threads_name(struct session *session, struct member *member, uint64_t time_ns)
{
	uint32_t tid;
	size_t process;

	if (trace_process_find(session->trace, (uint32_t)member->pid, &process))
		return;
	for (uint32_t left = THREADS_AT_ONCE; left; left--) {
		struct event_thread record = {
			.header = {.type = EVENT_THREAD,
				   .size = sizeof(record),
				   .time_ns = time_ns,
				   .tgid = (uint32_t)member->pid},
		};

		if (!trace_thread_nameless(session->trace, process, &member->thread_cursor, &tid)) {
			member->thread_cursor = 0; /* all of them again at the next time */
			break;
		}
		record.header.tid = tid;
		if (!thread_name(member->pid, (pid_t)tid, record.name))
			session_feed(session, &record, sizeof(record));
	}
}

void member_rss_read(struct session *session, struct member *member, uint64_t time_ns)
{
	struct event_rss record = {
		.header = {.type = EVENT_RSS,
			   .size = sizeof(record),
			   .time_ns = time_ns,
			   .tgid = member->pid,
			   .tid = member->pid},
	};
	uint64_t bytes;

	member->rss_ns = time_ns;
	if (!member->ended)
		member_debugger_look(session, member);
	if (member->ended || process_rss_read(member->pid, &bytes, NULL) || !bytes)
		return;
	record.bytes = bytes;
	session_feed(session, &record, sizeof(record));
	member_cost_feed(session, member, time_ns);
	threads_name(session, member, time_ns);
	space_rest(member->runtime.space);
}
