/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "snapshot/group/filter.h"
#include "snapshot/remap.h"

/* Keep processes without a matching trace: their loss counters still belong to the whole. */
static int processes_take(struct builder *builder, const struct snapshot *snapshot, int of_app)
{
	int err = 0;

	builder->snapshot->meta = snapshot->meta;
	builder->snapshot->meta.of_app |= of_app;
	for (size_t i = 0; !err && i < snapshot->process_count; i++) {
		struct snapshot_meta *meta;

		err = builder_process(builder, &meta);
		if (!err)
			*meta = snapshot->processes[i];
		if (!err)
			meta->of_app |= of_app;
	}
	return err;
}

/* which: index of the layer; -1: the first layer. */
static int layer_select(struct remap *remap, struct filter_run *run, int which, int merge)
{
	const struct snapshot *from = remap->from;
	const struct snapshot_trace *traces = which < 0 ? from->traces : from->layers[which].traces;
	size_t count = which < 0 ? from->trace_count : from->layers[which].trace_count;
	int err = 0;

	for (size_t i = 0; !err && i < count; i++) {
		struct snapshot_trace trace = traces[i];
		int passes = filter_run_passes(run, &trace);

		if (passes <= 0) {
			err = passes;
			continue;
		}
		err = remap_trace(remap, &trace);
		if (!err && which >= 0)
			err = builder_layer(remap->to, (uint32_t)which, &trace);
		else if (!err)
			err = merge ? builder_trace(remap->to, &trace)
				    : builder_append(remap->to, &trace);
	}
	return err;
}

int snapshot_select(const struct snapshot *snapshot, const struct snapshot *shown,
		    const struct filters *filters, const struct app *app, int merge,
		    struct snapshot **out)
{
	struct remap remap = {0};
	struct app_run app_run = {0};
	struct filter_run run = {0};
	struct builder builder;
	int err = builder_begin(&builder);

	if (err)
		return err;
	if (!shown)
		shown = snapshot;
	err = processes_take(&builder, snapshot, app && app->asked);
	if (!err)
		err = remap_begin(&remap, snapshot, &builder)
			      ?: app_run_begin(&app_run, app, shown);
	remap.app = &app_run;
	if (!err)
		err = filter_run_begin(&run, filters, shown);
	for (int which = -1; !err && which < SNAPSHOT_LAYERS; which++)
		err = layer_select(&remap, &run, which, merge);
	filter_run_end(&run);
	app_run_end(&app_run);
	remap_end(&remap);
	if (err)
		builder_abort(&builder);
	else
		*out = builder_finish(&builder);
	return err;
}
