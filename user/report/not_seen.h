/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the text report that says what the figures lack. */
#ifndef TRACER_REPORT_NOT_SEEN_H
#define TRACER_REPORT_NOT_SEEN_H

#include <stdio.h>

#include "snapshot/snapshot.h"

/* title: "Not seen", or which of several snapshots it is about. */
void not_seen_print(FILE *out, const struct snapshot *snapshot, const char *title, int color);
/* What figures without the rest of it would be wrong of: losses, what is older; and that `tracer report` tells the rest. */
void not_seen_brief_print(FILE *out, const struct snapshot *snapshot);

#endif
