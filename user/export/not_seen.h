/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the text report that says what the figures lack. */
#ifndef TRACER_EXPORT_NOT_SEEN_H
#define TRACER_EXPORT_NOT_SEEN_H

#include <stdio.h>

#include "stats/snapshot.h"

void not_seen_print(FILE *out, const struct snapshot *snapshot, int color);

#endif
