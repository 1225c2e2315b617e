/* SPDX-License-Identifier: Apache-2.0 */
#include "report/recording/series.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/group/thread_shares.h"
#include "util/array.h"
#include "util/buffer.h"
#include "util/error.h"
#include "util/strings.h"

/* A line is found by its text: names have other ids in each snapshot. */
struct series_reader {
	const struct series_opts *opts;
	struct series *series;
	struct strings *keys;
	struct buffer key;
	size_t line_capacity;
};

void series_free(struct series *series)
{
	for (size_t i = 0; i < series->line_count; i++) {
		for (size_t at = 0; at < series->moment_capacity; at++)
			free(series->lines[i].at[at].deviations);
		free(series->lines[i].filename);
		free(series->lines[i].function);
		free(series->lines[i].at);
	}
	free(series->lines);
	free(series->moments);
	snapshot_free(series->last);
	markers_free(&series->markers);
	*series = (struct series){0};
}

double series_seconds(const struct series *series, size_t moment)
{
	const struct series_moment *moments = series->moments;

	return (double)(moments[moment].time.since_ns - moments[0].time.since_ns) / 1e9;
}

size_t series_begin(const struct series *series)
{
	size_t begin = series->moment_count ? series->moment_count - 1 : 0;

	while (begin && series->moments[begin - 1].emptied >= series->moments[begin].emptied)
		begin--;
	return begin;
}

/* What grew of a figure since a moment; less than nothing if a process is not in it any more. */
static double grown(uint64_t first, uint64_t last)
{
	return last > first ? (double)(last - first) : 0;
}

double series_probes_share(const struct series *series, size_t from)
{
	const struct series_moment *first = &series->moments[from],
				   *last = &series->moments[series->moment_count - 1];
	double cpu_ns = grown(first->cpu_ns, last->cpu_ns);

	return cpu_ns > 0 ? fmin(grown(first->probes_ns, last->probes_ns) / cpu_ns, 1) : -1;
}

double series_lost_share(const struct series *series, size_t from)
{
	const struct series_moment *first = &series->moments[from],
				   *last = &series->moments[series->moment_count - 1];
	double elapsed_ns = grown(first->time.since_ns, last->time.since_ns),
	       busy_ns = grown(first->cpu_ns, last->cpu_ns) + grown(first->wait_ns, last->wait_ns),
	       share = series_probes_share(series, from);

	return share > 0 && elapsed_ns > 0 ? share * fmin(busy_ns / elapsed_ns, 1) : 0;
}

/* Adds a line. Its figures have room for every moment that can come. */
static int line_add(struct series_reader *reader, const char *filename, const char *function,
		    const struct snapshot_frame *frame)
{
	struct series *series = reader->series;
	int err = ARRAY_GROW(series->lines, reader->line_capacity, series->line_count);

	if (err)
		return err;
	struct series_line *line = &series->lines[series->line_count];
	*line = (struct series_line){
		.filename = strdup(filename),
		.function = strdup(function),
		.line = frame->line,
		.native = frame->native != 0,
		.at = calloc(reader->series->moment_capacity, sizeof(*line->at)),
	};
	if (line->filename && line->function && line->at) {
		series->line_count++;
		return 0;
	}
	free(line->filename);
	free(line->function);
	free(line->at);
	return -ENOMEM;
}

static int name_find(struct series_reader *reader, const char *filename, const char *function,
		     const struct snapshot_frame *frame, struct series_line **line)
{
	uint32_t id;

	reader->key.size = 0;
	int err = buffer_printf(&reader->key, "%u %d %zu %s%s", frame->line, frame->native != 0,
				strlen(filename), filename, function);
	err = err
		      ?: strings_intern(reader->keys, (const char *)reader->key.data,
					reader->key.size, &id);
	/* Id 0 is the empty string. */
	if (!err && id > reader->series->line_count)
		err = line_add(reader, filename, function, frame);
	if (!err)
		*line = &reader->series->lines[id - 1];
	return err;
}

static int line_find(struct series_reader *reader, const struct statistic *entry,
		     struct series_line **line)
{
	const struct strings *names = entry->snapshot->strings;
	const struct snapshot_frame *frame = &entry->frame;
	const char *function =
		frame->function != STATISTIC_NO_FUNCTION ? strings_get(names, frame->function) : "";

	return name_find(reader, strings_get(names, frame->filename), function, frame, line);
}

static struct series_figures figures_of(const struct statistic_sums *sums,
					const struct statistic_sums *allocated)
{
	return (struct series_figures){.size = sums->size,
				       .count = sums->count,
				       .size_error = sums->error.size,
				       .allocated_size = allocated->size,
				       .allocated_count = allocated->count};
}

static int statistics_take(struct series_reader *reader, const struct statistics *statistics)
{
	struct series *series = reader->series;
	size_t at = series->moment_count;
	const struct statistic_sums total = {.size = statistics->total_size,
					     .count = statistics->total_count,
					     .error = statistics->total_error};
	int err = 0;

	series->moments[at].total = figures_of(&total, &statistics->extra.allocated);
	series->allocated_known &= statistics->allocated_known;
	series->sampled |= statistics->sampled;
	for (size_t i = 0; !err && i < statistics->count; i++) {
		const struct statistic *entry = &statistics->entries[i];
		const struct statistic_sums sums = {
			.size = entry->size, .count = entry->count, .error = entry->error};
		struct series_line *line;

		err = line_find(reader, entry, &line);
		if (!err)
			line->at[at] = figures_of(&sums, &entry->extra.allocated);
	}
	return err;
}

/* Of one name in several processes, which are independent of each other. */
static void figures_add(struct series_figures *figures, const struct statistic_sums *sums)
{
	figures->size += sums->size;
	figures->count += sums->count;
	figures->size_error =
		(uint64_t)hypot((double)figures->size_error, (double)sums->error.size);
}

/* 0, -ENOMEM. */
static int deviations_add(struct series_figures *figures, const struct thread_row *row)
{
	if (!row->sums.error.size)
		return 0;
	if (!figures->deviations)
		figures->deviations = calloc(1, sizeof(*figures->deviations));
	if (!figures->deviations)
		return -ENOMEM;
	estimate_deviations_add(figures->deviations, &row->deviations);
	return 0;
}

/* A thread's number is part of its name: several may have one name. */
static int row_take(struct series_reader *reader, const struct thread_row *row)
{
	static const struct snapshot_frame none;
	char thread[EVENT_THREAD_NAME + 32];
	const char *name = row->name;
	struct series_line *line;

	if (row->tid) {
		snprintf(thread, sizeof(thread), "%s (TID %u)", name[0] ? name : "(name not known)",
			 row->tid);
		name = thread;
	}
	int err = name_find(reader, name, "", &none, &line);
	if (err)
		return err;
	figures_add(&line->at[reader->series->moment_count], &row->sums);
	return deviations_add(&line->at[reader->series->moment_count], row);
}

/* By thread, task or value. What was allocated by whom is not known. */
static int owners_take(struct series_reader *reader, const struct snapshot *snapshot)
{
	const struct statistics_opts *opts = &reader->opts->statistics;
	const struct thread_question question = {
		.by = opts->by, .label = reader->opts->label, .filters = opts->filters};
	struct series *series = reader->series;
	struct thread_rows rows;
	int err = thread_shares_rows(snapshot, &question, &rows);

	if (err)
		return err;
	series->allocated_known = 0;
	series->sampled |= snapshot_is_estimated(&snapshot->meta);
	figures_add(&series->moments[series->moment_count].total, &rows.total);
	for (size_t i = 0; !err && i < rows.count; i++)
		err = row_take(reader, &rows.items[i]);
	thread_rows_free(&rows);
	return err;
}

static int snapshot_take(struct series_reader *reader, const struct snapshot *snapshot)
{
	const struct series_opts *opts = reader->opts;
	struct snapshot chosen = *snapshot;
	struct statistics statistics;
	struct shown shown = {0};

	if (opts->layer >= 0 && !snapshot_has_layer(snapshot, (enum event_layer)opts->layer))
		return error_set(-ENOENT, "a snapshot has no %s layer",
				 event_layer_name((enum event_layer)opts->layer));
	if (opts->layer >= 0)
		chosen = snapshot_of_layer(snapshot, (enum event_layer)opts->layer);
	if (opts->statistics.by >= GROUP_THREAD)
		return owners_take(reader, &chosen);
	int err = view_apply(opts->view, &chosen, &shown)
			  ?: statistics_compute(&shown.snapshot, &opts->statistics, &statistics);
	if (!err) {
		err = statistics_take(reader, &statistics);
		statistics_free(&statistics);
	}
	shown_free(&shown);
	return err;
}

static int64_t old_gone(const struct snapshot_meta *meta)
{
	const struct snapshot_coverage *coverage = &meta->coverage;
	int64_t gone = (int64_t)meta->frees_unknown;

	if (!meta->coverage_known)
		return gone;
	int64_t large = (int64_t)coverage->large_seen - (int64_t)coverage->large_new;
	return (large > gone ? large : gone) - (int64_t)coverage->old_blocks;
}

static int moment_take(struct series_reader *reader, struct recording *recording,
		       const struct recording_moment *time)
{
	struct series *series = reader->series;
	struct snapshot *snapshot;
	int err = recording_snapshot(recording, &snapshot);

	if (err)
		return err;
	struct series_moment *at = &series->moments[series->moment_count];
	*at = (struct series_moment){.time = *time,
				     .rss_bytes = snapshot->meta.rss_bytes,
				     .cpu_ns = snapshot->meta.cpu_ns,
				     .wait_ns = snapshot->meta.wait_ns,
				     .probes_ns = snapshot->meta.probes_ns,
				     .emptied = snapshot->meta.emptied,
				     .old_gone = old_gone(&snapshot->meta)};
	snapshot_free(series->last);
	series->last = snapshot;
	err = snapshot_take(reader, snapshot) ?: markers_take(&series->markers, snapshot, time);
	if (err)
		return err;
	at->alive = snapshot->meta.coverage_known ? (int64_t)(snapshot->meta.coverage.live_blocks +
							      snapshot->meta.coverage.large_blocks)
						  : (int64_t)at->total.count - at->old_gone;
	series->moment_count++;
	return 0;
}

/* Is the snapshot one of those that are evenly spread? */
static int is_chosen(size_t index, size_t count, size_t wanted)
{
	if (count <= wanted || index + 1 == count)
		return 1;
	return index * (wanted - 1) / (count - 1) != (index - 1) * (wanted - 1) / (count - 1) ||
	       !index;
}

/*
 * A recording may have grown since its snapshots were counted: those that came later are left out,
 * since nothing has room for them.
 */
static int recording_take(struct series_reader *reader, struct recording *recording)
{
	struct series *series = reader->series;
	struct recording_moment moment;
	int more = 0, err = 0;

	while (!err && (more = recording_next(recording, UINT64_MAX, &moment)) > 0 &&
	       moment.index < series->snapshots)
		if (is_chosen(moment.index, series->snapshots, reader->opts->moments))
			err = moment_take(reader, recording, &moment);
	if (!err && more < 0)
		err = more;
	snprintf(series->damage, sizeof(series->damage), "%s", recording_damage(recording));
	/* What is damaged does not hide what comes before it. */
	if (err == -EBADMSG && series->moment_count)
		err = 0;
	return !err && !series->moment_count ? recording_none(recording) : err;
}

int series_read_files(struct infile *file, struct infile *again, const struct series_opts *opts,
		      struct series *out)
{
	struct series_reader reader = {.opts = opts, .series = out};
	struct recording *recording = NULL;
	struct recording_bounds bounds;

	*out = (struct series){.allocated_known = 1};
	int err = recording_bounds_of(file, &bounds);
	if (err)
		return err;
	out->snapshots = bounds.count;
	out->moment_capacity = out->snapshots < opts->moments ? out->snapshots : opts->moments;
	out->moments = calloc(out->moment_capacity, sizeof(*out->moments));
	err = out->moments ? strings_new(&reader.keys) : -ENOMEM;
	err = err ?: recording_new(&recording, again);
	err = err ?: recording_take(&reader, recording);
	recording_free(recording);
	strings_free(reader.keys);
	buffer_free(&reader.key);
	if (err)
		series_free(out);
	else
		markers_sort(&out->markers);
	return err;
}

int series_read(const char *path, const struct series_opts *opts, struct series *out)
{
	struct infile files[2];
	int err = infile_open(&files[0], path);

	*out = (struct series){0};
	if (err)
		return err;
	err = infile_open(&files[1], path);
	if (!err) {
		err = series_read_files(&files[0], &files[1], opts, out);
		infile_close(&files[1]);
	}
	infile_close(&files[0]);
	return err;
}
