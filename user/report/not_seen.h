/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the text report that says what the figures lack. */
#ifndef TRACER_REPORT_NOT_SEEN_H
#define TRACER_REPORT_NOT_SEEN_H

#include <stdio.h>

#include "report/report.h"

/*
 * title: "Not seen", or which of several snapshots it is about. Where all is well, it is one line.
 */
void not_seen_print(FILE *out, const struct snapshot *snapshot, const char *title,
		    const struct report_opts *opts);
/*
 * What figures without the rest of it would be wrong of: losses, what is older; and that `tracer
 * report` tells the rest.
 */
void not_seen_brief_print(FILE *out, const struct snapshot *snapshot);

#endif
