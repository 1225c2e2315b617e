/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRACER_CLI_PERFMAP_STATUS_H
#define TRACER_CLI_PERFMAP_STATUS_H

#include "perfmap_session/perfmap_session.h"

/*
 * Prints on stdout the state of a process's map, as far as it is known, and the calls that were
 * seen.
 */
void perfmap_status_print(const struct perfmap_member *member);
/* Prints on stderr what the maps of the processes lack, if anything. */
void perfmap_not_seen_print(const struct perfmap_session *session);
/*
 * 0; -ENODATA: entries were written but none was seen, so that the map looks like that of a program
 * that writes none; -errno.
 */
int perfmap_blind_check(const struct perfmap_session *session);

#endif
