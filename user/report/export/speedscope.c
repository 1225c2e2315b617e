/* SPDX-License-Identifier: Apache-2.0 */
/*
 * speedscope's file format (https://www.speedscope.app/file-format-schema.json): the frames once,
 * then a "sampled" profile for each process, whose samples are tracebacks, oldest frame first, with
 * their weights.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "report/export/exporter.h"
#include "report/export/frame_table.h"
#include "snapshot/group/group.h"
#include "util/json.h"

static void frames_write(FILE *out, const struct snapshot *snapshot,
			 const struct frame_table *table)
{
	fputs("\"shared\": {\"frames\": [", out);
	for (size_t i = 0; i < table->count; i++) {
		const struct snapshot_frame *frame = &table->frames[i];
		const char *file = strings_get(snapshot->strings, frame->filename);
		const char *function = strings_get(snapshot->strings, frame->function);

		fputs(i ? ",\n{" : "{", out);
		json_member(out, "name", function[0] ? function : file);
		fputs(", ", out);
		json_member(out, "file", file);
		fprintf(out, ", \"line\": %u}", frame->line);
	}
	fputs("]},\n", out);
}

static void sample_write(FILE *out, const struct frame_table *table, const struct statistic *entry)
{
	const struct snapshot_traceback *traceback = &entry->snapshot->tracebacks[entry->traceback];

	putc('[', out);
	for (uint32_t i = traceback->nframe; i-- > 0;)
		fprintf(out, "%u%s", table->ids[traceback->first + i], i ? "," : "");
	putc(']', out);
}

static void entries_write(FILE *out, const struct frame_table *table,
			  const struct statistics *statistics, int counts)
{
	uint64_t total = 0;

	fputs(", \"samples\": [", out);
	for (size_t i = 0; i < statistics->count; i++) {
		fputs(i ? ",\n" : "", out);
		sample_write(out, table, &statistics->entries[i]);
	}
	fputs("], \"weights\": [", out);
	for (size_t i = 0; i < statistics->count; i++) {
		const struct statistic *entry = &statistics->entries[i];
		uint64_t weight = counts ? entry->count : entry->size;

		total += weight;
		fprintf(out, "%s%" PRIu64, i ? "," : "", weight);
	}
	fprintf(out, "], \"endValue\": %" PRIu64 "}", total);
}

/* "python3 (PID 812)": processes of one name are told apart. */
static void profile_name(FILE *out, const struct snapshot_meta *process)
{
	char name[sizeof(process->name) + 24];

	snprintf(name, sizeof(name), process->pid ? "%s (PID %u)" : "%s",
		 process->name[0] ? process->name : "all", process->pid);
	json_quote(out, name);
}

/* One profile: a process. */
static int profile_write(FILE *out, const struct snapshot *snapshot,
			 const struct frame_table *table, int counts)
{
	const struct statistics_opts how = {.by = GROUP_TRACEBACK};
	struct statistics statistics;
	int err = statistics_compute(snapshot, &how, &statistics);

	if (err)
		return err;
	fputs("{\"type\": \"sampled\", \"name\": ", out);
	profile_name(out, &snapshot->meta);
	fprintf(out, ", \"unit\": \"%s\", \"startValue\": 0", counts ? "none" : "bytes");
	entries_write(out, table, &statistics, counts);
	statistics_free(&statistics);
	return 0;
}

static int document_write(FILE *out, const struct snapshot *snapshot,
			  const struct frame_table *table, int counts)
{
	size_t first = 0;
	int err = 0;

	fputs("{\"$schema\": \"https://www.speedscope.app/file-format-schema.json\",\n"
	      "\"exporter\": \"tracer " TRACER_VERSION "\",\n",
	      out);
	frames_write(out, snapshot, table);
	fputs("\"profiles\": [", out);
	for (size_t i = 0; !err && i < snapshot_process_count(snapshot); i++) {
		const struct snapshot one = snapshot_of_process(snapshot, i, &first);

		fputs(i ? ",\n" : "", out);
		err = profile_write(out, &one, table, counts);
	}
	fputs("]}\n", out);
	return err;
}

static int speedscope_export(const struct snapshot *snapshot, const struct export_opts *opts,
			     struct outfile *file)
{
	struct frame_table table;
	char *text = NULL;
	size_t bytes = 0;
	int err = frame_table_make(snapshot, &table);

	if (err)
		return err;
	FILE *out = open_memstream(&text, &bytes);
	err = out ? document_write(out, snapshot, &table, opts->counts) : -ENOMEM;
	if (out && fclose(out) && !err)
		err = -ENOMEM;
	err = err ?: outfile_write(file, text, bytes);
	free(text);
	frame_table_free(&table);
	return err;
}

const struct exporter export_speedscope = {
	.name = "speedscope",
	.help = "for speedscope, a profile per process",
	.merged = 1,
	.write = speedscope_export,
};
