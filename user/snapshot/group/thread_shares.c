/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/group/thread_shares.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/array.h"
#include "util/error.h"
#include "util/sorted.h"

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
		return error_set(-EINVAL,
				 snapshot->meta.windows.count
					 ? "the snapshot does not know threads: in windows only a "
					   "trace that was begun with --by thread does"
					 : "the snapshot does not know threads: only exact and "
					   "census mode, and windows, see them");
	return several_visit(&visitor) ?: sole_visit(&visitor);
}

static int row_get(struct thread_rows *rows, uint64_t key, uint32_t *at)
{
	int err = 0;

	*at = id_map_find(&rows->index, key);
	if (*at != ID_MAP_NONE)
		return 0;
	*at = (uint32_t)rows->count;
	err = ARRAY_GROW(rows->items, rows->capacity, rows->count);
	if (!err && rows->are_estimates)
		err = ARRAY_GROW(rows->estimates, rows->estimate_capacity, rows->count);
	err = err ?: id_map_put(&rows->index, key, *at);
	if (err)
		return err;
	if (rows->are_estimates)
		rows->estimates[rows->count] = (struct estimate){0};
	rows->items[rows->count++] = (struct thread_row){.name = ""};
	return 0;
}

/* A thread's name may be looked up later. */
static int row_add(void *context, const struct thread_share *share)
{
	struct thread_rows *rows = context;
	uint32_t at;
	int err = row_get(rows,
			  rows->by_task ? (uint64_t)share->trace->process << 32 | share->task
					: share->tid,
			  &at);

	if (err)
		return err;
	struct thread_row *row = &rows->items[at];
	/* Sums of bytes are limited by the snapshot's builder. */
	row->tid = rows->by_task ? 0 : share->tid;
	row->pid = snapshot_process(rows->snapshot, share->trace->process)->pid;
	row->name = rows->by_task ? strings_get(rows->snapshot->strings, share->task) : share->name;
	row->sums.size += share->size;
	row->sums.count += share->count;
	rows->total.size += share->size;
	rows->total.count += share->count;
	if (rows->are_estimates) {
		estimate_add_trace(&rows->estimates[at], rows->snapshot, share->trace);
		estimate_add_trace(&rows->total_estimate, rows->snapshot, share->trace);
	}
	return 0;
}

static int row_compare(const void *a, const void *b)
{
	const struct thread_row *x = a, *y = b;

	return CMP(y->sums.size, x->sums.size)
	       ?: CMP(y->sums.count, x->sums.count)
	       ?: CMP(x->tid, y->tid)
	       ?: strcmp(x->name, y->name);
}

void thread_rows_free(struct thread_rows *rows)
{
	free(rows->items);
	free(rows->estimates);
	id_map_free(&rows->index);
}

static int by_task_check(const struct snapshot *snapshot, const struct thread_question *question)
{
	const char *asked = question->by == GROUP_TASK ? "task" : question->label;
	const char *told = snapshot->meta.label[0] ? snapshot->meta.label : "task";

	if (!snapshot->meta.tasks)
		return error_set(-EINVAL,
				 "the snapshot does not know it: only a trace that was begun with "
				 "--by %s does",
				 asked);
	return strcmp(asked, told) ? error_set(-EINVAL, "the snapshot was made with --by %s", told)
				   : 0;
}

/* Does the snapshot tell what is asked for? 0; -EINVAL (error_set). */
static int told_check(const struct snapshot *snapshot, const struct thread_question *question)
{
	const struct snapshot_meta *meta = &snapshot->meta;

	if (question->by != GROUP_THREAD)
		return by_task_check(snapshot, question);
	return meta->windows.count && meta->tasks
		       ? error_set(-EINVAL, "in windows a trace by %s tells no threads",
				   meta->label[0] ? meta->label : "task")
		       : 0;
}

static void errors_set(struct thread_rows *rows)
{
	for (size_t i = 0; rows->are_estimates && i < rows->count; i++) {
		rows->items[i].sums.error = (struct statistic_error){
			.size = estimate_size_error(&rows->estimates[i]),
			.count = estimate_count_error(&rows->estimates[i])};
		estimate_size_deviations(&rows->estimates[i], &rows->items[i].deviations);
	}
	estimate_include_unseen(&rows->total_estimate);
	rows->total.error.size = estimate_size_error(&rows->total_estimate);
	rows->total.error.count = estimate_count_error(&rows->total_estimate);
}

int thread_shares_rows(const struct snapshot *snapshot, const struct thread_question *question,
		       struct thread_rows *out)
{
	struct filter_run run;

	*out = (struct thread_rows){.snapshot = snapshot,
				    .by_task = question->by != GROUP_THREAD,
				    .are_estimates = snapshot->meta.windows.count != 0,
				    .index.seed = (uintptr_t)out};
	int err = told_check(snapshot, question);
	if (err)
		return err;
	err = filter_run_begin(&run, question->filters, snapshot)
		      ?: thread_shares_visit(snapshot, &run, row_add, out);
	filter_run_end(&run);
	for (size_t i = 0; !err && !out->by_task && i < snapshot->thread_count; i++) {
		uint32_t at = id_map_find(&out->index, snapshot->threads[i].tid);

		if (at != ID_MAP_NONE && !out->items[at].name[0])
			out->items[at].name = snapshot->threads[i].name;
	}
	if (err) {
		thread_rows_free(out);
		return err;
	}
	errors_set(out);
	if (out->count)
		qsort(out->items, out->count, sizeof(*out->items), row_compare);
	return 0;
}

/* --- a row as a snapshot ---------------------------------------------------------------------- */

struct picked {
	const struct thread_rows *rows;
	const struct thread_row *row;
	struct snapshot_trace *traces;
	size_t count, capacity;
};

static bool is_of_row(const struct picked *picked, const struct thread_share *share)
{
	const struct snapshot *snapshot = picked->rows->snapshot;
	const struct thread_row *row = picked->row;

	if (!picked->rows->by_task)
		return share->tid == row->tid;
	return snapshot_process(snapshot, share->trace->process)->pid == row->pid &&
	       !strcmp(strings_get(snapshot->strings, share->task), row->name);
}

static int share_pick(void *context, const struct thread_share *share)
{
	struct picked *picked = context;

	if (!is_of_row(picked, share))
		return 0;
	int err = ARRAY_GROW(picked->traces, picked->capacity, picked->count);
	if (err)
		return err;
	struct snapshot_trace *trace = &picked->traces[picked->count++];
	*trace = *share->trace;
	trace->age = 0;
	trace->task = 0;
	return 0;
}

static int trace_compare(const void *a, const void *b)
{
	const struct snapshot_trace *x = a, *y = b;

	return CMP(x->process, y->process);
}

int thread_row_snapshot(const struct thread_rows *rows, const struct thread_row *row,
			struct snapshot *out)
{
	struct picked picked = {.rows = rows, .row = row};
	int err = thread_shares_visit(rows->snapshot, NULL, share_pick, &picked);

	if (err) {
		free(picked.traces);
		return err;
	}
	if (picked.count)
		qsort(picked.traces, picked.count, sizeof(*picked.traces), trace_compare);
	*out = *rows->snapshot;
	out->traces = picked.traces;
	out->trace_count = picked.count;
	memset(out->layers, 0, sizeof(out->layers));
	memset(out->meta.extra, 0, sizeof(out->meta.extra));
	out->meta.layers = 0;
	out->meta.ages = 0;
	return 0;
}
