/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report/report_histogram.h"
#include "report/report_parts.h"
#include "util/json.h"
#include "util/text.h"
#include "util/utf8.h"

static void quoted_write(FILE *out, const char *text)
{
	putc('"', out);
	for (; *text; text++) {
		if (*text == '"')
			putc('"', out);
		putc(*text, out);
	}
	putc('"', out);
}

static void field_write(FILE *out, const char *text)
{
	if (strpbrk(text, "\",\r\n"))
		quoted_write(out, text);
	else
		fputs(text, out);
}

/* A file has the text as it is; a terminal would obey what is in it. */
static void shown_write(FILE *out, const char *text, void (*write)(FILE *out, const char *text))
{
	size_t room = UTF8_ESCAPED(strlen(text)) + TEXT_CHARACTER_MAX;
	char *shown = isatty(fileno(out)) ? malloc(room) : NULL;

	if (shown)
		text_escape(shown, room, text);
	write(out, shown ? shown : text);
	free(shown);
}

void report_csv_field(FILE *out, const char *text)
{
	shown_write(out, text, field_write);
}

void report_csv_quoted(FILE *out, const char *text)
{
	shown_write(out, text, quoted_write);
}

static int filename_write(FILE *out, const char *text)
{
	char *bytes = malloc(UTF8_ESCAPED(strlen(text)));

	if (!bytes)
		return -ENOMEM;
	utf8_escape(bytes, text);
	report_csv_field(out, bytes);
	free(bytes);
	return 0;
}

static int frames_write(FILE *out, const struct statistic *entry, enum group_by by)
{
	char *text = NULL;
	size_t bytes;
	struct json json = {.out = open_memstream(&text, &bytes)};

	if (!json.out)
		return -ENOMEM;
	report_frames_json(&json, NULL, entry, by);
	int err = fclose(json.out) ? -ENOMEM : 0;
	if (!err) {
		putc(',', out);
		report_csv_field(out, text);
	}
	free(text);
	return err;
}

/* An owner's names, in the order of columns[] below. */
static int owner_write(FILE *out, const struct snapshot_meta *process, enum group_by by)
{
	int err = 0;

	if (by == GROUP_PROCESS)
		fprintf(out, "%u,", process->pid);
	if (by != GROUP_CONTAINER)
		err = filename_write(out, process->name);
	if (by == GROUP_PROCESS)
		putc(',', out);
	if (!err && by != GROUP_COMM)
		err = filename_write(out, process->container);
	return err;
}

/* Lines of native code are not always known; then the function distinguishes entries. */
static int functions_shown(const struct snapshot *snapshot, const struct report_opts *opts)
{
	return opts->by == GROUP_FUNCTION ||
	       (opts->by != GROUP_FILENAME && !group_is_owner(opts->by) &&
		snapshot->meta.layer == EVENT_LAYER_NATIVE);
}

static int frame_write(FILE *out, const struct statistic *entry, const struct report_opts *opts)
{
	uint32_t nframe;
	const struct snapshot_frame *frame = statistic_frames(entry, opts->by, &nframe);
	const char *function = report_function(entry->snapshot, frame);
	int err = filename_write(out, strings_get(entry->snapshot->strings, frame->filename));

	if (!err)
		fprintf(out, ",%u", frame->line);
	if (!err && functions_shown(entry->snapshot, opts)) {
		putc(',', out);
		err = filename_write(out, function ? function : "");
	}
	return err;
}

/* The figures of a cumulative entry that count each traceback once. */
static void once_write(FILE *out, const struct report_opts *opts, const struct statistic *entry)
{
	const struct statistic once = report_once(entry);

	fprintf(out, ",%" PRIu64, once.size);
	if (opts->old)
		fprintf(out, ",%" PRId64, statistic_size_diff(&once));
	fprintf(out, ",%" PRIu64, once.count);
	if (opts->old)
		fprintf(out, ",%" PRId64, statistic_count_diff(&once));
}

static void extra_write(FILE *out, const struct report_opts *opts, const struct statistic_sums *now,
			const struct statistic_sums *old)
{
	fprintf(out, ",%" PRIu64, now->size);
	if (opts->old)
		fprintf(out, ",%" PRId64, report_diff(now->size, old->size));
	fprintf(out, ",%" PRIu64, now->count);
	if (opts->old)
		fprintf(out, ",%" PRId64, report_diff(now->count, old->count));
}

static void extra_heads_write(FILE *out, const struct report_opts *opts, const char *name)
{
	if (opts->old)
		fprintf(out, ",%s_size,%s_size_diff,%s_count,%s_count_diff", name, name, name,
			name);
	else
		fprintf(out, ",%s_size,%s_count", name, name);
}

/* The optional columns. */
struct columns {
	int sampled; /* standard errors */
	int holders; /* the number of processes that hold it */
	int rounded; /* the number of its blocks whose sizes are rounded up */
	int allocated, temporary, ages;
};

static int entry_write(FILE *out, const struct report_opts *opts, const struct statistic *entry,
		       const struct columns *with)
{
	const struct statistic_error diff = report_error_diff(entry);
	int err = group_is_owner(opts->by) ? owner_write(out, entry->process, opts->by)
					   : frame_write(out, entry, opts);

	if (err)
		return err;
	fprintf(out, ",%" PRIu64, entry->size);
	if (opts->old)
		fprintf(out, ",%" PRId64, statistic_size_diff(entry));
	fprintf(out, ",%" PRIu64, entry->count);
	if (opts->old)
		fprintf(out, ",%" PRId64, statistic_count_diff(entry));
	if (with->sampled)
		fprintf(out, ",%" PRIu64 ",%" PRIu64, entry->error.size, entry->error.count);
	if (with->sampled && opts->old)
		fprintf(out, ",%" PRIu64 ",%" PRIu64, diff.size, diff.count);
	if (with->holders)
		fprintf(out, ",%u", entry->processes);
	if (opts->cumulative)
		once_write(out, opts, entry);
	if (with->rounded)
		fprintf(out, ",%.0f", entry->rounded);
	if (with->allocated)
		extra_write(out, opts, &entry->extra.allocated, &entry->old_extra.allocated);
	if (with->temporary)
		extra_write(out, opts, &entry->extra.temporary, &entry->old_extra.temporary);
	if (with->ages)
		fprintf(out, ",%.3f,%.3f", (double)entry->ages.oldest_ns / 1e9,
			(double)entry->ages.median_ns / 1e9);
	if (opts->by == GROUP_TRACEBACK)
		err = frames_write(out, entry, opts->by);
	fputs("\r\n", out);
	return err;
}

int report_csv(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out)
{
	static const char *const columns[] = {"filename,lineno",    "filename,lineno",
					      "filename,lineno",    "filename,lineno",
					      "pid,comm,container", "comm",
					      "container"};
	struct columns with = {.holders = snapshot->process_count || group_is_owner(opts->by)};
	struct statistics statistics;

	if (group_is_histogram(opts->by))
		return histogram_csv(snapshot, opts, out);
	int err = report_statistics(snapshot, opts, &statistics);
	if (err)
		return err;
	with.sampled = statistics.sampled;
	with.allocated = statistics.allocated_known;
	with.temporary = statistics.temporary_known;
	with.ages = statistics.ages_known;
	for (size_t i = 0; i < statistics.count; i++)
		with.rounded |= statistics.entries[i].rounded > 0;
	fprintf(out, "%s%s,size%s,count%s%s%s%s%s%s", columns[opts->by],
		functions_shown(snapshot, opts) ? ",function" : "", opts->old ? ",size_diff" : "",
		opts->old ? ",count_diff" : "", with.sampled ? ",size_error,count_error" : "",
		with.sampled && opts->old ? ",size_diff_error,count_diff_error" : "",
		with.holders ? ",processes" : "",
		!opts->cumulative ? ""
		: opts->old       ? ",once_size,once_size_diff,once_count,once_count_diff"
				  : ",once_size,once_count",
		with.rounded ? ",rounded" : "");
	if (with.allocated)
		extra_heads_write(out, opts, "allocated");
	if (with.temporary)
		extra_heads_write(out, opts, report_temporary_key(&statistics));
	fputs(with.ages ? ",age_oldest,age_median" : "", out);
	fputs(opts->by == GROUP_TRACEBACK ? ",traceback\r\n" : "\r\n", out);
	for (size_t i = 0; !err && i < report_shown(&statistics, opts); i++)
		err = entry_write(out, opts, &statistics.entries[i], &with);
	statistics_free(&statistics);
	return err ?: report_end(out);
}
