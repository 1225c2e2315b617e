/* SPDX-License-Identifier: Apache-2.0 */
#include "report/report_threads.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "report/caveats/contradictions.h"
#include "report/caveats/not_seen.h"
#include "report/caveats/quality.h"
#include "report/report_parts.h"
#include "snapshot/group/thread_shares.h"
#include "util/array.h"
#include "util/error.h"
#include "util/id_map.h"
#include "util/json.h"
#include "util/size.h"
#include "util/sorted.h"
#include "util/text.h"

struct thread_row {
	uint32_t tid, pid; /* tid: 0 by task */
	const char *name;  /* of the thread, "": not known; of the task, "": no task */
	uint64_t size, count;
};

struct thread_rows {
	const struct snapshot *snapshot;
	int by_task;
	struct thread_row *items;
	size_t count, capacity;
	struct id_map index; /* by the thread's number, or by process and task */
	uint64_t size, blocks;
};

static int row_get(struct thread_rows *rows, uint64_t key, struct thread_row **out)
{
	uint32_t at = id_map_find(&rows->index, key);
	int err = 0;

	if (at == ID_MAP_NONE) {
		at = (uint32_t)rows->count;
		err = ARRAY_GROW(rows->items, rows->capacity, rows->count)
			      ?: id_map_put(&rows->index, key, at);
		if (err)
			return err;
		rows->items[rows->count++] = (struct thread_row){.name = ""};
	}
	*out = &rows->items[at];
	return 0;
}

/* A thread's name may be looked up later. */
static int row_add(void *context, const struct thread_share *share)
{
	struct thread_rows *rows = context;
	struct thread_row *row;
	int err = row_get(rows,
			  rows->by_task ? (uint64_t)share->trace->process << 32 | share->task
					: share->tid,
			  &row);

	if (err)
		return err;
	/* Sums of bytes are limited by the snapshot's builder. */
	row->tid = rows->by_task ? 0 : share->tid;
	row->pid = snapshot_process(rows->snapshot, share->trace->process)->pid;
	row->name = rows->by_task ? strings_get(rows->snapshot->strings, share->task) : share->name;
	row->size += share->size;
	row->count += share->count;
	rows->size += share->size;
	rows->blocks += share->count;
	return 0;
}

static int row_compare(const void *a, const void *b)
{
	const struct thread_row *x = a, *y = b;

	return CMP(y->size, x->size)
	       ?: CMP(y->count, x->count)
	       ?: CMP(x->tid, y->tid)
	       ?: strcmp(x->name, y->name);
}

static void rows_free(struct thread_rows *rows)
{
	free(rows->items);
	id_map_free(&rows->index);
}

static int rows_make(const struct snapshot *snapshot, const struct report_opts *opts,
		     struct thread_rows *out)
{
	struct filter_run run;

	if (opts->old)
		return error_set(-EINVAL, "threads and tasks of two snapshots cannot be compared");
	*out = (struct thread_rows){.snapshot = snapshot,
				    .by_task = opts->by == GROUP_TASK,
				    .index.seed = (uintptr_t)out};
	if (out->by_task && !snapshot->meta.tasks)
		return error_set(-EINVAL, "the snapshot does not know tasks: only a trace that was "
					  "begun with --by task does");
	int err = filter_run_begin(&run, opts->filters, snapshot)
			  ?: thread_shares_visit(snapshot, &run, row_add, out);
	filter_run_end(&run);
	for (size_t i = 0; !err && !out->by_task && i < snapshot->thread_count; i++) {
		uint32_t at = id_map_find(&out->index, snapshot->threads[i].tid);

		if (at != ID_MAP_NONE && !out->items[at].name[0])
			out->items[at].name = snapshot->threads[i].name;
	}
	if (err)
		rows_free(out);
	else if (out->count)
		qsort(out->items, out->count, sizeof(*out->items), row_compare);
	return err;
}

static void figures_print(FILE *out, uint64_t size, uint64_t count, int sampled)
{
	const char *about = sampled ? "~" : "";

	fprintf(out, "size=%s%s, count=%s%" PRIu64, about, SIZE_TEXT(size), about, count);
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
		fputs(rows->by_task ? "(no task)" : "(name not known)", out);
	if (!rows->by_task)
		fprintf(out, " (TID %u%s%s)", row->tid, more[0] ? ", " : "", more);
	else if (more[0])
		fprintf(out, " (%s)", more);
	fputs(": ", out);
}

int threads_text(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out)
{
	struct not_seen_opts remarks = {
		.title = "Not seen", .color = opts->color, .whole = report_is_whole(opts)};
	int sampled = snapshot_is_estimated(&snapshot->meta);
	struct thread_rows rows;
	int err = rows_make(snapshot, opts, &rows);
	const char *what = opts->by == GROUP_TASK ? "tasks" : "threads";

	if (err)
		return err;
	size_t shown = report_rows(opts, rows.count);
	contradictions_print(out, snapshot, opts->brief != 0);
	report_titles_print(out, snapshot, opts);
	if (shown < rows.count)
		fprintf(out, "Top %zu %s of %zu by size\n", shown, what, rows.count);
	else
		fprintf(out, "All %zu %s by size\n", rows.count, what);
	for (size_t i = 0; i < shown; i++) {
		row_name_print(out, &rows, &rows.items[i]);
		figures_print(out, rows.items[i].size, rows.items[i].count, sampled);
		putc('\n', out);
	}
	fputs("Total: ", out);
	figures_print(out, rows.size, rows.blocks, sampled);
	putc('\n', out);
	if (opts->brief)
		quality_print(out, snapshot, NULL, "Figures", opts->brief, opts->color);
	else
		not_seen_print(out, snapshot, &remarks);
	rows_free(&rows);
	return report_end(out);
}

int threads_json(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out)
{
	struct json json = {.out = out};
	struct thread_rows rows;
	int err = rows_make(snapshot, opts, &rows);

	if (err)
		return err;
	json_open(&json, NULL, '{');
	json_text(&json, "by", rows.by_task ? "task" : "thread");
	json_open(&json, "total", '{');
	json_numbers(&json, {"size", rows.size}, {"count", rows.blocks});
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
		json_text(&json, rows.by_task ? "task" : "thread", row->name);
		json_numbers(&json, {"size", row->size}, {"count", row->count});
		json_close(&json, '}');
	}
	json_close(&json, ']');
	json_end(&json);
	rows_free(&rows);
	return report_end(out);
}

int threads_csv(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out)
{
	struct thread_rows rows;
	int err = rows_make(snapshot, opts, &rows);

	if (err)
		return err;
	fputs(rows.by_task ? "pid,task,size,count\r\n" : "tid,pid,thread,size,count\r\n", out);
	for (size_t i = 0; i < report_rows(opts, rows.count); i++) {
		const struct thread_row *row = &rows.items[i];

		if (!rows.by_task)
			fprintf(out, "%u,", row->tid);
		fprintf(out, "%u,", row->pid);
		report_csv_field(out, row->name);
		fprintf(out, ",%" PRIu64 ",%" PRIu64 "\r\n", row->size, row->count);
	}
	rows_free(&rows);
	return report_end(out);
}
