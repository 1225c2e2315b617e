/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Feeds the records of a capture (without its header) into a trace; then takes snapshots and writes
 * reports of the result.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/report.h"
#include "snapshot/snapshot.h"
#include "trace/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void records_feed(struct trace *trace, const uint8_t *data, size_t size)
{
	struct event_header header;

	while (size >= sizeof(header)) {
		memcpy(&header, data, sizeof(header));
		size_t bytes =
			header.size < sizeof(header) || header.size > size ? size : header.size;
		/* An aligned copy, allocated separately so that an overread is detected. */
		void *record = malloc(bytes);

		memcpy(record, data, bytes);
		trace_feed(trace, record, bytes);
		free(record);
		data += bytes;
		size -= bytes;
	}
}

static void process_show(struct trace *trace, size_t process, FILE *out)
{
	struct report_opts opts = {.by = GROUP_TRACEBACK};
	struct snapshot *snapshot;

	for (int final = 0; final < 2; final++) {
		if (trace_snapshot(trace, process, final, &snapshot))
			continue;
		report_text(snapshot, &opts, out);
		report_json(snapshot, &opts, out);
		snapshot_free(snapshot);
	}
}

/* The counters of a table must match its contents. Returns its number of large blocks. */
static uint64_t table_check(const struct trace *trace, size_t process, enum event_layer layer)
{
	const struct trace_table *table = &trace_process_at(trace, process)->tables[layer];
	const struct blocks *blocks = trace_blocks(trace, process, layer);
	const struct block *block;
	uint64_t bytes = 0, large = 0;
	size_t cursor = 0;

	while ((block = blocks_next(blocks, &cursor))) {
		bytes += block->bytes;
		large += block->large;
	}
	/* In a sample the bytes are those that it represents. */
	if ((!trace_process_at(trace, process)->sample_bytes && bytes != table->live_bytes) ||
	    blocks_count(blocks) != table->live_blocks)
		abort();
	return large;
}

static void process_check(const struct trace *trace, size_t process)
{
	const struct trace_process *info = trace_process_at(trace, process);
	const struct snapshot_coverage *counts = &info->coverage;
	uint64_t large = 0;

	for (size_t layer = 0; layer < EVENT_LAYER_TABLES; layer++)
		large += table_check(trace, process, layer);
	if (large != info->large_blocks)
		abort();
	/* Every block of the heap is traced, old or unseen. */
	if (counts->live_blocks != counts->old_blocks + counts->new_blocks ||
	    counts->live_bytes != counts->old_bytes + counts->new_bytes ||
	    counts->seen_blocks > counts->new_blocks || counts->seen_bytes > counts->new_bytes)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct trace *trace;
	FILE *out = fopen("/dev/null", "w");

	if (!out || trace_new(&trace, NULL))
		abort();
	records_feed(trace, data, size);
	for (size_t i = 0; i < trace_process_count(trace) && i < 8; i++) {
		const struct trace_process *process = trace_process_at(trace, i);

		/* For an ended process only a snapshot is kept. */
		if (process && process->end < TRACE_EXITED)
			process_check(trace, i);
		if (process)
			process_show(trace, i, out);
	}
	trace_free(trace);
	fclose(out);
	return 0;
}
