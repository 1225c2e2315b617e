/* SPDX-License-Identifier: Apache-2.0 */
/* One object on one line; keys are only ever added. Frames are most recent first, as in PEP 454. */
#include "report/report_histogram.h"
#include "report/report_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "report/caveats/contradictions.h"
#include "report/caveats/modes.h"
#include "report/caveats/windows.h"
#include "report/report_processes.h"
#include "runtime/cpython/version.h"
#include "snapshot/group/explained.h"
#include "snapshot/meta.h"
#include "util/json.h"

/* --- report json meta ------------------------------------------------------------------------- */

/* The part of the JSON that describes a snapshot or a process, and what it lacks. */

/* The next row of an object, in the order of the struct's members; NULL: there is none. */
static const struct meta_field *field_next(enum meta_json object, const struct meta_field *last)
{
	const struct meta_field *next = NULL;

	for (size_t i = 0; i < meta_field_count; i++) {
		const struct meta_field *field = &meta_fields[i];

		if (field->json == object && (!last || field->offset > last->offset) &&
		    (!next || field->offset < next->offset))
			next = field;
	}
	return next;
}

/* before: what comes before the first one. */
static void fields_write(FILE *out, const struct snapshot_meta *meta, enum meta_json object,
			 const char *before)
{
	for (const struct meta_field *field = field_next(object, NULL); field;
	     field = field_next(object, field), before = ", ")
		if (object != META_JSON_DROPPED || meta_is_known(meta, field))
			fprintf(out, "%s\"%s\": %" PRIu64, before, field->json_key ?: field->key,
				meta_number(meta, field));
}

static void coverage_write(FILE *out, const struct snapshot_meta *meta)
{
	if (!meta->coverage_known) {
		fputs("\"coverage\": null", out);
		return;
	}
	fields_write(out, meta, META_JSON_COVERAGE, "\"coverage\": {");
	fprintf(out, ", \"unread_ns\": %" PRIu64 "}", meta->unread_ns);
}

/* How the kernel walked the heap at the end. */
static void ending_write(FILE *out, const struct snapshot_meta *meta)
{
	uint64_t failed = meta->ending.failed;
	int cut = failed == EVENT_CENSUS_CUT || failed == EVENT_CENSUS_GIVEN_UP;

	if (!meta->ending.pieces)
		return;
	fields_write(out, meta, META_JSON_ENDING, "\"ending\": {");
	fprintf(out, ", \"whole\": %s}, ", cut ? "false" : "true");
}

/* Why blocks are charged to <unknown>. */
static void unknown_write(FILE *out, const struct snapshot_meta *meta)
{
	static const char *const names[SNAPSHOT_UNKNOWNS] = {
		[UNKNOWN_NO_FRAME] = "no_frame", [UNKNOWN_NO_STACK] = "no_stack",
		[UNKNOWN_NO_MEMORY] = "no_room", [UNKNOWN_NO_CODE] = "no_code",
		[UNKNOWN_NO_NAME] = "no_name",   [UNKNOWN_NO_FILE] = "no_file",
	};
	int items = 0;

	for (size_t i = 0; i < SNAPSHOT_UNKNOWNS; i++)
		if (meta->unknown[i].blocks)
			fprintf(out, "%s\"%s\": {\"size\": %" PRIu64 ", \"count\": %" PRIu64 "}",
				items++ ? ", " : ", \"unknown\": {", names[i],
				meta->unknown[i].bytes, meta->unknown[i].blocks);
	if (items)
		putc('}', out);
}

/* lost: also the counters of the whole session. */
static void not_seen_write(FILE *out, const struct snapshot_meta *meta, int lost)
{
	fields_write(out, meta, META_JSON_NOT_SEEN, "\"not_seen\": {");
	for (unsigned int i = 0; lost && i < LOSS_COUNT; i++) {
		if (meta_losses[i].json_key)
			fprintf(out, ", \"%s\": %" PRIu64, meta_losses[i].json_key, meta->loss[i]);
		else if (meta->loss[i])
			fprintf(out, ", \"lost_%u\": %" PRIu64, i, meta->loss[i]);
	}
	if (meta->blocks_dropped)
		fprintf(out, ", \"blocks_dropped\": %" PRIu64 ", \"bytes_dropped\": %" PRIu64,
			meta->blocks_dropped, meta->bytes_dropped);
	if (meta->ending.failed == EVENT_CENSUS_CUT)
		fprintf(out, ", \"arenas_unread\": %" PRIu64, meta->ending.arenas_unread);
	fields_write(out, meta, META_JSON_DROPPED, ", ");
	unknown_write(out, meta);
	/* Without native frames the keys stay as they were before the native layer. */
	if (meta->layer != EVENT_LAYER_PYTHON || meta->layers & 1u << EVENT_LAYER_NATIVE)
		fprintf(out, ", \"frames_unnamed\": %" PRIu64 ", \"stacks_cut\": %" PRIu64,
			meta->frames_unnamed, stack_ends_cut_count(&meta->stack_ends));
	if (meta->reuse_unseen)
		fputs(", \"reuse\": true", out);
	if (meta->frames_slow)
		fprintf(out, ", \"frames_slow\": %" PRIu64, meta->frames_slow);
	putc('}', out);
}

/* How many native stacks are whole, and why the others are not. */
static void stack_ends_write(FILE *out, const struct stack_ends *ends)
{
	const char *separator = "";

	fprintf(out,
		"\"stacks\": {\"whole\": %" PRIu64 ", \"cut\": %" PRIu64
		", \"whole_bytes\": %" PRIu64 ", \"cut_bytes\": %" PRIu64 ", \"reasons\": {",
		ends->whole, stack_ends_cut_count(ends), ends->whole_bytes, ends->cut_bytes);
	for (uint32_t i = 0; i < STACK_ENDS_REASONS; i++) {
		if (!ends->reasons[i])
			continue;
		fprintf(out, "%s\"%s\": %" PRIu64, separator, stack_ends_reason(i) ?: "other",
			ends->reasons[i]);
		separator = ", ";
	}
	fputs("}, \"files\": {", out);
	separator = "";
	for (size_t i = 0; i < STACK_ENDS_FILES; i++) {
		if (!ends->files[i].path[0])
			continue;
		fputs(separator, out);
		json_string(out, ends->files[i].path);
		fprintf(out, ": %" PRIu64, ends->files[i].stacks);
		separator = ", ";
	}
	fputs("}}, ", out);
}

/* of_several: one of several processes; the loss counters belong to the whole session. */
static void meta_write(FILE *out, const struct snapshot_meta *meta, int of_several)
{
	char version[VERSION_TEXT];

	contradictions_json(out, meta);
	json_member(out, "name", meta->name);
	fputs(", \"python\": ", out);
	if (meta->python_version)
		json_string(out, version_text(version, meta->python_version));
	else
		fputs("null", out);
	fputs(", ", out);
	json_member(out, "mode", meta->mode);
	fputs(", ", out);
	if (meta->layer != EVENT_LAYER_PYTHON) {
		json_member(out, "layer", event_layer_name(meta->layer));
		fputs(", ", out);
	}
	json_member(out, "moment", meta->moment);
	fprintf(out, ", \"from_start\": %s, \"duration_ns\": %" PRIu64 ", \"peak_size\": ",
		meta->from_start ? "true" : "false", meta->duration_ns);
	if (meta->peak_bytes)
		fprintf(out, "%" PRIu64 ", ", meta->peak_bytes);
	else
		fputs("null, ", out);
	if (meta->at_peak)
		fprintf(out, "\"at_peak\": true, \"peak_after_ns\": %" PRIu64 ", ",
			meta->layer < EVENT_LAYER_TABLES ? meta->peak_after_ns[meta->layer] : 0);
	if (!strcmp(meta->mode, "growth"))
		fprintf(out, "\"pool_size\": %u, \"large_blocks_traced\": %s, ", meta->pool_bytes,
			meta->large_skipped ? "false" : "true");
	if (meta->of_app)
		fputs("\"of_app\": true, ", out);
	if (meta->self_sampled)
		fprintf(out, "\"self_sampled\": true, \"self_sampled_ns\": %" PRIu64 ", ",
			meta->self_sampled_ns);
	if (meta->sample_bytes)
		fprintf(out, "\"sample_bytes\": %" PRIu64 ", ", meta->sample_bytes);
	windows_json(out, meta);
	modes_json(out, meta);
	coverage_write(out, meta);
	fputs(", ", out);
	ending_write(out, meta);
	if (meta->layer != EVENT_LAYER_PYTHON || meta->layers & 1u << EVENT_LAYER_NATIVE)
		stack_ends_write(out, &meta->stack_ends);
	not_seen_write(out, meta, !of_several);
}

void report_json_meta(const struct snapshot *snapshot, FILE *out)
{
	if (snapshot->process_count)
		fputs("\"pid\": null, ", out);
	else
		fprintf(out, "\"pid\": %u, ", snapshot->meta.pid);
	meta_write(out, &snapshot->meta, 0);
}

/*
 * report_json_meta() for one of several processes, without its PID, and without the loss counters,
 * which belong to the whole session.
 */
static void report_json_process_meta(const struct snapshot_meta *process, FILE *out)
{
	meta_write(out, process, 1);
}

/* --- report json ------------------------------------------------------------------------------ */

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
