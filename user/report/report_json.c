/* SPDX-License-Identifier: Apache-2.0 */
/* One object on one line; keys are only ever added. Frames are most recent first, as in PEP 454. */
#include "report/report_histogram.h"
#include "report/report_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "report/caveats/inconsistencies.h"
#include "report/caveats/modes.h"
#include "report/caveats/windows.h"
#include "report/report_processes.h"
#include "runtime/cpython/version.h"
#include "snapshot/ages.h"
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

static void pages_write(FILE *out, const struct snapshot_meta *meta)
{
	if (meta->layer != EVENT_LAYER_PAGES)
		return;
	fields_write(out, meta, META_JSON_PAGES, "\"pages\": {");
	fputs("}, ", out);
}

/* Why blocks are charged to <unknown>. */
static void unknown_write(FILE *out, const struct snapshot_meta *meta)
{
	static const char *const names[SNAPSHOT_UNKNOWNS] = {
		[UNKNOWN_NO_FRAME] = "no_frame", [UNKNOWN_NO_STACK] = "no_stack",
		[UNKNOWN_NO_MEMORY] = "no_room", [UNKNOWN_NO_CODE] = "no_code",
		[UNKNOWN_NO_NAME] = "no_name",   [UNKNOWN_NO_FILE] = "no_file",
		[UNKNOWN_NO_FAULT] = "no_fault",
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
		json_quote(out, ends->files[i].path);
		fprintf(out, ": %" PRIu64, ends->files[i].stacks);
		separator = ", ";
	}
	fputs("}}, ", out);
}

/* of_several: one of several processes; the loss counters belong to the whole session. */
static void meta_write(FILE *out, const struct snapshot_meta *meta, int of_several)
{
	char version[VERSION_TEXT];

	inconsistencies_json(out, meta);
	json_member(out, "name", meta->name);
	fputs(", \"python\": ", out);
	if (meta->python_version)
		json_quote(out, version_text(version, meta->python_version));
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
	if (meta->ages)
		fprintf(out, "\"ages\": {\"rounding\": %.4f, \"error\": %.3f}, ", AGE_ROUNDING,
			(double)meta->ages_error_ns / 1e9);
	if (meta->of_ages)
		fputs("\"of_ages\": true, ", out);
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
	pages_write(out, meta);
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

static void frame_write(struct json *json, const struct snapshot *snapshot,
			const struct snapshot_frame *frame)
{
	const char *function = report_function(snapshot, frame);

	json_open(json, NULL, '{');
	json_text(json, "filename", strings_get(snapshot->strings, frame->filename));
	json_unsigned(json, "lineno", frame->line);
	if (function)
		json_text(json, "function", function);
	if (frame->inlined)
		json_bool(json, "inlined", 1);
	if (frame->native)
		json_text(json, "kind", "native");
	json_close(json, '}');
}

void report_frames_json(struct json *json, const char *key, const struct statistic *entry,
			enum group_by by)
{
	uint32_t nframe;
	const struct snapshot_frame *frames = statistic_frames(entry, by, &nframe);

	json_open(json, key, '[');
	for (uint32_t i = 0; i < nframe; i++)
		frame_write(json, entry->snapshot, &frames[i]);
	json_close(json, ']');
}

/*
 * "size" and "count", in a comparison also their differences, all from the same four figures; for
 * estimates also the errors.
 */
static void sums_write(struct json *json, const struct statistic *sums, int compared, int sampled)
{
	const struct statistic_error diff = report_error_diff(sums);

	json_unsigned(json, "size", sums->size);
	if (compared)
		json_signed(json, "size_diff", statistic_size_diff(sums));
	json_unsigned(json, "count", sums->count);
	if (compared)
		json_signed(json, "count_diff", statistic_count_diff(sums));
	if (sampled)
		json_numbers(json, {"size_error", sums->error.size},
			     {"count_error", sums->error.count});
	if (sampled && compared)
		json_numbers(json, {"size_diff_error", diff.size},
			     {"count_diff_error", diff.count});
}

static void extra_figure_write(struct json *json, const char *name, const char *figure,
			       uint64_t now, const uint64_t *old)
{
	char key[64];

	snprintf(key, sizeof(key), "%s_%s", name, figure);
	json_unsigned(json, key, now);
	snprintf(key, sizeof(key), "%s_%s_diff", name, figure);
	if (old)
		json_signed(json, key, report_diff(now, *old));
}

static void extra_one_write(struct json *json, const char *name, const struct statistic_sums *now,
			    const struct statistic_sums *old)
{
	extra_figure_write(json, name, "size", now->size, old ? &old->size : NULL);
	extra_figure_write(json, name, "count", now->count, old ? &old->count : NULL);
}

/* The members for what was allocated, where it is known. */
static void extra_write(struct json *json, const struct statistics *statistics,
			const struct statistic *sums, int compared)
{
	const struct statistic_extra *now = &sums->extra, *old = &sums->old_extra;

	if (statistics->allocated_known)
		extra_one_write(json, "allocated", &now->allocated,
				compared ? &old->allocated : NULL);
	if (statistics->temporary_known)
		extra_one_write(json, report_temporary_key(statistics), &now->temporary,
				compared ? &old->temporary : NULL);
}

/* In seconds. */
static void ages_write(struct json *json, const struct statistics *statistics,
		       const struct statistic *sums)
{
	if (!statistics->ages_known || !sums->ages.oldest_ns)
		return;
	json_fixed(json, "age_oldest", (double)sums->ages.oldest_ns / 1e9, 3);
	json_fixed(json, "age_median", (double)sums->ages.median_ns / 1e9, 3);
}

static void part_write(struct json *json, const char *key, const struct statistic_sums *part,
		       int sampled)
{
	const struct statistic sums = report_part(part);

	json_open(json, key, '{');
	sums_write(json, &sums, 0, sampled);
	json_close(json, '}');
}

/* The figures that count each traceback once; "size" and "count" are tracemalloc's. */
static void once_write(struct json *json, const struct statistic *entry, int compared, int sampled)
{
	const struct statistic once = report_once(entry);

	json_open(json, "once", '{');
	sums_write(json, &once, compared, sampled);
	json_close(json, '}');
}

/* holders: print the number of processes that hold it. */
static void entry_write(struct json *json, const struct report_opts *opts,
			const struct statistics *statistics, const struct statistic *entry,
			int holders)
{
	int sampled = statistics->sampled;

	json_open(json, NULL, '{');
	if (group_is_owner(opts->by))
		owner_json(json, entry->process, opts->by);
	else
		report_frames_json(json, "traceback", entry, opts->by);
	sums_write(json, entry, opts->old != NULL, sampled);
	extra_write(json, statistics, entry, opts->old != NULL);
	ages_write(json, statistics, entry);
	if (opts->cumulative)
		once_write(json, entry, opts->old != NULL, sampled);
	if (holders)
		json_unsigned(json, "processes", entry->processes);
	if (entry->rounded > 0)
		json_fixed(json, "rounded", entry->rounded, 0);
	if (report_is_of_app(opts))
		json_bool(json, "app", !entry->outside);
	if (opts->notes)
		opts->notes->entry(opts->notes->context, json, entry);
	json_close(json, '}');
}

static void cost_write(struct json *json, const struct snapshot_meta *meta)
{
	if (meta->cpu_ns)
		json_numbers(json, {"cpu_ns", meta->cpu_ns}, {"probes_ns", meta->probes_ns});
	if (meta->budget_permille)
		json_fixed(json, "probes_budget", meta->budget_permille / 1e3, 3);
	if (meta->emptied)
		json_unsigned(json, "emptied", meta->emptied);
}

/*
 * The share of the processes' resident memory that the report accounts for. Not printed for a part
 * of the snapshot.
 */
static void rss_write(struct json *json, const struct snapshot *snapshot,
		      const struct report_opts *opts)
{
	struct explained explained;

	if (report_is_whole(snapshot, opts) && explained_read(snapshot, &explained))
		json_numbers(json, {"rss", explained.rss_bytes}, {"explained", explained.bytes});
}

static void process_write(struct json *json, const struct process_sums *sums)
{
	const struct snapshot_meta *process = sums->process;
	const struct statistic figures = {
		.size = sums->size, .count = sums->count, .error = sums->error};
	char state[PROCESS_STATE_MAX];

	json_open(json, NULL, '{');
	owner_json(json, process, GROUP_PROCESS);
	json_numbers(json, {"ns_pid", process->ns_pid}, {"parent", process->parent});
	sums_write(json, &figures, 0, snapshot_is_estimated(process));
	if (process->parent)
		part_write(json, "inherited", &sums->inherited, snapshot_is_estimated(process));
	json_text(json, "state", process_state(state, process));
	if (process->has_exited) {
		json_unsigned(json, "wait_status", process->wait_status);
		json_bool(json, "oom_killed", process->oom_killed);
	} else {
		json_none(json, "wait_status");
		json_none(json, "oom_killed");
	}
	report_json_process_meta(process, json_value(json, NULL));
	json_close(json, '}');
}

/* All processes, the largest first; a program can drop what it does not need. */
static int processes_write(struct json *json, const struct snapshot *snapshot,
			   const struct report_opts *opts)
{
	struct process_sums *sums;
	int err = snapshot->process_count ? process_sums(snapshot, opts->filters, &sums) : 0;

	if (err || !snapshot->process_count)
		return err;
	json_open(json, "processes", '[');
	for (size_t i = 0; i < snapshot->process_count; i++)
		process_write(json, &sums[i]);
	json_close(json, ']');
	free(sums);
	return 0;
}

static void lost_write(struct json *json, const struct snapshot *snapshot)
{
	json_unsigned(json, "lost_events", snapshot_lost_events(snapshot));
	report_json_meta(snapshot, json_value(json, NULL));
}

static void total_write(struct json *json, const struct snapshot *snapshot,
			const struct statistics *statistics, const struct report_opts *opts)
{
	const struct statistic total = report_total(statistics);
	const struct statistic_sums *inherited = &statistics->parts[PART_INHERITED];

	json_open(json, "total", '{');
	sums_write(json, &total, opts->old != NULL, statistics->sampled);
	extra_write(json, statistics, &total, opts->old != NULL);
	ages_write(json, statistics, &total);
	if (inherited->count || snapshot_has_children(snapshot))
		part_write(json, "inherited", inherited, statistics->sampled);
	json_close(json, '}');
}

/* What was alive at the peak, of the whole snapshot. */
static void peak_write(struct json *json, const struct snapshot *snapshot)
{
	struct statistic_sums sums = {0};

	if (!snapshot_knows(snapshot, EXTRA_PEAK))
		return;
	struct snapshot peak = snapshot_at_peak(snapshot);
	for (size_t i = 0; i < peak.trace_count; i++) {
		sums.size += peak.traces[i].bytes * peak.traces[i].count;
		sums.count += peak.traces[i].count;
	}
	part_write(json, "peak", &sums, 0);
}

/*
 * The blocks without a frame of the application; "outside_cut": those of them whose traceback was
 * cut.
 */
static void app_write(struct json *json, const struct statistics *statistics,
		      const struct report_opts *opts)
{
	for (int old = 0; report_is_of_app(opts) && old < (opts->old ? 2 : 1); old++) {
		const struct statistic_sums *parts =
			old ? statistics->old_parts : statistics->parts;

		json_open(json, old ? "old_app" : "app", '{');
		part_write(json, "outside", &parts[PART_OUTSIDE], statistics->sampled);
		part_write(json, "outside_cut", &parts[PART_OUTSIDE_CUT], statistics->sampled);
		json_close(json, '}');
	}
}

static void entries_write(struct json *json, const struct snapshot *snapshot,
			  const struct statistics *statistics, const struct report_opts *opts)
{
	int holders = snapshot->process_count || group_is_owner(opts->by);

	json_open(json, "statistics", '[');
	for (size_t i = 0; i < report_shown(statistics, opts); i++)
		entry_write(json, opts, statistics, &statistics->entries[i], holders);
	json_close(json, ']');
}

/* A layer beside the first: a report within the report, because the totals must not be added up. */
static int layer_write(struct json *json, const struct snapshot *snapshot,
		       const struct report_opts *opts, uint32_t which)
{
	const char *key = which == SNAPSHOT_OLDER     ? "older"
			  : which == EVENT_LAYER_MMAP ? "mapped"
						      : event_layer_name(which);
	struct report_layer layer;
	struct statistics statistics;

	if (!report_layer(snapshot, opts, which, &layer)) {
		if (which == EVENT_LAYER_MMAP)
			json_none(json, "mapped");
		return 0;
	}
	int err = report_statistics(&layer.layer, &layer.opts, &statistics);
	if (err)
		return err;
	json_open(json, key, '{');
	total_write(json, snapshot, &statistics, &layer.opts);
	if (which == EVENT_LAYER_MMAP)
		json_unsigned(json, "dropped", snapshot->meta.regions_dropped);
	else if (which == SNAPSHOT_OLDER)
		windows_older_json(json->out, &snapshot->meta);
	else /* what the first layer has in "not_seen" and beside it */
		json_numbers(json, {"peak_size", layer.layer.meta.peak_bytes},
			     {"frees_unknown", layer.layer.meta.frees_unknown},
			     {"replaced", layer.layer.meta.replaced});
	app_write(json, &statistics, &layer.opts);
	entries_write(json, snapshot, &statistics, &layer.opts);
	json_close(json, '}');
	statistics_free(&statistics);
	return 0;
}

int report_json(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out)
{
	static const char *const names[] = {"filename", "lineno", "function", "traceback"};
	struct json json = {.out = out};
	struct statistics statistics;

	if (group_is_histogram(opts->by))
		return histogram_json(snapshot, opts, out);
	int err = report_statistics(snapshot, opts, &statistics);
	if (err)
		return err;
	json_open(&json, NULL, '{');
	json_unsigned(&json, "traceback_limit", snapshot->meta.traceback_limit);
	if (group_is_owner(opts->by)) {
		json_text(&json, "by", owner_word(opts->by));
	} else {
		json_text(&json, "group_by", names[opts->by]);
		json_bool(&json, "cumulative", opts->cumulative);
	}
	total_write(&json, snapshot, &statistics, opts);
	peak_write(&json, snapshot);
	if (statistics.allocated_known)
		json_unsigned(&json, "allocated_ns", snapshot->meta.allocated_ns);
	lost_write(&json, snapshot);
	if (opts->old) {
		json_open(&json, "old", '{');
		json_unsigned(&json, "traceback_limit", opts->old->meta.traceback_limit);
		lost_write(&json, opts->old);
		json_close(&json, '}');
	}
	app_write(&json, &statistics, opts);
	rss_write(&json, snapshot, opts);
	cost_write(&json, &snapshot->meta);
	if (opts->notes)
		opts->notes->head(opts->notes->context, &json);
	entries_write(&json, snapshot, &statistics, opts);
	statistics_free(&statistics);
	err = processes_write(&json, snapshot, opts);
	for (uint32_t layer = 0; layer <= SNAPSHOT_OLDER && !err; layer++)
		err = layer_write(&json, snapshot, opts, layer);
	json_end(&json);
	return err ?: report_end(out);
}
