/* SPDX-License-Identifier: Apache-2.0 */
#include "export/exporter.h"

#include <string.h>

static const struct exporter *const exporters[] = {&export_tracemalloc, &export_folded,
						   &export_pprof, &export_perf};

const struct exporter *exporter_get(size_t index)
{
	return index < sizeof(exporters) / sizeof(exporters[0]) ? exporters[index] : NULL;
}

const struct exporter *exporter_find(const char *name)
{
	const struct exporter *exporter;

	for (size_t i = 0; (exporter = exporter_get(i)); i++)
		if (!strcmp(exporter->name, name))
			return exporter;
	return NULL;
}

int exporter_write(const struct exporter *exporter, const struct snapshot *snapshot,
		   const struct filters *filters, const struct export_opts *opts,
		   struct outfile *file)
{
	/* Only files of tracemalloc list each block separately. */
	int apart = exporter->merged && !strcmp(snapshot->meta.mode, SNAPSHOT_TRACEMALLOC);
	struct snapshot *chosen;

	if (!apart && !filters_any(filters) && !(opts->app && opts->app->asked))
		return exporter->write(snapshot, opts, file);
	int err = snapshot_select(snapshot, filters, opts->app, exporter->merged, &chosen);
	if (err)
		return err;
	err = exporter->write(chosen, opts, file);
	snapshot_free(chosen);
	return err;
}
