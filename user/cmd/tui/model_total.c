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
		total.pythons += info->python_version != 0;
		if (info->flags & SUMS_WALKED && info->walk_ns > total.walk_ns)
			total.walk_ns = info->walk_ns;
	}
	return total;
}

static double from_zero(double sum)
{
	return sum > 0 ? sum : 0;
}

/* What has come since an earlier refresh, a second. */
static void rates_add(struct watch_collectors *out, const struct watch_collected *past,
		      const struct watch_collected *now)
{
	double seconds = (double)(now->time_ns - past->time_ns) / 1e9;

	out->done_s = from_zero(out->done_s) + (double)(now->done - past->done) / seconds;
	out->freed_s = from_zero(out->freed_s) + (double)(now->freed - past->freed) / seconds;
	out->share = from_zero(out->share) + (double)(now->took_ns - past->took_ns) / 1e9 / seconds;
}

/* Of a process at the earliest of the refreshes from since on at which it was known. */
static const struct watch_collected *past_of(const struct watch_model *model,
					     const struct watch_process *process, uint32_t since)
{
	while (!process->collected[since].time_ns && since != model->slot)
		since = (since + 1) % WATCH_HISTORY;
	return &process->collected[since];
}

struct watch_collectors watch_model_collectors(const struct watch_model *model)
{
	struct watch_collectors out = {.done_s = -1, .freed_s = -1, .share = -1};
	double seconds;
	uint32_t since = watch_model_since(model, &seconds);
	bool timed = true;

	for (size_t i = 0; i < model->process_count; i++) {
		const struct watch_process *process = &model->processes[i];
		const struct collections *collections = &process->info.collections;
		const struct watch_collected *now = &process->collected[model->slot];

		if (!collections->time_ns)
			continue;
		out.one = out.processes++ ? NULL : collections;
		out.off += collections->off != 0;
		out.running += !!(collections->flags & COLLECTIONS_RUNNING);
		out.more += !!(collections->flags & COLLECTIONS_MORE);
		timed = timed && collections->flags & COLLECTIONS_TIMED;
		out.done += now->done;
		out.freed += now->freed;
		const struct watch_collected *past =
			since == WATCH_NONE ? now : past_of(model, process, since);
		if (past->time_ns < now->time_ns)
			rates_add(&out, past, now);
	}
	if (!timed)
		out.share = -1;
	return out;
}
