/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes are grouped by powers of two from 16 bytes on; lifetimes as the tables count them (enum
 * snapshot_lifetime), followed by the blocks that are still alive.
 */
#include "report/report_histogram.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/caveats/inconsistencies.h"
#include "report/caveats/not_seen.h"
#include "report/caveats/quality.h"
#include "report/report.h"
#include "report/report_parts.h"
#include "snapshot/estimate.h"
#include "snapshot/group/thread_shares.h"
#include "util/array.h"
#include "util/error.h"
#include "util/id_map.h"
#include "util/json.h"
#include "util/size.h"
#include "util/sorted.h"
#include "util/text.h"

static void figures_print(FILE *out, const struct statistic_sums *sums, int sampled)
{
	const char *about = sampled ? "~" : "";

	fprintf(out, "size=%s%s", about, SIZE_TEXT(sums->size));
	if (sums->error.size)
		fprintf(out, " ± %s", SIZE_TEXT(sums->error.size));
	fprintf(out, ", count=%s%" PRIu64, about, sums->count);
	if (sums->error.count)
		fprintf(out, " ± %" PRIu64, sums->error.count);
}

/* The last lines: the sums of all rows, and how good the figures are. */
static void total_print(FILE *out, const struct snapshot *snapshot, const struct report_opts *opts,
			const struct statistic_sums *total)
{
	struct not_seen_opts caveats = {.title = "Not seen",
					.color = opts->color,
					.whole = report_is_whole(snapshot, opts)};

	fputs("Total: ", out);
	figures_print(out, total, snapshot_is_estimated(&snapshot->meta));
	putc('\n', out);
	if (opts->brief)
		quality_print(out, snapshot, NULL, "Figures", opts->brief, opts->color);
	else
		not_seen_print(out, snapshot, &caveats);
}

/* --- report threads --------------------------------------------------------------------------- */

/*
 * Reports by the thread that has allocated what is alive, by its asyncio task, or by the value of a
 * variable that it had then: GROUP_THREAD, GROUP_TASK, GROUP_LABEL.
 */

/* 0; -EINVAL: a comparison, or a snapshot that does not tell what is asked for (error_set). */
static int rows_make(const struct snapshot *snapshot, const struct report_opts *opts,
		     struct thread_rows *out)
{
	const struct thread_question question = {
		.by = opts->by, .label = opts->label, .filters = opts->filters};

	if (opts->old)
		return error_set(-EINVAL, "threads and tasks of two snapshots cannot be compared");
	return thread_shares_rows(snapshot, &question, out);
}

static const char *noun_of(enum group_by by)
{
	return by == GROUP_TASK ? "task" : by == GROUP_LABEL ? "value" : "thread";
}

/* "name (TID 7): ", or by task "name: " */
static void row_name_print(FILE *out, const struct thread_rows *rows, const struct thread_row *row)
{
	char more[64] = "";

	if (rows->snapshot->process_count)
		snprintf(more, sizeof(more), "PID %u", row->pid);
	fputs("  ", out);
	if (row->name[0])
		text_print(out, row->name);
	else
		fputs(!rows->by_task                  ? "(name not known)"
		      : rows->snapshot->meta.label[0] ? "(none)"
						      : "(no task)",
		      out);
	if (!rows->by_task)
		fprintf(out, " (TID %u%s%s)", row->tid, more[0] ? ", " : "", more);
	else if (more[0])
		fprintf(out, " (%s)", more);
	fputs(": ", out);
}

/*
 * Of the first layer's blocks that pass the filters, the one that holds most first. Errors as
 * report_text(); -EINVAL: a comparison, or a snapshot without threads or tasks (error_set).
 */
static int threads_text(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out)
{
	int sampled = snapshot_is_estimated(&snapshot->meta);
	struct thread_rows rows;
	int err = rows_make(snapshot, opts, &rows);
	const char *what = noun_of(opts->by);

	if (err)
		return err;
	size_t shown = report_rows(opts, rows.count);
	inconsistencies_print(out, snapshot, opts->brief != 0);
	report_titles_print(out, snapshot, opts);
	if (shown < rows.count)
		fprintf(out, "Top %zu %ss of %zu by size\n", shown, what, rows.count);
	else if (rows.count == 1)
		fprintf(out, "The only %s\n", what);
	else
		fprintf(out, "All %zu %ss by size\n", rows.count, what);
	for (size_t i = 0; i < shown; i++) {
		row_name_print(out, &rows, &rows.items[i]);
		figures_print(out, &rows.items[i].sums, sampled);
		putc('\n', out);
	}
	total_print(out, snapshot, opts, &rows.total);
	thread_rows_free(&rows);
	return report_end(out);
}

static void sums_json(struct json *json, const struct statistic_sums *sums, int estimated)
{
	json_numbers(json, {"size", sums->size}, {"count", sums->count});
	if (estimated)
		json_numbers(json, {"size_error", sums->error.size},
			     {"count_error", sums->error.count});
}

static int threads_json(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out)
{
	struct json json = {.out = out};
	struct thread_rows rows;
	int err = rows_make(snapshot, opts, &rows);

	if (err)
		return err;
	json_open(&json, NULL, '{');
	json_text(&json, "by", noun_of(opts->by));
	if (opts->by == GROUP_LABEL)
		json_text(&json, "label", snapshot->meta.label);
	if (rows.by_task && snapshot->meta.labels_hashed)
		json_bool(&json, "hashed", true);
	json_open(&json, "total", '{');
	sums_json(&json, &rows.total, rows.are_estimates);
	json_close(&json, '}');
	json_unsigned(&json, "lost_events", snapshot_lost_events(snapshot));
	report_json_meta(snapshot, json_value(&json, NULL));
	json_open(&json, "statistics", '[');
	for (size_t i = 0; i < report_rows(opts, rows.count); i++) {
		const struct thread_row *row = &rows.items[i];

		json_open(&json, NULL, '{');
		if (!rows.by_task)
			json_unsigned(&json, "tid", row->tid);
		json_unsigned(&json, "pid", row->pid);
		json_text(&json, noun_of(opts->by), row->name);
		sums_json(&json, &row->sums, rows.are_estimates);
		json_close(&json, '}');
	}
	json_close(&json, ']');
	json_end(&json);
	thread_rows_free(&rows);
	return report_end(out);
}

static int threads_csv(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out)
{
	struct thread_rows rows;
	int err = rows_make(snapshot, opts, &rows);

	if (err)
		return err;
	fprintf(out, "%spid,%s,size,count%s\r\n", rows.by_task ? "" : "tid,", noun_of(opts->by),
		rows.are_estimates ? ",size_error,count_error" : "");
	for (size_t i = 0; i < report_rows(opts, rows.count); i++) {
		const struct thread_row *row = &rows.items[i];

		if (!rows.by_task)
			fprintf(out, "%u,", row->tid);
		fprintf(out, "%u,", row->pid);
		report_csv_field(out, row->name);
		fprintf(out, ",%" PRIu64 ",%" PRIu64, row->sums.size, row->sums.count);
		if (rows.are_estimates)
			fprintf(out, ",%" PRIu64 ",%" PRIu64, row->sums.error.size,
				row->sums.error.count);
		fputs("\r\n", out);
	}
	thread_rows_free(&rows);
	return report_end(out);
}

/* --- report histogram ------------------------------------------------------------------------- */

#define SIZE_FIRST_BITS 4u /* the smallest row but that of empty blocks: up to 16 bytes */
#define SIZE_ROWS       (64u - SIZE_FIRST_BITS + 2)
#define ROWS_MAX        SIZE_ROWS
#define BAR             30.0

_Static_assert(LIFETIMES + 1 <= ROWS_MAX, "rows");

struct histogram {
	struct estimate rows[ROWS_MAX];
	struct statistic_sums sums[ROWS_MAX], total;
	uint32_t count;
	enum group_by by;
	int sampled;
};

static uint32_t size_row(uint64_t bytes)
{
	uint32_t bits = bytes > 1 ? 64u - (uint32_t)__builtin_clzll(bytes - 1) : 0;

	return !bytes ? 0 : bits <= SIZE_FIRST_BITS ? 1 : bits - SIZE_FIRST_BITS + 1;
}

/* The largest size of a row. */
static uint64_t size_of_row(uint32_t row)
{
	return !row                          ? 0
	       : row + SIZE_FIRST_BITS > 64u ? UINT64_MAX
					     : 1ull << (row + SIZE_FIRST_BITS - 1);
}

static int live_sum(struct histogram *histogram, const struct snapshot *snapshot,
		    struct filter_run *run)
{
	for (size_t i = 0; i < snapshot->trace_count; i++) {
		const struct snapshot_trace *trace = &snapshot->traces[i];
		int passes = filter_run_passes(run, trace);
		uint32_t row = histogram->by == GROUP_SIZE ? size_row(trace->bytes) : LIFETIMES;

		if (passes < 0)
			return passes;
		/* Lifetimes are those of blocks that the process has allocated itself. */
		if (passes && (histogram->by == GROUP_SIZE || !(trace->flags & SNAPSHOT_INHERITED)))
			estimate_add_trace(&histogram->rows[row], snapshot, trace);
	}
	return 0;
}

static int freed_sum(struct histogram *histogram, const struct snapshot *snapshot,
		     struct filter_run *run)
{
	const struct snapshot_layer *layer =
		&snapshot->layers[SNAPSHOT_EXTRA(EXTRA_FREED, snapshot->meta.layer)];

	for (size_t i = 0; i < layer->trace_count; i++) {
		const struct snapshot_trace *trace = &layer->traces[i];
		int passes = filter_run_passes(run, trace);
		uint32_t row = trace->flags >> SNAPSHOT_LIFETIME_SHIFT;

		if (passes < 0)
			return passes;
		if (passes && row < LIFETIMES)
			estimate_add_sampled(&histogram->rows[row], 1, trace->bytes, trace->count);
	}
	return 0;
}

static int sums_set(struct histogram *histogram)
{
	struct estimate total = {0};
	int err = 0;

	for (uint32_t i = 0; i < histogram->count; i++)
		estimate_join(&total, &histogram->rows[i]);
	for (uint32_t i = 0; !err && i <= histogram->count; i++) {
		struct statistic_sums *sums =
			i < histogram->count ? &histogram->sums[i] : &histogram->total;
		const struct estimate *row = i < histogram->count ? &histogram->rows[i] : &total;

		err = estimate_round(row->size, &sums->size)
			      ?: estimate_round(row->count, &sums->count);
		sums->error.size = estimate_size_error(row);
		sums->error.count = estimate_count_error(row);
	}
	return err;
}

static int histogram_make(const struct snapshot *snapshot, const struct report_opts *opts,
			  struct histogram *out)
{
	struct filter_run run;

	if (opts->old || opts->cumulative)
		return error_set(-EINVAL, "sizes and lifetimes are of blocks, not of lines: they "
					  "cannot be compared or cumulated");
	if (opts->by == GROUP_LIFETIME &&
	    (!snapshot_knows(snapshot, EXTRA_FREED) || snapshot_frees_by_walk(snapshot)))
		return error_set(-EINVAL, "only exact mode sees how long blocks live (-m exact)");
	*out = (struct histogram){.by = opts->by,
				  .count = opts->by == GROUP_SIZE ? SIZE_ROWS : LIFETIMES + 1,
				  .sampled = snapshot_is_estimated(&snapshot->meta)};
	int err = filter_run_begin(&run, opts->filters, snapshot) ?: live_sum(out, snapshot, &run);
	if (!err && opts->by == GROUP_LIFETIME)
		err = freed_sum(out, snapshot, &run);
	filter_run_end(&run);
	return err ?: sums_set(out);
}

/* "129 to 256 B", "8192 B to 16.0 KiB", "temporary". */
static const char *row_name(const struct histogram *histogram, uint32_t row, char name[64])
{
	uint64_t high = size_of_row(row), low = row > 1 ? high / 2 : 0;

	if (histogram->by == GROUP_LIFETIME)
		snprintf(name, 64, "%s",
			 row < LIFETIMES ? snapshot_lifetime_name(row) : "still alive");
	else if (!high)
		snprintf(name, 64, "0 B");
	else if (high <= 8192)
		snprintf(name, 64, "%" PRIu64 " to %" PRIu64 " B", low + 1, high);
	else
		snprintf(name, 64, "%s to %s", SIZE_TEXT(low), SIZE_TEXT(high));
	return name;
}

int histogram_text(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out)
{
	struct histogram histogram;
	char name[64];

	if (opts->by >= GROUP_THREAD)
		return threads_text(snapshot, opts, out);
	int err = histogram_make(snapshot, opts, &histogram);
	if (err)
		return err;
	inconsistencies_print(out, snapshot, opts->brief != 0);
	report_titles_print(out, snapshot, opts);
	fputs(opts->by == GROUP_SIZE ? "Blocks by size"
				     : "Blocks allocated since the trace began, by lifetime",
	      out);
	fputs(filters_any(opts->filters) ? ", of those that pass the filters\n" : "\n", out);
	for (uint32_t i = 0; i < histogram.count; i++) {
		const struct statistic_sums *sums = &histogram.sums[i];
		double share = (double)sums->count / (double)histogram.total.count;

		if (!sums->count)
			continue;
		fprintf(out, "  %s: ", row_name(&histogram, i, name));
		figures_print(out,
			      &(struct statistic_sums){.size = sums->size, .count = sums->count},
			      histogram.sampled);
		fprintf(out, " (%.1f %% of the blocks) ", 100 * share);
		for (int bar = 0; bar < (int)(BAR * share + 0.5); bar++)
			putc('#', out);
		putc('\n', out);
	}
	total_print(out, snapshot, opts,
		    &(struct statistic_sums){.size = histogram.total.size,
					     .count = histogram.total.count});
	return report_end(out);
}

int histogram_json(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out)
{
	struct json json = {.out = out};
	struct histogram histogram;
	char name[64];

	if (opts->by >= GROUP_THREAD)
		return threads_json(snapshot, opts, out);
	int err = histogram_make(snapshot, opts, &histogram);
	if (err)
		return err;
	json_open(&json, NULL, '{');
	json_text(&json, "group_by", opts->by == GROUP_SIZE ? "size" : "lifetime");
	json_open(&json, "total", '{');
	sums_json(&json, &histogram.total, histogram.sampled);
	json_close(&json, '}');
	json_unsigned(&json, "lost_events", snapshot_lost_events(snapshot));
	report_json_meta(snapshot, json_value(&json, NULL));
	json_open(&json, "statistics", '[');
	for (uint32_t i = 0; i < histogram.count; i++) {
		if (!histogram.sums[i].count)
			continue;
		json_open(&json, NULL, '{');
		if (opts->by == GROUP_SIZE)
			json_unsigned(&json, "up_to", size_of_row(i));
		else
			json_text(&json, "lifetime", row_name(&histogram, i, name));
		sums_json(&json, &histogram.sums[i], histogram.sampled);
		json_close(&json, '}');
	}
	json_close(&json, ']');
	json_end(&json);
	return report_end(out);
}

int histogram_csv(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out)
{
	struct histogram histogram;
	char name[64];

	if (opts->by >= GROUP_THREAD)
		return threads_csv(snapshot, opts, out);
	int err = histogram_make(snapshot, opts, &histogram);
	if (err)
		return err;
	fprintf(out, "%s,size,count%s\r\n", opts->by == GROUP_SIZE ? "up_to" : "lifetime",
		histogram.sampled ? ",size_error,count_error" : "");
	for (uint32_t i = 0; i < histogram.count; i++) {
		const struct statistic_sums *sums = &histogram.sums[i];

		if (!sums->count)
			continue;
		if (opts->by == GROUP_SIZE)
			fprintf(out, "%" PRIu64, size_of_row(i));
		else
			fprintf(out, "\"%s\"", row_name(&histogram, i, name));
		fprintf(out, ",%" PRIu64 ",%" PRIu64, sums->size, sums->count);
		if (histogram.sampled)
			fprintf(out, ",%" PRIu64 ",%" PRIu64, sums->error.size, sums->error.count);
		fputs("\r\n", out);
	}
	return report_end(out);
}
