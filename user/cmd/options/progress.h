/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The speed of a trace, for a user at a terminal: one line that is rewritten every second
 * (util/status_line.h).
 */
#pragma once

#include <stdint.h>

struct session;

/* Zero-initialise. */
struct speed {
	uint64_t begun_ns; /* when the first process was attached to; 0: none yet */
	uint64_t shown_ns; /* when the line was last printed */
	uint64_t records;  /* number of records at shown_ns */
};

/* Prints the line if a second has passed. duration_ns: the value of -d; 0: none. */
void speed_step(struct speed *speed, struct session *session, uint64_t duration_ns);
