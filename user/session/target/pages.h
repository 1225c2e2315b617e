/* SPDX-License-Identifier: Apache-2.0 */
/* Which pages of a target are resident, where its page faults are traced. */
#pragma once

struct session;
struct target;

/*
 * Walks its pagemap and feeds what is resident (EVENT_PAGES), after all faults so far. 0; -ESRCH it
 * has ended; -errno.
 */
int target_pages_walk(struct session *session, struct target *target);
