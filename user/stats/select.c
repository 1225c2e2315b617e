/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "stats/carry.h"
#include "stats/filter.h"

/* All processes stay, those of which no trace passes too: what was not seen of them is of the whole. */
static int processes_take(struct builder *builder, const struct snapshot *snapshot)
{
	int err = 0;

	builder->snapshot->meta = snapshot->meta;
	for (size_t i = 0; !err && i < snapshot->process_count; i++) {
		struct snapshot_meta *meta;

		err = builder_process(builder, &meta);
		if (!err)
			*meta = snapshot->processes[i];
	}
	return err;
}

static int traces_take(struct carry *carry, struct filter_run *run, int merge)
{
	int err = 0;

	for (size_t i = 0; !err && i < carry->from->trace_count; i++) {
		struct snapshot_trace trace = carry->from->traces[i];
		int passes = filter_run_passes(run, &trace);

		if (passes <= 0) {
			err = passes;
			continue;
		}
		err = carry_traceback(carry, &trace);
		if (!err)
			err = merge ? builder_trace(carry->to, &trace) : builder_append(carry->to, &trace);
	}
	return err;
}

int snapshot_select(const struct snapshot *snapshot, const struct filters *filters, int merge,
		    struct snapshot **out)
{
	struct carry carry = {0};
	struct filter_run run = {0};
	struct builder builder;
	int err = builder_begin(&builder);

	if (err)
		return err;
	err = processes_take(&builder, snapshot);
	if (!err)
		err = carry_begin(&carry, snapshot, &builder);
	if (!err)
		err = filter_run_begin(&run, filters, snapshot);
	if (!err)
		err = traces_take(&carry, &run, merge);
	filter_run_end(&run);
	carry_end(&carry);
	if (err)
		builder_abort(&builder);
	else
		*out = builder_finish(&builder);
	return err;
}
