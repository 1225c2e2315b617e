/* SPDX-License-Identifier: Apache-2.0 */
#include "export/report_parts.h"

#include <errno.h>

int report_statistics(const struct snapshot *snapshot, const struct report_opts *opts, struct statistics *out)
{
	const struct statistics_opts how = {
		.by = opts->by, .cumulative = opts->cumulative, .filters = opts->filters};

	return opts->old ? statistics_compare(snapshot, opts->old, &how, out)
			 : statistics_compute(snapshot, &how, out);
}

int report_mapped(const struct snapshot *snapshot, const struct report_opts *opts, struct report_mapped *out)
{
	if (!snapshot->meta.mapped_known || (opts->old && !opts->old->meta.mapped_known))
		return 0;
	out->layer = snapshot_mapped(snapshot);
	out->opts = *opts;
	if (opts->old) {
		out->old = snapshot_mapped(opts->old);
		out->opts.old = &out->old;
	}
	return 1;
}

size_t report_shown(const struct statistics *statistics, const struct report_opts *opts)
{
	return opts->top && opts->top < statistics->count ? opts->top : statistics->count;
}

int report_end(FILE *out)
{
	return fflush(out) || ferror(out) ? -EIO : 0;
}
