/* SPDX-License-Identifier: Apache-2.0 */
#include "report/report_parts.h"
#include "util/stream.h"

#include <math.h>

int report_statistics(const struct snapshot *snapshot, const struct report_opts *opts,
		      struct statistics *out)
{
	const struct statistics_opts how = {
		.by = opts->by,
		.cumulative = opts->cumulative,
		.once = opts->once,
		.filters = opts->filters,
		.app = opts->app,
		.sort = opts->sort,
		.temporary_others = opts->temporary_others,
	};

	return opts->old ? statistics_compare(snapshot, opts->old, &how, out)
			 : statistics_compute(snapshot, &how, out);
}

static struct snapshot layer_of(const struct snapshot *snapshot, uint32_t layer)
{
	return layer == SNAPSHOT_OLDER ? snapshot_of_older(snapshot)
				       : snapshot_of_layer(snapshot, layer);
}

int report_layer(const struct snapshot *snapshot, const struct report_opts *opts, uint32_t layer,
		 struct report_layer *out)
{
	if (!snapshot_has_extra(&snapshot->meta, layer) ||
	    (opts->old && !snapshot_has_extra(&opts->old->meta, layer)))
		return 0;
	out->layer = layer_of(snapshot, layer);
	out->opts = *opts;
	out->opts.notes = NULL;
	if (opts->old) {
		out->old = layer_of(opts->old, layer);
		out->opts.old = &out->old;
	}
	if (!snapshot_knows(&out->layer,
			    opts->sort == SORT_TEMPORARY ? EXTRA_FREED : EXTRA_ALLOCATED))
		out->opts.sort = SORT_SIZE;
	if (!snapshot_knows(&out->layer, EXTRA_FREED))
		out->opts.temporary_others = 0;
	return 1;
}

const char *report_function(const struct snapshot *snapshot, const struct snapshot_frame *frame)
{
	/* Both are "<unknown>" if nothing is known about the frame. */
	if (frame->line || frame->function == STATISTIC_NO_FUNCTION ||
	    frame->function == frame->filename)
		return NULL;
	const char *name = strings_get(snapshot->strings, frame->function);
	return name[0] ? name : NULL;
}

bool report_is_of_app(const struct report_opts *opts)
{
	return opts->app && opts->app->asked && !group_is_owner(opts->by);
}

bool report_is_whole(const struct snapshot *snapshot, const struct report_opts *opts)
{
	return !opts->old && !filters_any(opts->filters) && !snapshot->meta.of_ages;
}

size_t report_shown(const struct statistics *statistics, const struct report_opts *opts)
{
	return report_rows(opts, statistics->count);
}

struct statistic report_total(const struct statistics *statistics)
{
	return (struct statistic){.size = statistics->total_size,
				  .count = statistics->total_count,
				  .old_size = statistics->old_total_size,
				  .old_count = statistics->old_total_count,
				  .error = statistics->total_error,
				  .old_error = statistics->old_total_error,
				  .extra = statistics->extra,
				  .ages = statistics->ages,
				  .old_extra = statistics->old_extra};
}

struct statistic report_part(const struct statistic_sums *part)
{
	return (struct statistic){.size = part->size, .count = part->count, .error = part->error};
}

struct statistic report_once(const struct statistic *entry)
{
	return (struct statistic){.size = entry->once.size,
				  .count = entry->once.count,
				  .old_size = entry->old_once.size,
				  .old_count = entry->old_once.count,
				  .error = entry->once.error,
				  .old_error = entry->old_once.error};
}

static uint64_t errors_join(uint64_t a, uint64_t b)
{
	double both = ceil(hypot((double)a, (double)b));

	return both < 0x1p63 ? (uint64_t)both : INT64_MAX;
}

struct statistic_error report_error_diff(const struct statistic *entry)
{
	return (struct statistic_error){
		.size = errors_join(entry->error.size, entry->old_error.size),
		.count = errors_join(entry->error.count, entry->old_error.count)};
}

const char *report_temporary_key(const struct statistics *statistics)
{
	return statistics->temporary_by_walk ? "short_lived" : "temporary";
}

int report_end(FILE *out)
{
	return stream_flush(out);
}
