/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the heap and the RSS of a member, within the limit of the session's duration. */
#ifndef TRACER_MEMBER_CENSUS_H
#define TRACER_MEMBER_CENSUS_H

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
/* Is this time after the limit of the session? */
int session_is_beyond(const struct session *session, uint64_t time_ns);
/* Feeds the RSS as of that time. */
void member_rss_read(struct session *session, struct member *member, uint64_t time_ns);

#endif
