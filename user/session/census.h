/* SPDX-License-Identifier: Apache-2.0 */
/* When the heaps and the RSS of members are read, and the limit of a session's duration. */
#ifndef TRACER_SESSION_CENSUS_H
#define TRACER_SESSION_CENSUS_H

#include <stdint.h>

struct session;
struct member;

/*
 * Walks the member's heap, if it runs and has one. 0; -ENOTSUP it cannot be read (a member in
 * census mode falls back to exact mode, and 0 is returned); -ENODATA it has none; -errno.
 */
int member_census(struct session *session, struct member *member, int baseline, int freeze);
/* The same; errors are logged. */
void member_reconcile(struct session *session, struct member *member, int baseline, int freeze);
/*
 * Walks the heaps that are due: each every half second, or less often if walks would take more than
 * 2 % of the time. Round-robin, for at most 20 ms a call.
 */
void session_census_due(struct session *session, uint64_t now);
/* The last walk of all heaps, as far as there is time. */
void session_census_last(struct session *session, int hurried);
/* Is this time after the limit of the session? */
int session_is_beyond(const struct session *session, uint64_t time_ns);
/* Feeds the RSS as of that time: of one member, of all, of those that are due. */
void member_rss_read(struct session *session, struct member *member, uint64_t time_ns);
void session_rss_read(struct session *session, uint64_t time_ns);
void session_rss_due(struct session *session, uint64_t now);

#endif
