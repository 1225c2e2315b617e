/* SPDX-License-Identifier: Apache-2.0 */
#include "export/report.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "export/not_seen.h"
#include "python/version.h"

/* tracemalloc._format_size(size, False), line by line. */
static char *size_format(char out[32], double size)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	const int last = 4;

	for (int i = 0;; i++, size /= 1024) {
		if (i && size < 100) {
			snprintf(out, 32, "%.1f %s", size, units[i]);
			return out;
		}
		if (size < 10 * 1024 || i == last) {
			snprintf(out, 32, "%.0f %s", size, units[i]);
			return out;
		}
	}
}

char *report_size(char out[32], uint64_t bytes)
{
	return size_format(out, (double)bytes);
}

static void frame_print(FILE *out, const struct snapshot *snapshot, const struct snapshot_frame *frame)
{
	text_print(out, strings_get(snapshot->strings, frame->filename));
	fprintf(out, ":%u", frame->line);
}

static void sums_print(FILE *out, uint64_t size, uint64_t count)
{
	char text[32];

	fprintf(out, "size=%s, count=%" PRIu64, size_format(text, (double)size), count);
	if (count)
		fprintf(out, ", average=%s", size_format(text, (double)size / (double)count));
}

static void traceback_print(FILE *out, const struct snapshot *snapshot, uint32_t index)
{
	const struct snapshot_traceback *traceback = &snapshot->tracebacks[index];

	for (uint32_t i = 0; i < traceback->nframe; i++) {
		const struct snapshot_frame *frame = &snapshot->frames[traceback->first + i];

		fputs("    ", out);
		frame_print(out, snapshot, frame);
		fputs(" in ", out);
		text_print(out, strings_get(snapshot->strings, frame->function));
		putc('\n', out);
	}
	if (traceback->total > traceback->nframe)
		fprintf(out, "    … %u older frames not kept\n", traceback->total - traceback->nframe);
}

static void entry_print(FILE *out, const struct snapshot *snapshot, enum group_by by,
			const struct statistic *entry)
{
	const struct snapshot_frame *frame = &entry->frame;

	if (by == GROUP_TRACEBACK) {
		const struct snapshot_traceback *traceback = &snapshot->tracebacks[entry->traceback];

		frame = &snapshot->frames[traceback->first];
	}
	fputs("  ", out);
	frame_print(out, snapshot, frame);
	fputs(": ", out);
	sums_print(out, entry->size, entry->count);
	putc('\n', out);
	if (by == GROUP_TRACEBACK)
		traceback_print(out, snapshot, entry->traceback);
}

static void others_print(FILE *out, const struct statistics *statistics, size_t shown, int cumulative)
{
	uint64_t size = statistics->total_size, count = statistics->total_count;

	if (shown == statistics->count)
		return;
	fprintf(out, "  %zu other", statistics->count - shown);
	if (!cumulative) { /* in cumulative mode the entries overlap: there is no rest */
		for (size_t i = 0; i < shown; i++) {
			size -= statistics->entries[i].size;
			count -= statistics->entries[i].count;
		}
		fputs(": ", out);
		sums_print(out, size, count);
	}
	putc('\n', out);
}

/* What the figures are of, since it is not what one asks for in a line of code. */
static void growth_print(FILE *out, const struct snapshot_meta *meta)
{
	char text[32];

	fprintf(out,
		"Where the heap grew: sizes are of whole pools (%s each), at the line for which one was "
		"taken into use%s\n",
		meta->pool_bytes ? report_size(text, meta->pool_bytes) : "of unknown size",
		meta->large_skipped ? ", not of objects" : ", and of blocks of more than 512 bytes");
}

static void title_print(FILE *out, const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;

	static const struct {
		const char *moment, *text;
	} moments[] = {
		{"finalizing", ", as its interpreter began to shut down"},
		{"exited", ", as it exited"},
		{"execed", ", as it executed another program"},
	};
	char version[VERSION_TEXT];

	fputs("tracer: ", out);
	text_print(out, meta->name);
	fprintf(out, " (PID %u), ", meta->pid);
	if (meta->python_version)
		fprintf(out, "CPython %s, ", version_text(version, meta->python_version));
	if (meta->mode[0])
		fprintf(out, "%s mode, ", meta->mode);
	fprintf(out, "%.1f s", (double)meta->duration_ns / 1e9);
	for (size_t i = 0; i < sizeof(moments) / sizeof(moments[0]); i++)
		if (!strcmp(meta->moment, moments[i].moment))
			fputs(moments[i].text, out);
	putc('\n', out);
	if (snapshot_is_growth(snapshot))
		growth_print(out, meta);
}

static void heading_print(FILE *out, const struct statistics *statistics, const struct report_opts *opts,
			  size_t shown, const char *what)
{
	static const char *const names[] = {"files", "lines", "tracebacks"};

	fputs(opts->color ? "\033[1m" : "", out);
	fputs(what, out);
	if (shown < statistics->count)
		fprintf(out, "%s %zu %s of %zu by size", *what ? "top" : "Top", shown, names[opts->by],
			statistics->count);
	else
		fprintf(out, "%s %zu %s by size", *what ? "all" : "All", statistics->count, names[opts->by]);
	if (opts->cumulative)
		fputs(", cumulative (a block counts for every frame of its traceback)", out);
	if (opts->by == GROUP_TRACEBACK)
		fputs(", most recent frame first", out);
	fputs(opts->color ? "\033[0m\n" : "\n", out);
}

static void statistics_print(FILE *out, const struct snapshot *snapshot, const struct statistics *statistics,
			     const struct report_opts *opts, const char *what)
{
	size_t shown = opts->top && opts->top < statistics->count ? opts->top : statistics->count;

	heading_print(out, statistics, opts, shown, what);
	for (size_t i = 0; i < shown; i++)
		entry_print(out, snapshot, opts->by, &statistics->entries[i]);
	others_print(out, statistics, shown, opts->cumulative);
}

/* The layer below: arenas and large blocks lie in it, so its sum stands apart. */
static int mapped_print(FILE *out, const struct snapshot *snapshot, const struct report_opts *opts)
{
	struct snapshot mapped = snapshot_mapped(snapshot);
	struct statistics statistics;
	int err = snapshot->meta.mapped_known
			  ? statistics_compute(&mapped, opts->by, opts->cumulative, &statistics)
			  : 0;

	if (!snapshot->meta.mapped_known || err)
		return err;
	statistics_print(out, &mapped, &statistics, opts, "Memory mapped (mmap, brk), ");
	fputs("Total mapped: ", out);
	sums_print(out, statistics.total_size, statistics.total_count);
	fputs("; the pools lie in it: the totals are not to be added up\n", out);
	statistics_free(&statistics);
	return 0;
}

int report_text(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out)
{
	struct statistics statistics;
	char text[32];
	int err = statistics_compute(snapshot, opts->by, opts->cumulative, &statistics);

	if (err)
		return err;
	title_print(out, snapshot);
	statistics_print(out, snapshot, &statistics, opts, "");
	fprintf(out, "Total: size=%s, count=%" PRIu64, size_format(text, (double)statistics.total_size),
		statistics.total_count);
	if (snapshot->meta.peak_bytes)
		fprintf(out, " (peak size=%s)", report_size(text, snapshot->meta.peak_bytes));
	putc('\n', out);
	statistics_free(&statistics);
	err = mapped_print(out, snapshot, opts);
	if (err)
		return err;
	not_seen_print(out, snapshot, opts->color);
	return fflush(out) || ferror(out) ? -EIO : 0;
}
