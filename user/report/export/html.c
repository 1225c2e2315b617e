/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One self-contained HTML file: a flame graph, an icicle, a table and a tree of a snapshot, and of
 * its differences from an older one. The page (user/report/export/page/) is the same for every
 * snapshot; the snapshot is in it as JSON. Every name in it comes from the traced process: the JSON
 * has no '<', so that nothing in it ends its element, the page's policy allows no script but the
 * page's own, by its hash, and the script shows names as text only.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/caveats/not_seen.h"
#include "report/export/exporter.h"
#include "report/export/frame_table.h"
#include "report/report.h"
#include "report/source.h"
#include "snapshot/group/group.h"
#include "util/buffer.h"
#include "util/id_map.h"
#include "util/json.h"

#include "page/page.h"
#include "snapshot/group/thread_shares.h"
#include "snapshot/snapshot.h"

/* --- html threads ----------------------------------------------------------------------------- */

/* Threads and asyncio tasks in the data of the HTML page. */

struct threads {
	FILE *out;
	struct id_map index, names; /* by number: in the order of the list; in snapshot->threads */
	struct id_map tasks;        /* by name: in the order of the list */
	const struct snapshot *snapshot;
	int any;
};

static int names_find(struct threads *threads)
{
	int err = 0;

	for (size_t i = 0; !err && i < threads->snapshot->thread_count; i++)
		err = id_map_put(&threads->names, threads->snapshot->threads[i].tid, (uint32_t)i);
	return err;
}

static void name_write(struct threads *threads, const struct thread_share *share)
{
	uint32_t at = id_map_find(&threads->names, share->tid);
	const char *name = share->name;
	char text[EVENT_THREAD_NAME + 32];

	if (!name[0] && at != ID_MAP_NONE)
		name = threads->snapshot->threads[at].name;
	snprintf(text, sizeof(text), "%s (TID %u)", name[0] ? name : "(name not known)",
		 share->tid);
	fputs(threads->index.count ? ", " : "", threads->out);
	json_quote(threads->out, text);
}

static int thread_visit(void *context, const struct thread_share *share)
{
	struct threads *threads = context;

	if (id_map_find(&threads->index, share->tid) != ID_MAP_NONE)
		return 0;
	name_write(threads, share);
	return id_map_put(&threads->index, share->tid, (uint32_t)threads->index.count);
}

static int task_visit(void *context, const struct thread_share *share)
{
	struct threads *threads = context;

	if (id_map_find(&threads->tasks, share->task) != ID_MAP_NONE)
		return 0;
	fputs(threads->tasks.count ? ", " : "", threads->out);
	json_quote(threads->out, share->task ? strings_get(threads->snapshot->strings, share->task)
				 : threads->snapshot->meta.label[0] ? "(none)"
								    : "(no task)");
	return id_map_put(&threads->tasks, share->task, (uint32_t)threads->tasks.count);
}

static int share_visit(void *context, const struct thread_share *share)
{
	struct threads *threads = context;
	uint32_t task = id_map_find(&threads->tasks, share->task);

	fprintf(threads->out, "%s%u,%u,%u,%u,%" PRIu64 ",%" PRIu64, threads->any ? "," : "",
		share->trace->traceback, share->trace->process,
		id_map_find(&threads->index, share->tid), task == ID_MAP_NONE ? 0 : task,
		share->size, share->count);
	threads->any = 1;
	return 0;
}

/*
 * Writes the members "threads" and "tasks", a text for each, "label", what is told in place of
 * tasks (snapshot_meta.label), and "by_owner", {traceback, process, thread, task, bytes, blocks} of
 * what is alive. Empty where they are not known, the last one also
 * where there is only one thread and one task. 0, -ENOMEM.
 */
static int html_threads_write(FILE *out, const struct snapshot *snapshot)
{
	struct threads threads = {.out = out, .snapshot = snapshot};
	int known = snapshot_knows(snapshot, EXTRA_THREAD), err = 0;

	fputs("\"threads\": [", out);
	if (known)
		err = names_find(&threads)
			      ?: thread_shares_visit(snapshot, NULL, thread_visit, &threads);
	fputs("],\n\"label\": ", out);
	json_quote(out, snapshot->meta.label);
	fputs(",\n\"tasks\": [", out);
	if (known && !err && snapshot->meta.tasks)
		err = thread_shares_visit(snapshot, NULL, task_visit, &threads);
	fputs("],\n\"by_owner\": [", out);
	if (known && !err && (threads.index.count > 1 || threads.tasks.count > 1))
		err = thread_shares_visit(snapshot, NULL, share_visit, &threads);
	putc(']', out);
	id_map_free(&threads.index);
	id_map_free(&threads.names);
	id_map_free(&threads.tasks);
	return err;
}

/* --- html ------------------------------------------------------------------------------------- */

/* Lines before and after each line of a traceback, with export_opts.source. */
#define AROUND 3u

static void strings_write(FILE *out, const struct strings *strings)
{
	fputs("\"strings\": [", out);
	for (uint32_t i = 0; i < strings_count(strings); i++) {
		fputs(i ? ",\n" : "", out);
		json_quote(out, strings_get(strings, i));
	}
	fputs("],\n", out);
}

/* {file, function, line} of each frame; the frames of each traceback, most recent first. */
static void stacks_write(FILE *out, const struct snapshot *snapshot,
			 const struct frame_table *table)
{
	size_t at = 0;

	fputs("\"frames\": [", out);
	for (size_t i = 0; i < table->count; i++)
		fprintf(out, "%s%u,%u,%u", i ? "," : "", table->frames[i].filename,
			table->frames[i].function, table->frames[i].line);
	fputs("],\n\"stacks\": [", out);
	for (size_t i = 0; i < snapshot->traceback_count; i++)
		for (uint32_t j = 0; j < snapshot->tracebacks[i].nframe; j++)
			fprintf(out, "%s%u", i || j ? "," : "",
				table->ids[snapshot->tracebacks[i].first + j]);
	fputs("],\n\"starts\": [", out);
	for (size_t i = 0; i < snapshot->traceback_count; i++) {
		fprintf(out, "%zu,", at);
		at += snapshot->tracebacks[i].nframe;
	}
	fprintf(out, "%zu],\n", at);
}

/* The numbers of the tracebacks whose oldest frames were not kept. */
static void cut_write(FILE *out, const struct snapshot *snapshot)
{
	int any = 0;

	fputs("\"cut\": [", out);
	for (size_t i = 0; i < snapshot->traceback_count; i++) {
		const struct snapshot_traceback *traceback = &snapshot->tracebacks[i];

		if (traceback->total != SNAPSHOT_TOTAL_UNKNOWN &&
		    traceback->total > traceback->nframe)
			fprintf(out, "%s%zu", any++ ? "," : "", i);
	}
	fputs("],\n", out);
}

/* {traceback, process, bytes, blocks, both as allocated} of each entry of one process. */
static int traces_write(FILE *out, const struct snapshot *snapshot, size_t process, int *any)
{
	const struct statistics_opts how = {
		.by = GROUP_TRACEBACK,
		.sort = snapshot_knows(snapshot, EXTRA_ALLOCATED) ? SORT_ALLOCATED : SORT_SIZE};
	struct statistics statistics;
	int err = statistics_compute(snapshot, &how, &statistics);

	for (size_t i = 0; !err && i < statistics.count; i++) {
		const struct statistic *entry = &statistics.entries[i];

		fprintf(out, "%s%u,%zu,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64,
			*any ? "," : "", entry->traceback, process, entry->size, entry->count,
			entry->extra.allocated.size, entry->extra.allocated.count);
		*any = 1;
	}
	if (!err)
		statistics_free(&statistics);
	return err;
}

static int processes_write(FILE *out, const struct snapshot *snapshot)
{
	size_t count = snapshot_process_count(snapshot), first = 0;
	int any = 0, err = 0;

	fputs("\"processes\": [", out);
	for (size_t i = 0; i < count; i++) {
		const struct snapshot_meta *process = snapshot_process(snapshot, i);
		char name[sizeof(process->name) + 16];

		snprintf(name, sizeof(name), "%s (%u)", process->name, process->pid);
		fputs(i ? ", " : "", out);
		json_quote(out, name);
	}
	fputs("],\n\"traces\": [", out);
	for (size_t i = 0; !err && i < count; i++) {
		const struct snapshot one = snapshot_of_process(snapshot, i, &first);

		err = traces_write(out, &one, i, &any);
	}
	fprintf(out, "],\n\"allocated\": %s",
		snapshot_knows(snapshot, EXTRA_ALLOCATED) ? "true" : "false");
	return err;
}

/* The lines of the text report before its entries. Caller frees; NULL: no memory. */
static char *title_make(const struct snapshot *snapshot)
{
	char *title = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&title, &bytes);

	if (!out)
		return NULL;
	report_title_print(out, snapshot);
	if (fclose(out)) {
		free(title);
		return NULL;
	}
	return title;
}

static int snapshot_write(FILE *out, const struct snapshot *snapshot,
			  const struct frame_table *table, const char *name)
{
	char *title = title_make(snapshot);

	if (!title)
		return -ENOMEM;
	title[strcspn(title, "\n")] = '\0';
	putc('{', out);
	json_member(out, "name", name ? name : "");
	fputs(", ", out);
	json_member(out, "title", title);
	fputs(",\n", out);
	strings_write(out, snapshot->strings);
	stacks_write(out, snapshot, table);
	cut_write(out, snapshot);
	int err = processes_write(out, snapshot);
	fputs(",\n", out);
	err = err ?: html_threads_write(out, snapshot);
	putc('}', out);
	free(title);
	return err;
}

/* "old": the snapshot that the first is compared with */
static int old_write(FILE *out, const struct export_opts *opts)
{
	struct frame_table table;
	int err = frame_table_make(opts->old, &table);

	if (err)
		return err;
	fputs(",\n\"old\": ", out);
	err = snapshot_write(out, opts->old, &table, opts->old_name);
	frame_table_free(&table);
	return err;
}

/* What the text report says before its entries and of what was not seen. */
static int notes_write(FILE *out, const struct snapshot *snapshot, const struct export_opts *opts)
{
	char *text = NULL, *line, *rest;
	size_t bytes = 0;
	FILE *notes = open_memstream(&text, &bytes);
	int any = 0;

	if (!notes)
		return -ENOMEM;
	report_title_print(notes, snapshot);
	not_seen_print(notes, snapshot, &(struct not_seen_opts){.title = "Not seen"});
	if (opts->old) {
		fputs("\ncompared to: ", notes);
		report_title_print(notes, opts->old);
		not_seen_print(notes, opts->old,
			       &(struct not_seen_opts){.title = "Not seen in the older snapshot"});
	}
	if (fclose(notes)) {
		free(text);
		return -ENOMEM;
	}
	fputs("\"notes\": [", out);
	for (rest = text; (line = strsep(&rest, "\n"));) {
		fputs(any++ ? ",\n" : "", out);
		json_quote(out, line);
	}
	fputs("]", out);
	free(text);
	return 0;
}

/* [[line number, text], …] around a frame's line. */
static int around_write(FILE *out, const char *filename, uint32_t line, struct source *source,
			struct buffer *text)
{
	uint32_t first = line > AROUND ? line - AROUND : 1, last = line + AROUND;
	int any = 0, err = 0;

	putc('[', out);
	for (uint32_t at = first; err >= 0 && at <= last && at >= first; at++) {
		err = source_read(source, filename, at, text);
		if (err <= 0)
			continue;
		fprintf(out, "%s[%u, ", any++ ? ", " : "", at);
		json_quote(out, (const char *)text->data);
		putc(']', out);
	}
	putc(']', out);
	return err < 0 ? err : 0;
}

/* The member of a line, unless there is no such line. */
static int line_write(FILE *out, const char *file, uint32_t line, struct source *source,
		      struct buffer *text, int *any)
{
	int err = source_read(source, file, line, text);
	char *key;

	if (err <= 0)
		return err;
	if (asprintf(&key, "%s:%u", file, line) < 0)
		return -ENOMEM;
	fputs((*any)++ ? ",\n" : "", out);
	json_quote(out, key);
	fputs(": ", out);
	free(key);
	return around_write(out, file, line, source, text);
}

/* "source": {"FILE:LINE": lines around it, …}, each line once, whatever functions it is in */
static int source_write(FILE *out, const struct snapshot *snapshot, const struct frame_table *table,
			struct source *source)
{
	struct buffer text = {0};
	struct id_map seen = {0};
	int err = 0, any = 0;

	fputs(",\n\"source\": {", out);
	for (size_t i = 0; !err && i < table->count; i++) {
		const struct snapshot_frame *frame = &table->frames[i];
		uint64_t key = (uint64_t)frame->filename << 32 | frame->line;

		if (!frame->line || id_map_find(&seen, key) != ID_MAP_NONE)
			continue;
		err = id_map_put(&seen, key, 0)
			      ?: line_write(out, strings_get(snapshot->strings, frame->filename),
					    frame->line, source, &text, &any);
	}
	putc('}', out);
	id_map_free(&seen);
	buffer_free(&text);
	return err;
}

static int data_write(FILE *out, const struct snapshot *snapshot, const struct export_opts *opts)
{
	struct frame_table table;
	int err = frame_table_make(snapshot, &table);

	if (err)
		return err;
	fputs("{\"snapshot\": ", out);
	err = snapshot_write(out, snapshot, &table, opts->name);
	if (!err && opts->old)
		err = old_write(out, opts);
	fputs(",\n", out);
	err = err ?: notes_write(out, snapshot, opts);
	if (!err && opts->source)
		err = source_write(out, snapshot, &table, opts->source);
	putc('}', out);
	frame_table_free(&table);
	return err;
}

/* '<' only occurs in strings of the JSON. */
static int json_pass(const char *json, size_t bytes, struct outfile *file)
{
	int err = 0;

	for (size_t at = 0; !err && at < bytes;) {
		const char *found = memchr(json + at, '<', bytes - at);
		size_t end = found ? (size_t)(found - json) : bytes;

		err = outfile_write(file, json + at, end - at);
		if (!err && found)
			err = outfile_write(file, "\\u003c", 6);
		at = end + !!found;
	}
	return err;
}

static int html_export(const struct snapshot *snapshot, const struct export_opts *opts,
		       struct outfile *file)
{
	char *json = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&json, &bytes);
	int err = out ? data_write(out, snapshot, opts) : -ENOMEM;

	if (out && fclose(out) && !err)
		err = -ENOMEM;
	err = err ?: outfile_write(file, page_head, sizeof(page_head) - 1);
	err = err ?: json_pass(json, bytes, file);
	err = err ?: outfile_write(file, page_tail, sizeof(page_tail) - 1);
	free(json);
	return err;
}

const char export_html_policy[] = PAGE_POLICY;

const struct exporter export_html = {
	.name = "html",
	.help = "one file for a browser: flame graph, table, tree",
	.compares = 1,
	.merged = 1,
	.write = html_export,
};
