/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks a target's heap, within the limit of the session (session/session.c). A walk that
 * has begun moves the limit to its own end.
 */
#include "session/target/census.h"

#include <errno.h>

#include "proc/threads.h"
#include "report/caveats/inconsistencies.h"
#include "runtime/heap/census.h"
#include "session/target/mode.h"
#include "session/target/pages.h"
#include "session/target/place.h"
#include "session/target/state.h"
#include "session/target/symbols.h"
#include "session/target/target.h"
#include "util/clock.h"
#include "util/error.h"

#define THREADS_AT_ONCE 256u /* names that are read at a time */

bool session_is_beyond(const struct session *session, uint64_t time_ns)
{
	return session->limit_ns && !session->walk && time_ns > session->limit_ns;
}

/* A walk of a target's heap. */
struct target_walk {
	struct session *session;
	const struct target *target;
};

/*
 * The target may have ended in the records that were drained meanwhile, and its pid been reused:
 * the rest of the walk must not be fed. The walk also ends if the trace gave it up for lack of
 * memory.
 */
static int record_feed(void *context, const void *record, size_t size)
{
	const struct target_walk *walk = context;
	const struct event_header *header = record;
	int err = walk->target->ended ? -ESRCH : session_feed(walk->session, record, size);

	if (err || header->type != EVENT_CENSUS_POOL ||
	    trace_is_walk(walk->session->trace, walk->target->index))
		return err;
	return error_set(-EDQUOT, "it holds more than there is memory for (--budget)");
}

static void records_pull(void *context)
{
	const struct target_walk *walk = context;

	session_pull(walk->session);
}

/* Logged once while the trace runs, since a report may come much later. */
static void inconsistency_log(struct session *session, struct target *target)
{
	struct snapshot_meta meta;
	char text[320];

	if (target->contradicted || trace_meta(session->trace, target->index, &meta) ||
	    !meta.coverage_known)
		return;
	target->contradicted = inconsistencies_first(&meta, text, sizeof(text));
	if (target->contradicted)
		log_info("PID %d: %s", target->pid, text);
}

int target_census(struct session *session, struct target *target, int baseline, int freeze)
{
	struct target_walk walk = {.session = session, .target = target};
	const int pages = target_is_pages(target);
	const int native = target->mode == EVENT_MODE_WINDOWS && target_is_native(target);
	struct census_opts opts = {.baseline = baseline || target->baseline_due,
				   .freeze = freeze,
				   .types = !baseline && target->mode != EVENT_MODE_GROWTH,
				   .kinds = target->mode == EVENT_MODE_WINDOWS,
				   .record = record_feed,
				   .refresh = records_pull,
				   .context = &walk};
	uint64_t start;
	int err;

	/* A walk takes longer than a window may. */
	target_window_close(session, target);
	start = clock_ns(CLOCK_MONOTONIC);
	if ((target->heap_unreadable && !native && !pages) || target->ended ||
	    trace_process_at(session->trace, target->index)->end != TRACE_RUNNING)
		return 0;
	target_cost_feed(session, target, start);
	session->walk = 1;
	target_large_walk(session, target);
	err = pages    ? target_pages_walk(session, target)
	      : native ? target_native_walk(session, target)
		       : census_take(&target->runtime, &opts);
	if (!err)
		target->baseline_due = 0;
	target->census_ns = clock_ns(CLOCK_MONOTONIC);
	target->census_cost_ns = target->census_ns - start;
	session->walk = 0;
	if (session_is_beyond(session, target->census_ns))
		session->limit_ns = target->census_ns;
	/* What census mode has recorded so far relies on a heap that cannot be read. */
	if (err == -ENOTSUP && !opts.baseline && !native &&
	    (target->mode == EVENT_MODE_CENSUS || target->mode == EVENT_MODE_WINDOWS) &&
	    !target->off) {
		target_mode_fall_back(session, target);
		return 0;
	}
	inconsistency_log(session, target);
	/* The baseline has told that there is no heap. */
	return err == -ESRCH || (err == -ENODATA && !baseline) ? 0 : err;
}

void target_reconcile(struct session *session, struct target *target, int baseline, int freeze)
{
	int err = target_census(session, target, baseline, freeze);

	if (err)
		log_info("PID %d: its heap could not be read: %s", target->pid, error_reason(err));
}

/* A thread that has ended by now keeps its number only. */
static void threads_name(struct session *session, struct target *target, uint64_t time_ns)
{
	uint32_t tid;
	size_t process;

	if (trace_process_find(session->trace, (uint32_t)target->pid, &process))
		return;
	for (uint32_t left = THREADS_AT_ONCE; left; left--) {
		struct event_thread record = {
			.header = {.type = EVENT_THREAD,
				   .size = sizeof(record),
				   .time_ns = time_ns,
				   .tgid = (uint32_t)target->pid},
		};

		if (!trace_thread_nameless(session->trace, process, &target->thread_cursor, &tid)) {
			target->thread_cursor = 0; /* all of them again at the next time */
			break;
		}
		record.header.tid = tid;
		if (!thread_name(target->pid, (pid_t)tid, record.name))
			session_feed(session, &record, sizeof(record));
	}
}

void target_rss_read(struct session *session, struct target *target, uint64_t time_ns)
{
	struct event_rss record = {
		.header = RECORD_HEADER(EVENT_RSS, record, time_ns, target->pid),
	};
	uint64_t bytes;

	target->rss_ns = time_ns;
	if (!target->ended)
		target_debugger_look(session, target);
	if (target->ended || process_rss_read(target->pid, &bytes, NULL) || !bytes)
		return;
	record.bytes = bytes;
	session_feed(session, &record, sizeof(record));
	target_cost_feed(session, target, time_ns);
	threads_name(session, target, time_ns);
	space_rest(target->runtime.space);
}
