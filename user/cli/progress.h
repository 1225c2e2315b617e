/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a trace has seen so far, for who sits before a terminal: a line that is written anew once a
 * second (base/status_line.h).
 */
#ifndef TRACER_CLI_PROGRESS_H
#define TRACER_CLI_PROGRESS_H

#include <stdint.h>

struct session;

/* Zero-initialise. */
struct progress {
	uint64_t begun_ns; /* when something came under trace; 0: nothing has */
	uint64_t shown_ns; /* when the line was written */
	uint64_t records;  /* by then */
};

/* Writes the line, if a second has passed. duration_ns: what -d says; 0: nothing. */
void progress_step(struct progress *progress, struct session *session, uint64_t duration_ns);

#endif
