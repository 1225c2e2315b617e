/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the heap and the RSS of a target, within the limit of the session's duration. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct session;
struct target;

/*
 * Walks the target's heap, if it runs and has one. 0; -ENOTSUP it cannot be read (a target in
 * census mode falls back to exact mode, and 0 is returned); -ENODATA it has none; -errno.
 */
int target_census(struct session *session, struct target *target, int baseline, int freeze);
/* The same; errors are logged. */
void target_reconcile(struct session *session, struct target *target, int baseline, int freeze);
/* Is this time after the limit of the session? */
bool session_is_beyond(const struct session *session, uint64_t time_ns);
/* Feeds the RSS as of that time. */
void target_rss_read(struct session *session, struct target *target, uint64_t time_ns);
