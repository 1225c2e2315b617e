/* SPDX-License-Identifier: Apache-2.0 */
/* Puts estimates from windows (calibrate.h) into the snapshot of a process. */
#pragma once

#include "snapshot/builder.h"
#include "snapshot/estimate/calibrate.h"

/*
 * Adds a trace with an estimated count for each row that has one, what is older than the trace by
 * donor, and the figures of the windows (meta.windows). rows: by row of the result, all of a
 * trace but its count. Counts are integers; the rounding error of one row is carried to the next,
 * so that sums are right. ages: rows have them. Traces whose count is exact (large blocks whose
 * frees were seen) are added by builder_trace() as ever. 0; errors of builder_trace().
 */
int windowed_add(struct builder *builder, const struct snapshot_trace *rows,
		 const struct calibrate_result *result, int ages);
/*
 * Adds to a layer, of EXTRA_THREAD, a trace for each row that has blocks of the trace's own time,
 * in the same way. 0; errors of builder_layer().
 */
int windowed_owners_add(struct builder *builder, const struct snapshot_trace *rows,
			const struct calibrate_result *result, uint32_t layer);
