/* SPDX-License-Identifier: Apache-2.0 */
/* When the heaps and the RSS of members are read. session.h has the limit of its duration. */
#ifndef TRACER_SESSION_CENSUS_H
#define TRACER_SESSION_CENSUS_H

#include <stdint.h>

struct session;

/*
 * Walks the heaps that are due: each every half second, or less often if walks would take more than
 * 2 % of the time. Round-robin, for at most 20 ms a call.
 */
void session_census_due(struct session *session, uint64_t now);
/* The last walk of all heaps, as far as there is time. */
void session_census_last(struct session *session, int hurried);
/* Feeds the RSS as of that time: of all members, of those that are due. */
void session_rss_read(struct session *session, uint64_t time_ns);
void session_rss_due(struct session *session, uint64_t now);

#endif
