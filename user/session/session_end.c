/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a session ends in time. A limit says when the last event may be. What comes later is in the
 * ring buffer, too, since the tracer may be at work with something else when the time is over, and
 * is not taken.
 *
 * The last readings of the heaps lie within the limit: a block that a reading shows, and of which
 * no event was taken, would count as unseen. So session_stop() is due before the limit, by what
 * they took the last time, and of many heaps some are left as they were read last. A reading that
 * has begun moves the limit to its end.
 */
#include "base/clock.h"
#include "session/session_state.h"

/* All last readings together take this share of the limited time at most. */
#define LAST_SHARE 2
/* A reading may take longer than the one before. */
#define LAST_TIMES     2
#define LAST_MARGIN_NS 10000000ull
/* So long the last readings go on if somebody waits for the end. */
#define HURRY_NS 1000000000ull

void session_limit(struct session *session, uint64_t duration_ns)
{
	session->limit_ns = clock_ns(CLOCK_MONOTONIC) + duration_ns;
	session->limit_duration_ns = duration_ns;
}

int session_is_beyond(const struct session *session, uint64_t time_ns)
{
	return session->limit_ns && !session->reading && time_ns > session->limit_ns;
}

static uint64_t last_readings_ns(const struct session *session)
{
	uint64_t sum = LAST_MARGIN_NS, most = session->limit_duration_ns / LAST_SHARE;

	for (size_t i = 0; i < session->count; i++)
		if (!session->members[i]->ended)
			sum += LAST_TIMES * session->members[i]->census_cost_ns;
	return sum < most ? sum : most;
}

uint64_t session_left_ns(const struct session *session)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC), needed = last_readings_ns(session);

	if (!session->limit_ns)
		return UINT64_MAX;
	return now + needed < session->limit_ns ? session->limit_ns - needed - now : 0;
}

void session_census_last(struct session *session, int hurried)
{
	uint64_t until_ns = hurried ? clock_ns(CLOCK_MONOTONIC) + HURRY_NS : UINT64_MAX;

	if (session->limit_ns && session->limit_ns < until_ns)
		until_ns = session->limit_ns;
	for (size_t i = 0; i < session->count && clock_ns(CLOCK_MONOTONIC) < until_ns; i++)
		member_reconcile(session, session->members[i], 0, session->opts.freeze);
}

void session_end_read(const struct session *session, struct session_end *out)
{
	*out = session->end;
}
