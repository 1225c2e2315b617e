/* SPDX-License-Identifier: Apache-2.0 */
/* How good the figures of a report are, in one line (util/one_line.h); in full: not_seen.h. */
#pragma once

#include <stdio.h>

#include "snapshot/group/group.h"

/* statistics: those of the first layer, by lines; NULL: of its errors nothing is said. */
void quality_print(FILE *out, const struct snapshot *snapshot, const struct statistics *statistics,
		   const char *title, size_t width, int color);
