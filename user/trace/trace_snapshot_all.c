/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots of processes that run or have ended, and of all of them. */
#include <errno.h>
#include <string.h>

#include "snapshot/merge.h"
#include "trace/state.h"

int trace_snapshot(struct trace *trace, size_t index, int want_final, struct snapshot **out)
{
	if (!trace_process_at(trace, index))
		return -ENOENT;
	struct process_state *process = trace->processes[index];
	if (!process->final || (!want_final && !process->table_kept))
		return state_snapshot(trace, process, out);
	int err = snapshot_copy(process->final, out);
	if (err)
		return err;
	/*
	 * Losses and coverage are often reported only at the end of the session. Their current
	 * values describe the final state better than those from when it was taken.
	 */
	struct snapshot_meta now, *meta = &(*out)->meta;
	state_meta(trace, process, &now);
	memcpy(meta->loss, now.loss, sizeof(meta->loss));
	meta->records_malformed = now.records_malformed;
	meta->coverage_known = now.coverage_known;
	meta->coverage = now.coverage;
	meta->has_exited = now.has_exited;
	meta->wait_status = now.wait_status;
	return 0;
}

/* Malformed records without a process are counted once, in the merged snapshot. */
static int processes_merge(struct trace *trace, int want_final, struct merger *merger)
{
	int err = 0;

	for (size_t i = 0; !err && i < trace->process_count; i++) {
		struct snapshot *one;

		err = trace_snapshot(trace, i, want_final, &one);
		if (err == -ENOENT) {
			err = 0;
			continue;
		}
		if (err)
			break;
		one->meta.records_malformed -= trace->orphans;
		err = merger_add(merger, one, NULL);
		snapshot_free(one);
	}
	return err;
}

int trace_snapshot_all(struct trace *trace, int want_final, struct snapshot **out)
{
	struct account account = {.parent = &trace->account};
	struct merger merger;

	if (trace->process_count - trace->free_count <= 1) {
		size_t only = 0;

		while (only < trace->process_count && !trace->processes[only])
			only++;
		return trace_snapshot(trace, only, want_final, out);
	}
	int err = merger_begin_in(&merger, &account);
	if (err)
		return err;
	err = processes_merge(trace, want_final, &merger);
	if (err) {
		merger_abort(&merger);
		return err;
	}
	*out = merger_finish(&merger);
	(*out)->meta.records_malformed += trace->orphans;
	return 0;
}
