/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a process was traced when, where that has changed (struct snapshot_change). Nothing is
 * written where it has not.
 */
#ifndef TRACER_REPORT_REPORT_MODES_H
#define TRACER_REPORT_REPORT_MODES_H

#include <stdio.h>

#include "snapshot/snapshot.h"

/* A line, "Modes: exact for 12.3 s, then census (…)", and one that says what the figures are of. */
void report_modes_print(FILE *out, const struct snapshot_meta *meta);
/*
 * '"modes": [{"mode": …, "since_ns": …, "sample_bytes": …, "cost": …, "budget": …}, …],
 * "modes_dropped": …, '
 */
void report_modes_json(FILE *out, const struct snapshot_meta *meta);

#endif
