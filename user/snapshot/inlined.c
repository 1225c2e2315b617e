/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/inlined.h"

static void traceback_drop(struct snapshot_frame *frames, struct snapshot_traceback *traceback)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < traceback->nframe; i++)
		if (!frames[i].inlined || i + 1 == traceback->nframe)
			frames[kept++] = frames[i];
	frames[kept - 1].inlined = 0;
	if (traceback->total != SNAPSHOT_TOTAL_UNKNOWN)
		traceback->total -= traceback->nframe - kept;
	traceback->nframe = kept;
}

void snapshot_inlined_drop(struct snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot->traceback_count; i++)
		traceback_drop(&snapshot->frames[snapshot->tracebacks[i].first],
			       &snapshot->tracebacks[i]);
}
