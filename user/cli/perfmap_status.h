/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRACER_CLI_PERFMAP_STATUS_H
#define TRACER_CLI_PERFMAP_STATUS_H

#include "session/perfmap_session.h"

/* On stdout: the state of a process's map, as far as it is known, and the calls that were seen. */
void perfmap_status_print(const struct perfmap_member *member);
/* On stderr, if there is anything: what the map of a process does not hold. */
void perfmap_not_seen_print(const struct perfmap_session *session);
/*
 * 0; -ENODATA: entries were written and not one was seen, so that the map reads like one of a
 * program that writes none; -errno.
 */
int perfmap_blind_check(const struct perfmap_session *session);

#endif
