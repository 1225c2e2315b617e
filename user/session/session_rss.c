/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What processes have in memory: read now and then, since one that has ended has nothing, and at
 * the end.
 */
#include "base/clock.h"
#include "process/process.h"
#include "session/session_state.h"

#define PAUSE_NS 500000000ull /* between two looks at a process, */
#define PAUSE_OF 100u         /* of so many; of more each is looked at less often */

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
	if (member->ended || process_rss_read(member->pid, &bytes, NULL) || !bytes)
		return;
	record.bytes = bytes;
	session_feed(session, &record, sizeof(record));
}

void session_rss_read(struct session *session, uint64_t time_ns)
{
	for (size_t i = 0; i < session->count; i++)
		member_rss_read(session, session->members[i], time_ns);
}

void session_rss_due(struct session *session, uint64_t now)
{
	uint64_t pause = PAUSE_NS * (1 + session->count / PAUSE_OF);

	for (size_t i = 0; i < session->count; i++)
		if (now - session->members[i]->rss_ns >= pause)
			member_rss_read(session, session->members[i], now);
}
