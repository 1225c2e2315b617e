/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/group/thread_shares.h"

#include <errno.h>

#include "snapshot/estimate.h"
#include "util/error.h"

struct visitor {
	const struct snapshot *snapshot;
	struct filter_run *run;
	int (*visit)(void *context, const struct thread_share *share);
	void *context;
};

static int passes(const struct visitor *visitor, const struct snapshot_trace *trace)
{
	return visitor->run ? filter_run_passes(visitor->run, trace) : 1;
}

static int several_visit(const struct visitor *visitor)
{
	const struct snapshot *snapshot = visitor->snapshot;
	const struct snapshot_layer *layer =
		&snapshot->layers[SNAPSHOT_EXTRA(EXTRA_THREAD, snapshot->meta.layer)];
	int err = 0;

	for (size_t i = 0; err >= 0 && i < layer->trace_count; i++) {
		const struct snapshot_trace *trace = &layer->traces[i];
		const struct thread_share share = {.trace = trace,
						   .tid = trace->thread,
						   .name = "",
						   .task = trace->task,
						   .size = trace->bytes * trace->count,
						   .count = trace->count};

		err = passes(visitor, trace);
		if (err > 0)
			err = visitor->visit(visitor->context, &share);
	}
	return err < 0 ? err : 0;
}

/* The blocks of processes in which one thread has allocated all. */
static int sole_visit(const struct visitor *visitor)
{
	const struct snapshot *snapshot = visitor->snapshot;
	int err = 0;

	for (size_t i = 0; err >= 0 && i < snapshot->trace_count; i++) {
		const struct snapshot_trace *trace = &snapshot->traces[i];
		const struct snapshot_meta *process = snapshot_process(snapshot, trace->process);
		struct thread_share share = {
			.trace = trace,
			.tid = process->sole_thread[snapshot->meta.layer],
			.name = process->sole_thread_name[snapshot->meta.layer],
		};

		err = share.tid ? passes(visitor, trace) : 0;
		if (err <= 0)
			continue;
		err = estimate_trace_figures(estimate_chance_of(snapshot, trace), trace,
					     &share.size, &share.count)
			      ?: visitor->visit(visitor->context, &share);
	}
	return err < 0 ? err : 0;
}

int thread_shares_visit(const struct snapshot *snapshot, struct filter_run *run,
			int (*visit)(void *context, const struct thread_share *share),
			void *context)
{
	const struct visitor visitor = {snapshot, run, visit, context};

	if (!snapshot_knows(snapshot, EXTRA_THREAD))
		return error_set(-EINVAL, "the snapshot does not know threads: only exact and "
					  "census mode see them");
	return several_visit(&visitor) ?: sole_visit(&visitor);
}
