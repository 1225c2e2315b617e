/* SPDX-License-Identifier: Apache-2.0 */
/* When the heaps of a session's processes are read. */
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "report/contradictions.h"
#include "session/census.h"
#include "session/session_state.h"

/* Heap readings that nobody asked for take at most this share of the time. */
#define CENSUS_SHARE    50
#define CENSUS_PAUSE_NS 500000000ull /* between two of them at least */
/* At a stretch: then the ring buffer is drained. */
#define CENSUS_STRETCH_NS 20000000ull

/* The reading of a member's heap. */
struct walk {
	struct session *session;
	const struct member *member;
};

/*
 * In what was drained it may have ended, and another begun with its number: the records are not
 * that one's. A reading that has been given up ends: there is no memory for what it tells.
 */
static int record_feed(void *context, const void *record, size_t size)
{
	const struct walk *walk = context;
	const struct event_header *header = record;
	int err = walk->member->ended ? -ESRCH : session_feed(walk->session, record, size);

	if (err || header->type != EVENT_CENSUS_POOL ||
	    trace_is_reading(walk->session->trace, walk->member->index))
		return err;
	return error_set(-EDQUOT, "it holds more than there is memory for (--budget)");
}

static void records_pull(void *context)
{
	const struct walk *walk = context;

	session_pull(walk->session);
}

/* While the trace goes on, too, and once: a report may be a long time off. */
static void contradiction_tell(struct session *session, struct member *member)
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
	struct census_opts opts = {.baseline = baseline || member->baseline_due,
				   .freeze = freeze,
				   .types = !baseline && member->mode != EVENT_MODE_GROWTH,
				   .record = record_feed,
				   .refresh = records_pull,
				   .context = &walk};
	uint64_t start = clock_ns(CLOCK_MONOTONIC);
	int err;

	if (member->heap_unreadable || member->ended ||
	    trace_process_at(session->trace, member->index)->end != TRACE_RUNNING)
		return 0;
	session->reading = 1;
	err = census_take(&member->runtime, &opts);
	if (!err)
		member->baseline_due = 0;
	member->census_ns = clock_ns(CLOCK_MONOTONIC);
	member->census_cost_ns = member->census_ns - start;
	session->reading = 0;
	if (session_is_beyond(session, member->census_ns))
		session->limit_ns = member->census_ns;
	/* What census mode has seen so far rests on a heap that is none. */
	if (err == -ENOTSUP && !opts.baseline && member->mode == EVENT_MODE_CENSUS &&
	    !member->off) {
		member_mode_fall_back(session, member);
		return 0;
	}
	contradiction_tell(session, member);
	return err == -ESRCH ? 0 : err;
}

void member_reconcile(struct session *session, struct member *member, int baseline, int freeze)
{
	int err = member_census(session, member, baseline, freeze);

	if (err)
		log_info("PID %d: its heap could not be read: %s", member->pid, error_reason(err));
}

void session_census(struct session *session)
{
	for (size_t i = 0; i < session->count; i++)
		member_reconcile(session, session->members[i], 0, session->opts.freeze);
	session_rss_read(session, clock_ns(CLOCK_MONOTONIC));
	session_name(session);
}

static int census_is_due(const struct session *session, const struct member *member, uint64_t now)
{
	uint64_t pause = member->census_cost_ns * CENSUS_SHARE;

	if (pause < CENSUS_PAUSE_NS)
		pause = CENSUS_PAUSE_NS;
	return now - member->census_ns >= pause &&
	       !session_is_beyond(session, now + member->census_cost_ns);
}

void session_census_due(struct session *session, uint64_t now)
{
	uint64_t begin = now;

	for (size_t i = 0; i < session->count && now - begin < CENSUS_STRETCH_NS; i++) {
		struct member *member = session->members[session->census_turn++ % session->count];

		if (!census_is_due(session, member, now))
			continue;
		member_census(session, member, 0, 0);
		now = clock_ns(CLOCK_MONOTONIC);
	}
}
