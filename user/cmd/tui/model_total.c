/* SPDX-License-Identifier: Apache-2.0 */
/* What a model adds up: over processes, and over the last refreshes. */
#include "cmd/tui/model.h"

uint32_t watch_model_since(const struct watch_model *model, double *seconds)
{
	uint32_t oldest = WATCH_NONE;

	for (uint32_t i = 1; i < WATCH_HISTORY; i++) {
		uint32_t slot = (model->slot + WATCH_HISTORY - i) % WATCH_HISTORY;

		if (!model->times_ns[slot])
			break;
		if (oldest != WATCH_NONE &&
		    model->now.time_ns - model->times_ns[slot] > WATCH_GROWTH_NS)
			break;
		oldest = slot;
	}
	if (oldest != WATCH_NONE)
		*seconds = (double)(model->now.time_ns - model->times_ns[oldest]) / 1e9;
	return oldest;
}

struct watch_total watch_model_total(const struct watch_model *model)
{
	struct watch_total total = {.size = model->all.size,
				    .count = model->all.count,
				    .mark_size = model->all.mark_size,
				    .allocated = model->all.allocated};

	for (size_t i = 0; i < model->process_count; i++) {
		const struct sums_process *info = &model->processes[i].info;

		total.rss_bytes += info->rss_bytes;
		total.peak_bytes += info->peak_bytes;
		total.new_blocks += info->new_blocks;
		total.seen_blocks += info->seen_blocks;
		total.flags |= info->flags;
		if (info->flags & SUMS_WALKED && info->walk_ns > total.walk_ns)
			total.walk_ns = info->walk_ns;
	}
	return total;
}
