/* SPDX-License-Identifier: Apache-2.0 */
/* One object on one line; keys are only ever added. Frames are most recent first, as in PEP 454. */
#include "report/report_histogram.h"
#include "report/report_parts.h"

#include <inttypes.h>
#include <stdlib.h>

#include "remarks/windows.h"
#include "report/report_processes.h"
#include "stats/explained.h"
#include "text/json.h"

static void frame_write(FILE *out, const struct snapshot *snapshot,
			const struct snapshot_frame *frame)
{
	const char *function = report_function(snapshot, frame);

	fputs("{\"filename\": ", out);
	json_string(out, strings_get(snapshot->strings, frame->filename));
	fprintf(out, ", \"lineno\": %u", frame->line);
	if (function) {
		fputs(", \"function\": ", out);
		json_string(out, function);
	}
	if (frame->inlined)
		fputs(", \"inlined\": true", out);
	fputs(frame->native ? ", \"kind\": \"native\"}" : "}", out);
}

void report_frames_json(FILE *out, const struct statistic *entry, enum group_by by)
{
	uint32_t nframe;
	const struct snapshot_frame *frames = statistic_frames(entry, by, &nframe);

	for (uint32_t i = 0; i < nframe; i++) {
		fputs(i ? ", " : "[", out);
		frame_write(out, entry->snapshot, &frames[i]);
	}
	putc(']', out);
}

/*
 * "size" and "count", in a comparison also their differences, all from the same four figures; for
 * estimates also the errors.
 */
static void sums_write(FILE *out, const struct statistic *sums, int compared, int sampled)
{
	const struct statistic_error diff = report_error_diff(sums);

	fprintf(out, "\"size\": %" PRIu64, sums->size);
	if (compared)
		fprintf(out, ", \"size_diff\": %" PRId64, statistic_size_diff(sums));
	fprintf(out, ", \"count\": %" PRIu64, sums->count);
	if (compared)
		fprintf(out, ", \"count_diff\": %" PRId64, statistic_count_diff(sums));
	if (sampled)
		fprintf(out, ", \"size_error\": %" PRIu64 ", \"count_error\": %" PRIu64,
			sums->error.size, sums->error.count);
	if (sampled && compared)
		fprintf(out, ", \"size_diff_error\": %" PRIu64 ", \"count_diff_error\": %" PRIu64,
			diff.size, diff.count);
}

static void beside_one_write(FILE *out, const char *name, const struct statistic_sums *now,
			     const struct statistic_sums *old)
{
	fprintf(out, ", \"%s_size\": %" PRIu64, name, now->size);
	if (old)
		fprintf(out, ", \"%s_size_diff\": %" PRId64, name,
			report_diff(now->size, old->size));
	fprintf(out, ", \"%s_count\": %" PRIu64, name, now->count);
	if (old)
		fprintf(out, ", \"%s_count_diff\": %" PRId64, name,
			report_diff(now->count, old->count));
}

/* The members for what was allocated, where it is known. */
static void beside_write(FILE *out, const struct statistics *statistics,
			 const struct statistic *sums, int compared)
{
	const struct statistic_beside *now = &sums->beside, *old = &sums->old_beside;

	if (statistics->allocated_known)
		beside_one_write(out, "allocated", &now->allocated,
				 compared ? &old->allocated : NULL);
	if (statistics->temporary_known)
		beside_one_write(out, report_temporary_key(statistics), &now->temporary,
				 compared ? &old->temporary : NULL);
}

static void part_write(FILE *out, const char *key, const struct statistic_sums *part, int sampled)
{
	const struct statistic sums = report_part(part);

	fprintf(out, "\"%s\": {", key);
	sums_write(out, &sums, 0, sampled);
	putc('}', out);
}

/* The figures that count each traceback once; "size" and "count" are tracemalloc's. */
static void once_write(FILE *out, const struct statistic *entry, int compared, int sampled)
{
	const struct statistic once = report_once(entry);

	fputs(", \"once\": {", out);
	sums_write(out, &once, compared, sampled);
	putc('}', out);
}

/* holders: print the number of processes that hold it. */
static void entry_write(FILE *out, const struct report_opts *opts,
			const struct statistics *statistics, const struct statistic *entry,
			int holders)
{
	int sampled = statistics->sampled;

	putc('{', out);
	if (group_is_owner(opts->by)) {
		owner_json(out, entry->process, opts->by);
	} else {
		fputs("\"traceback\": ", out);
		report_frames_json(out, entry, opts->by);
		fputs(", ", out);
	}
	sums_write(out, entry, opts->old != NULL, sampled);
	beside_write(out, statistics, entry, opts->old != NULL);
	if (opts->cumulative)
		once_write(out, entry, opts->old != NULL, sampled);
	if (holders)
		fprintf(out, ", \"processes\": %u", entry->processes);
	if (entry->rounded > 0)
		fprintf(out, ", \"rounded\": %.0f", entry->rounded);
	if (report_is_of_app(opts))
		fprintf(out, ", \"app\": %s", entry->outside ? "false" : "true");
	if (opts->notes)
		opts->notes->entry(opts->notes->context, out, entry);
	putc('}', out);
}

/*
 * The share of the processes' resident memory that the report accounts for. Not printed for a part
 * of the snapshot.
 */
static void cost_write(FILE *out, const struct snapshot_meta *meta)
{
	if (meta->cpu_ns)
		fprintf(out, "\"cpu_ns\": %" PRIu64 ", \"probes_ns\": %" PRIu64 ", ", meta->cpu_ns,
			meta->probes_ns);
	if (meta->budget_permille)
		fprintf(out, "\"probes_budget\": %.3f, ", meta->budget_permille / 1e3);
	if (meta->emptied)
		fprintf(out, "\"emptied\": %" PRIu32 ", ", meta->emptied);
}

static void rss_write(FILE *out, const struct snapshot *snapshot, const struct report_opts *opts)
{
	struct explained explained;

	if (report_is_whole(opts) && explained_read(snapshot, &explained))
		fprintf(out, "\"rss\": %" PRIu64 ", \"explained\": %" PRIu64 ", ",
			explained.rss_bytes, explained.bytes);
}

static void process_write(FILE *out, const struct process_sums *sums)
{
	const struct snapshot_meta *process = sums->process;
	const struct statistic figures = {
		.size = sums->size, .count = sums->count, .error = sums->error};
	char state[PROCESS_STATE_MAX];

	putc('{', out);
	owner_json(out, process, GROUP_PROCESS);
	fprintf(out, "\"ns_pid\": %u, \"parent\": %u, ", process->ns_pid, process->parent);
	sums_write(out, &figures, 0, snapshot_is_estimated(process));
	fputs(", ", out);
	if (process->parent) {
		part_write(out, "inherited", &sums->inherited, snapshot_is_estimated(process));
		fputs(", ", out);
	}
	json_member(out, "state", process_state(state, process));
	fputs(", \"wait_status\": ", out);
	if (process->has_exited)
		fprintf(out, "%u, ", process->wait_status);
	else
		fputs("null, ", out);
	report_json_process_meta(process, out);
	putc('}', out);
}

/* All processes, the largest first; a program can drop what it does not need. */
static int processes_write(FILE *out, const struct snapshot *snapshot,
			   const struct report_opts *opts)
{
	struct process_sums *sums;
	int err = snapshot->process_count ? process_sums(snapshot, opts->filters, &sums) : 0;

	if (err || !snapshot->process_count)
		return err;
	fputs(", \"processes\": [", out);
	for (size_t i = 0; i < snapshot->process_count; i++) {
		fputs(i ? ", " : "", out);
		process_write(out, &sums[i]);
	}
	putc(']', out);
	free(sums);
	return 0;
}

static void limit_write(FILE *out, const struct snapshot *snapshot)
{
	fprintf(out, "\"traceback_limit\": %u", snapshot->meta.traceback_limit);
}

static void lost_write(FILE *out, const struct snapshot *snapshot)
{
	fprintf(out, "\"lost_events\": %" PRIu64 ", ", snapshot_lost_events(snapshot));
	report_json_meta(snapshot, out);
}

/* The figures that the first layer has in "not_seen" and beside it. */
static void table_write(FILE *out, const struct snapshot_meta *meta)
{
	fprintf(out,
		", \"peak_size\": %" PRIu64 ", \"frees_unknown\": %" PRIu64
		", \"replaced\": %" PRIu64,
		meta->peak_bytes, meta->frees_unknown, meta->replaced);
}

static void total_write(FILE *out, const struct snapshot *snapshot,
			const struct statistics *statistics, const struct report_opts *opts)
{
	const struct statistic total = report_total(statistics);
	const struct statistic_sums *inherited = &statistics->parts[PART_INHERITED];

	fputs("\"total\": {", out);
	sums_write(out, &total, opts->old != NULL, statistics->sampled);
	beside_write(out, statistics, &total, opts->old != NULL);
	if (inherited->count || snapshot_has_children(snapshot)) {
		fputs(", ", out);
		part_write(out, "inherited", inherited, statistics->sampled);
	}
	putc('}', out);
}

/* What was alive at the peak, of the whole snapshot. */
static void peak_write(FILE *out, const struct snapshot *snapshot)
{
	struct statistic_sums sums = {0};
	struct snapshot peak;

	if (!snapshot_knows(snapshot, BESIDE_PEAK))
		return;
	peak = snapshot_at_peak(snapshot);
	for (size_t i = 0; i < peak.trace_count; i++) {
		sums.size += peak.traces[i].bytes * peak.traces[i].count;
		sums.count += peak.traces[i].count;
	}
	fputs(", ", out);
	part_write(out, "peak", &sums, 0);
}

/*
 * The blocks without a frame of the application; "outside_cut": those of them whose traceback was
 * cut.
 */
static void app_write(FILE *out, const struct statistics *statistics,
		      const struct report_opts *opts)
{
	static const char *const keys[] = {"\"app\"", "\"old_app\""};

	for (int old = 0; report_is_of_app(opts) && old < (opts->old ? 2 : 1); old++) {
		const struct statistic_sums *parts =
			old ? statistics->old_parts : statistics->parts;

		fprintf(out, "%s: {", keys[old]);
		part_write(out, "outside", &parts[PART_OUTSIDE], statistics->sampled);
		fputs(", ", out);
		part_write(out, "outside_cut", &parts[PART_OUTSIDE_CUT], statistics->sampled);
		fputs("}, ", out);
	}
}

static void entries_write(FILE *out, const struct snapshot *snapshot,
			  const struct statistics *statistics, const struct report_opts *opts)
{
	int holders = snapshot->process_count || group_is_owner(opts->by);

	fputs("\"statistics\": [", out);
	for (size_t i = 0; i < report_shown(statistics, opts); i++) {
		fputs(i ? ", " : "", out);
		entry_write(out, opts, statistics, &statistics->entries[i], holders);
	}
	putc(']', out);
}

/* A layer beside the first: a report within the report, because the totals must not be added up. */
static int layer_write(FILE *out, const struct snapshot *snapshot, const struct report_opts *opts,
		       uint32_t which)
{
	const char *key = which == SNAPSHOT_OLDER     ? "older"
			  : which == EVENT_LAYER_MMAP ? "mapped"
						      : event_layer_name(which);
	struct report_layer layer;
	struct statistics statistics;
	int err;

	if (!report_layer(snapshot, opts, which, &layer)) {
		if (which == EVENT_LAYER_MMAP)
			fputs(", \"mapped\": null", out);
		return 0;
	}
	err = report_statistics(&layer.layer, &layer.opts, &statistics);
	if (err)
		return err;
	fprintf(out, ", \"%s\": {", key);
	total_write(out, snapshot, &statistics, &layer.opts);
	if (which == EVENT_LAYER_MMAP)
		fprintf(out, ", \"dropped\": %" PRIu64, snapshot->meta.regions_dropped);
	else if (which == SNAPSHOT_OLDER)
		windows_older_json(out, &snapshot->meta);
	else
		table_write(out, &layer.layer.meta);
	fputs(", ", out);
	app_write(out, &statistics, &layer.opts);
	entries_write(out, snapshot, &statistics, &layer.opts);
	putc('}', out);
	statistics_free(&statistics);
	return 0;
}

int report_json(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out)
{
	static const char *const names[] = {"filename", "lineno", "function", "traceback"};
	struct statistics statistics;
	int err;

	if (group_is_histogram(opts->by))
		return histogram_json(snapshot, opts, out);
	err = report_statistics(snapshot, opts, &statistics);
	if (err)
		return err;
	putc('{', out);
	limit_write(out, snapshot);
	if (group_is_owner(opts->by))
		fprintf(out, ", \"by\": \"%s\", ", owner_word(opts->by));
	else
		fprintf(out, ", \"group_by\": \"%s\", \"cumulative\": %s, ", names[opts->by],
			opts->cumulative ? "true" : "false");
	total_write(out, snapshot, &statistics, opts);
	peak_write(out, snapshot);
	if (statistics.allocated_known)
		fprintf(out, ", \"allocated_ns\": %" PRIu64, snapshot->meta.allocated_ns);
	fputs(", ", out);
	lost_write(out, snapshot);
	if (opts->old) {
		fputs(", \"old\": {", out);
		limit_write(out, opts->old);
		fputs(", ", out);
		lost_write(out, opts->old);
		putc('}', out);
	}
	fputs(", ", out);
	app_write(out, &statistics, opts);
	rss_write(out, snapshot, opts);
	cost_write(out, &snapshot->meta);
	if (opts->notes)
		opts->notes->head(opts->notes->context, out);
	entries_write(out, snapshot, &statistics, opts);
	statistics_free(&statistics);
	err = processes_write(out, snapshot, opts);
	for (uint32_t layer = 0; layer <= SNAPSHOT_OLDER && !err; layer++)
		err = layer_write(out, snapshot, opts, layer);
	fputs("}\n", out);
	return err ? err : report_end(out);
}
