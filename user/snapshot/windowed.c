/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/windowed.h"

int windowed_add(struct builder *builder, const struct snapshot_trace *rows,
		 const struct calibrate_result *result)
{
	double carried = 0;
	int err = 0;

	for (size_t i = 0; i < result->row_count && !err; i++) {
		struct snapshot_trace trace = rows[i];

		carried += result->rows[i].blocks;
		trace.count = carried >= 0.5 ? (uint64_t)(carried + 0.5) : 0;
		carried -= (double)trace.count;
		if (trace.count)
			err = builder_trace(builder, &trace);
	}
	return err;
}
