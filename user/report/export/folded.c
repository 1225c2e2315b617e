/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folded stacks, the input of flamegraph.pl, inferno and speedscope: one line per traceback, oldest
 * frame first, frames separated by semicolons, followed by the weight. A frame is "function
 * (file:line)", or "file:line" if the function is unknown (tracemalloc's files). With several
 * processes, a frame "command (PID)" is added below the oldest frame. A semicolon within a name is
 * written as '_'; what is not printable, and bytes that are not UTF-8, as \xNN.
 */
#include <inttypes.h>
#include <string.h>

#include "report/export/exporter.h"
#include "snapshot/group/group.h"
#include "util/buffer.h"
#include "util/text.h"
#include "util/utf8.h"

static int name_append(struct buffer *line, const char *name)
{
	size_t begin = line->size;
	size_t room = UTF8_ESCAPED(strlen(name)) + TEXT_CHARACTER_MAX;
	int err = buffer_reserve(line, room);

	if (err)
		return err;
	/* Also harmless on a terminal. */
	line->size += text_escape((char *)line->data + begin, room, name);
	for (uint8_t *c = line->data + begin; c < line->data + line->size; c++)
		if (*c == ';')
			*c = '_';
	return 0;
}

static int frame_append(struct buffer *line, const struct snapshot *snapshot,
			const struct snapshot_frame *frame)
{
	const char *function = strings_get(snapshot->strings, frame->function);
	int err = name_append(line, function);

	if (!err && function[0])
		err = buffer_append(line, " (", 2);
	err = err ?: name_append(line, strings_get(snapshot->strings, frame->filename));
	if (!err)
		err = buffer_printf(line, ":%u%s", frame->line, function[0] ? ")" : "");
	return err;
}

/* process: the frame below all others; NULL: there is only one process. */
static int entry_write(struct buffer *line, const struct snapshot_meta *process,
		       const struct statistic *entry, int counts, struct outfile *file)
{
	uint32_t nframe;
	const struct snapshot_frame *frames = statistic_frames(entry, GROUP_TRACEBACK, &nframe);
	int err = 0;

	line->size = 0;
	if (process) {
		err = name_append(line, process->name);
		if (!err)
			err = buffer_printf(line, " (%u);", process->pid);
	}
	for (uint32_t i = nframe; !err && i-- > 0;) {
		err = frame_append(line, entry->snapshot, &frames[i]);
		if (!err && i)
			err = buffer_append(line, ";", 1);
	}
	if (!err)
		err = buffer_printf(line, " %" PRIu64 "\n", counts ? entry->count : entry->size);
	return err ?: outfile_write(file, line->data, line->size);
}

static int snapshot_write(const struct snapshot *snapshot, const struct snapshot_meta *process,
			  int counts, struct outfile *file)
{
	const struct statistics_opts how = {.by = GROUP_TRACEBACK};
	struct statistics statistics;
	struct buffer line = {0};
	int err = statistics_compute(snapshot, &how, &statistics);

	if (err)
		return err;
	for (size_t i = 0; !err && i < statistics.count; i++)
		err = entry_write(&line, process, &statistics.entries[i], counts, file);
	buffer_free(&line);
	statistics_free(&statistics);
	return err;
}

static int folded_export(const struct snapshot *snapshot, const struct export_opts *opts,
			 struct outfile *file)
{
	size_t first = 0;
	int err = 0;

	for (size_t i = 0; !err && i < snapshot_process_count(snapshot); i++) {
		const struct snapshot one = snapshot_of_process(snapshot, i, &first);

		err = snapshot_write(&one, snapshot->process_count ? &one.meta : NULL, opts->counts,
				     file);
	}
	return err;
}

const struct exporter export_folded = {
	.name = "folded",
	.help = "a line per traceback and its bytes, for flame graphs",
	.write = folded_export,
};
