/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the pools that hold blocks seen in windows. */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "heap/heap_kinds.h"
#include "member/member.h"
#include "member/state.h"
#include "member/windows.h"

#define LOOK_STRETCH_NS 10000000ull
#define LOOK_LAST_NS    20000000ull /* within a window, which is that much longer then */

int member_look_feed(void *context, const void *record, size_t size)
{
	const struct member_look *look = context;

	return look->member->ended ? -ESRCH : session_feed(look->session, record, size);
}

/* Reads pools until a time; returns how many of them. */
static size_t pools_read(struct session *session, const struct member *member,
			 const uint64_t *pools, size_t count, uint64_t until_ns)
{
	struct member_look look = {session, member};
	const struct heap_kinds_opts opts = {
		.until_ns = until_ns, .record = member_look_feed, .context = &look};
	size_t done = 0;
	int err;

	session_pull(session);
	if (!count || member->ended)
		return 0;
	err = heap_kinds_read(&member->runtime, pools, count, &opts, &done);
	if (err && err != -ESRCH)
		log_debug("PID %d: pools could not be read: %s", member->pid, error_reason(err));
	return done;
}

void member_look_fresh(struct session *session, const struct member *member)
{
	uint64_t *pools;
	size_t count;

	session_pull(session);
	if (trace_sighted_pools(session->trace, member->index, 1, &pools, &count))
		return;
	pools_read(session, member, pools, count, clock_ns(CLOCK_MONOTONIC) + LOOK_LAST_NS);
	free(pools);
	member_large_fresh(session, member);
}

void member_look_all(struct session *session, struct member *member)
{
	struct member_windows *windows = &member->windows;
	uint64_t began_ns = clock_ns(CLOCK_MONOTONIC), *pools;
	size_t count, first = 0, done;

	if (trace_sighted_pools(session->trace, member->index, 0, &pools, &count))
		return;
	while (first < count && pools[first] < windows->look_from)
		first++;
	if (first == count)
		first = 0;
	done = pools_read(session, member, pools + first, count - first,
			  began_ns + LOOK_STRETCH_NS);
	windows->look_from = first + done < count ? pools[first + done] : 0;
	free(pools);
	member_large_look(session, member);
	windows->look_ns = clock_ns(CLOCK_MONOTONIC);
	windows->look_took_ns = windows->look_ns - began_ns;
}
