/* SPDX-License-Identifier: Apache-2.0 */
#include "report/export/exporter.h"
#include "util/array.h"

#include <string.h>

static const struct exporter *const exporters[] = {
	&export_tracemalloc, &export_folded,     &export_pprof, &export_perf,
	&export_html,        &export_speedscope, &export_otlp};

const struct exporter *exporter_get(size_t index)
{
	return index < ARRAY_SIZE(exporters) ? exporters[index] : NULL;
}

/* The blocks that pass. *chosen is what to free: NULL when all of them pass unchanged. */
static int blocks_choose(const struct exporter *exporter, const struct snapshot **snapshot,
			 const struct snapshot *shown, const struct filters *filters,
			 const struct app *app, struct snapshot **chosen)
{
	/* Only files of tracemalloc list each block separately. */
	int apart = exporter->merged && !strcmp((*snapshot)->meta.mode, SNAPSHOT_TRACEMALLOC);
	int err = 0;

	*chosen = NULL;
	if (apart || filters_any(filters) || (app && app->asked)) {
		err = snapshot_select(*snapshot, shown, filters, app, exporter->merged, chosen);
		if (!err)
			*snapshot = *chosen;
	}
	return err;
}

int exporter_write(const struct exporter *exporter, const struct snapshot *snapshot,
		   const struct filters *filters, const struct export_opts *opts,
		   struct outfile *file)
{
	struct export_opts used = *opts;
	struct snapshot *chosen, *old = NULL;
	int err = blocks_choose(exporter, &snapshot, opts->shown, filters, opts->app, &chosen);

	if (!err && used.old)
		err = blocks_choose(exporter, &used.old, NULL, filters, opts->app, &old);
	used.is_part = filters_any(filters);
	err = err ?: exporter->write(snapshot, &used, file);
	snapshot_free(chosen);
	snapshot_free(old);
	return err;
}
