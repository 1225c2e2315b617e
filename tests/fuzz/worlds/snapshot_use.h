/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of a user on a snapshot that was read successfully. */
#ifndef FUZZ_SNAPSHOT_USE_H
#define FUZZ_SNAPSHOT_USE_H

#include <stdlib.h>

#include "snapshot/group/group.h"
#include "snapshot/merge.h"

static inline void snapshot_use(const struct snapshot *snapshot)
{
	struct filters filters = {0};
	struct statistics statistics;
	struct snapshot *chosen;

	if (filters_add_file(&filters, 1, "*[!a-c]?:1") || filters_add_domain(&filters, 0, 1))
		abort();
	filters_all_frames(&filters);
	for (int by = GROUP_FILENAME; by <= GROUP_CONTAINER; by++) {
		const struct statistics_opts opts = {.by = by, .cumulative = by == GROUP_LINENO};

		if (!statistics_compare(snapshot, snapshot, &opts, &statistics)) {
			if (statistics.count &&
			    statistics.entries[0].size != statistics.entries[0].old_size)
				abort();
			statistics_free(&statistics);
		}
	}
	const uint32_t pid = snapshot_process(snapshot, snapshot_process_count(snapshot) - 1)->pid;
	if (!snapshot_pick(snapshot, &pid, 1, &chosen)) {
		if (chosen->trace_count > snapshot->trace_count)
			abort();
		snapshot_free(chosen);
	}
	for (int merge = 0; merge < 2; merge++) {
		if (snapshot_select(snapshot, NULL, merge ? &filters : NULL, NULL, merge, &chosen))
			abort();
		if (!merge && chosen->trace_count != snapshot->trace_count)
			abort();
		snapshot_free(chosen);
	}
	filters_free(&filters);
}

#endif
