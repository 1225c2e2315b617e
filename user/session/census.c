/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the heaps and the RSS of members, within the limit of the session.
 *
 * The limit is the latest time of an event that is taken; later ones may be in the ring buffer, and
 * are dropped. The last walks of the heaps must fit in the limit, since a block that a walk finds
 * and whose event was dropped would count as unseen. So session_stop() is due before the limit, by
 * the time that the previous walks took. If there are many heaps, some are left as of their
 * previous walk. A walk that has begun moves the limit to its own end
 * (member/census.c).
 */
#include "session/census.h"

#include "base/clock.h"
#include "member/census.h"
#include "member/member.h"
#include "member/state.h"
#include "member/symbols.h"
#include "process/patience.h"
#include "session/session.h"

#define CENSUS_SHARE      50           /* periodic walks take at most 1/50 of the time */
#define CENSUS_PAUSE_NS   500000000ull /* at least, between two walks of a heap */
#define CENSUS_STRETCH_NS 20000000ull  /* of walks, until the ring buffer is drained */
#define LAST_SHARE        2            /* all last walks take at most 1/2 of the limited time */
#define LAST_TIMES        2            /* a walk may take twice as long as the previous one */
#define LAST_MARGIN_NS    10000000ull
#define HURRY_NS          1000000000ull /* for the last walks, if the user waits for the end */
#define RSS_PAUSE_NS      500000000ull  /* between two reads of a process's RSS, */
#define RSS_PAUSE_OF      100u          /* and once more for every 100 processes */

void session_limit(struct session *session, uint64_t duration_ns)
{
	session->limit_ns = clock_ns(CLOCK_MONOTONIC) + duration_ns;
	session->limit_duration_ns = duration_ns;
	patience_end_at(session->limit_ns);
}

static uint64_t last_walks_ns(const struct session *session)
{
	uint64_t sum = LAST_MARGIN_NS, most = session->limit_duration_ns / LAST_SHARE;

	for (size_t i = 0; i < session->count; i++)
		if (!session->members[i]->ended)
			sum += LAST_TIMES * session->members[i]->census_cost_ns;
	return sum < most ? sum : most;
}

uint64_t session_left_ns(const struct session *session)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC), needed = last_walks_ns(session);

	if (!session->limit_ns)
		return UINT64_MAX;
	return now + needed < session->limit_ns ? session->limit_ns - needed - now : 0;
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
	/* malloc's heap is read between windows (member_look_all()). */
	return now - member->census_ns >= pause && !member_window_busy(member) &&
	       !member->heap_unreadable &&
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

void session_census_last(struct session *session, int hurried)
{
	uint64_t until_ns = hurried ? clock_ns(CLOCK_MONOTONIC) + HURRY_NS : UINT64_MAX;

	if (session->limit_ns && session->limit_ns < until_ns)
		until_ns = session->limit_ns;
	for (size_t i = 0; i < session->count && clock_ns(CLOCK_MONOTONIC) < until_ns; i++)
		member_reconcile(session, session->members[i], 0, session->opts.freeze);
}

void session_rss_read(struct session *session, uint64_t time_ns)
{
	for (size_t i = 0; i < session->count; i++)
		member_rss_read(session, session->members[i], time_ns);
}

void session_rss_due(struct session *session, uint64_t now)
{
	uint64_t pause = RSS_PAUSE_NS * (1 + session->count / RSS_PAUSE_OF);

	for (size_t i = 0; i < session->count; i++)
		if (now - session->members[i]->rss_ns >= pause)
			member_rss_read(session, session->members[i], now);
}
