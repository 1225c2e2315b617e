/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/wait.h>

#include "report/caveats/inconsistencies.h"
#include "report/caveats/modes.h"
#include "report/caveats/not_seen.h"
#include "report/caveats/quality.h"
#include "report/caveats/windows.h"
#include "report/recording/recording_load.h"
#include "report/report_histogram.h"
#include "report/report_parts.h"
#include "report/report_processes.h"
#include "report/source.h"
#include "runtime/cpython/version.h"
#include "snapshot/ages.h"
#include "snapshot/group/precision.h"
#include "util/array.h"
#include "util/size.h"
#include "util/terminal.h"
#include "util/text.h"

/* --- report beside ---------------------------------------------------------------------------- */

/* What a text report says of entries beside what is alive. */

/*
 * What was allocated, of an entry or the totals, where statistics say that it is known:
 * ", allocated=1024 KiB in 12 blocks, temporary=3", in a comparison with the differences.
 */
static void report_extra_print(FILE *out, const struct statistic *sums,
			       const struct statistics *statistics, int compared)
{
	const struct statistic_sums *now = &sums->extra.allocated;
	const struct statistic_sums *old = &sums->old_extra.allocated;
	const char *about = statistics->sampled ? "~" : "";
	char text[SIZE_TEXT_MAX];

	if (!statistics->allocated_known)
		return;
	fprintf(out, ", allocated=%s%s", about, size_text(text, now->size));
	if (compared)
		fprintf(out, " (%s)",
			size_format(text, (double)report_diff(now->size, old->size), 1));
	fprintf(out, " in %s%" PRIu64, about, now->count);
	if (compared)
		fprintf(out, " (%+" PRId64 ")", report_diff(now->count, old->count));
	fputs(now->count == 1 ? " block" : " blocks", out);
	now = &sums->extra.temporary;
	old = &sums->old_extra.temporary;
	if (!now->count && !old->count)
		return;
	fprintf(out, ", %s=%s%" PRIu64, statistics->temporary_by_walk ? "short-lived" : "temporary",
		about, now->count);
	if (compared)
		fprintf(out, " (%+" PRId64 ")", report_diff(now->count, old->count));
}

/* ", oldest=2 h 5 min, median age=3.2 s", where ages are known. */
static void report_ages_print(FILE *out, const struct statistic *sums,
			      const struct statistics *statistics)
{
	char oldest[RECORDING_DURATION_BYTES], median[RECORDING_DURATION_BYTES];

	if (statistics->ages_known && sums->ages.oldest_ns)
		fprintf(out, ", oldest=%s, median age=%s",
			recording_duration_text(oldest, sums->ages.oldest_ns),
			recording_duration_text(median, sums->ages.median_ns));
}

/* Each estimate is rounded by itself, so the rest may come out one too small. */
static void subtract(uint64_t *from, uint64_t value)
{
	*from -= value < *from ? value : *from;
}

static void report_extra_subtract(struct statistic_extra *from, const struct statistic_extra *part)
{
	subtract(&from->allocated.size, part->allocated.size);
	subtract(&from->allocated.count, part->allocated.count);
	subtract(&from->temporary.size, part->temporary.size);
	subtract(&from->temporary.count, part->temporary.count);
}

/* --- report table ----------------------------------------------------------------------------- */

/* The rows of a text report on a terminal (util/terminal.h). */

/* "±8 %" of a figure; ">100 %" if the error is no smaller than it; nothing if it is exact. */
static void error_cell(FILE *out, uint64_t error, uint64_t figure)
{
	if (error && error >= figure)
		fputs(">100 %", out);
	else if (error)
		fprintf(out, "±%.*f %%", error * 10 < figure ? 1 : 0,
			100.0 * (double)error / (double)figure);
	putc('\t', out);
}

static void count_cell(FILE *out, uint64_t count, int is_known)
{
	fprintf(out, "%s\t", is_known ? COUNT_TEXT(count) : "");
}

static void size_cell(FILE *out, uint64_t size, int is_known)
{
	fprintf(out, "%s\t", is_known ? SIZE_TEXT(size) : "");
}

static void age_cell(FILE *out, uint64_t age_ns)
{
	char text[RECORDING_DURATION_BYTES];

	fprintf(out, "%s\t", age_ns ? recording_duration_text(text, age_ns) : "");
}

/* The titles of the table of entries. */
static void report_table_titles(FILE *out, const struct report_opts *opts,
				const struct statistics *statistics)
{
	static const char *const names[] = {"FILE",    "LINE",    "FUNCTION", "MOST RECENT FRAME",
					    "PROCESS", "COMMAND", "CONTAINER"};
	/* What the rows are sorted by stays. */
	const char *allocated = opts->sort == SORT_ALLOCATED ? "" : "?";
	const char *temporary = opts->sort == SORT_TEMPORARY ? "" : "?";

	if (opts->old)
		fputs("SIZE\tCHANGE\t?ERROR\tCOUNT\tCHANGE\t", out);
	else
		fprintf(out,
			"SIZE\tSHARE\t?ERROR\tCOUNT\t?AVERAGE\t%sALLOCATED\t%s%s\t?PROCESSES\t",
			allocated, temporary,
			statistics->temporary_by_walk ? "SHORT-LIVED" : "TEMPORARY");
	if (statistics->ages_known)
		fputs("OLDEST\tMEDIAN AGE\t", out);
	fprintf(out, "%s\n", names[opts->by]);
}

static void changes(FILE *out, const struct statistic *sums)
{
	const struct statistic_error error = report_error_diff(sums);
	int64_t diff = statistic_size_diff(sums);
	char text[SIZE_TEXT_MAX];

	size_cell(out, sums->size, 1);
	fprintf(out, "%s\t", size_format(text, (double)diff, 1));
	error_cell(out, error.size, (uint64_t)(diff < 0 ? -diff : diff));
	count_cell(out, sums->count, 1);
	fprintf(out, "%+" PRId64 "\t", statistic_count_diff(sums));
}

/* An entry's cells before its name. */
static void report_table_figures(FILE *out, const struct report_opts *opts,
				 const struct statistics *statistics, const struct statistic *sums)
{
	const struct statistic_extra *extra = &sums->extra;

	if (opts->old) {
		changes(out, sums);
		return;
	}
	size_cell(out, sums->size, 1);
	if (statistics->total_size)
		fprintf(out, "%.1f %%",
			100.0 * (double)sums->size / (double)statistics->total_size);
	putc('\t', out);
	error_cell(out, sums->error.size, sums->size);
	count_cell(out, sums->count, 1);
	size_cell(out, sums->count ? sums->size / sums->count : 0, sums->count != 0);
	size_cell(out, extra->allocated.size, statistics->allocated_known);
	count_cell(out, extra->temporary.count, statistics->temporary_known);
	count_cell(out, sums->processes, sums->processes > 1);
	if (!statistics->ages_known)
		return;
	age_cell(out, sums->ages.oldest_ns);
	age_cell(out, sums->ages.median_ns);
}

/* --- report title ----------------------------------------------------------------------------- */

/* The lines before the entries of a text report. */

/* Which moment the figures show, and how it is known. */
static void peak_print(FILE *out, const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;

	if (snapshot->process_count)
		fputs(", each process at its own peak", out);
	else if (meta->layer < EVENT_LAYER_TABLES) /* a file may say anything */
		fprintf(out, ", at the peak after %.1f s",
			(double)meta->peak_after_ns[meta->layer] / 1e9);
	if (!strcmp(meta->mode, "census"))
		fputs(", of the moments of heap walks", out);
	if (meta->at_peak > 1)
		fputs(", estimates", out);
	fputs("; the sizes of a traceback's blocks are their mean", out);
}

static const char *const layer_nouns[EVENT_LAYERS] = {
	[EVENT_LAYER_NATIVE] = "native blocks",
	[EVENT_LAYER_MMAP] = "mapped memory",
	[EVENT_LAYER_PAGES] = "resident pages, by the line that touched them first",
};

static void origin_print(FILE *out, const struct snapshot *snapshot, int brief)
{
	const struct snapshot_meta *meta = &snapshot->meta;
	static const struct {
		const char *moment, *text;
	} moments[] = {
		{"finalizing", ", as its interpreter began to shut down"},
		{"exited", ", as it exited"},
		{"execed", ", as it executed another program"},
	};
	char version[VERSION_TEXT], state[PROCESS_STATE_MAX];

	if (snapshot->process_count && brief && processes_are_alike(snapshot)) {
		fprintf(out, "%zu processes of ", snapshot->process_count);
		text_print(out, snapshot->processes[0].name);
		fputs(", ", out);
	} else if (snapshot->process_count) {
		fprintf(out, "%zu processes, ", snapshot->process_count);
	} else {
		text_print(out, meta->name);
		fprintf(out, " (PID %u), ", meta->pid);
	}
	if (meta->python_version)
		fprintf(out, "CPython %s, ", version_text(version, meta->python_version));
	if (meta->layer != EVENT_LAYER_PYTHON)
		fprintf(out, "%s, ", layer_nouns[meta->layer]);
	if (meta->mode[0] && meta->layer != EVENT_LAYER_PAGES)
		fprintf(out, "%s mode, ", meta->mode);
	if (meta->sample_bytes)
		fputs("sampled, ", out);
	if (meta->windows.count && strcmp(meta->mode, "windows") != 0)
		fputs("in windows, ", out);
	if (meta->self_sampled && snapshot_has_layer(snapshot, EVENT_LAYER_NATIVE))
		fprintf(out, "sampled by %s, ",
			snapshot->process_count ? "some processes themselves"
						: "the process itself");
	fprintf(out, "%.1f s", (double)meta->duration_ns / 1e9);
	if (meta->at_peak) {
		peak_print(out, snapshot);
		return;
	}
	/* The table of processes says how each of several ended. */
	if (!snapshot->process_count && meta->has_exited && WIFSIGNALED((int)meta->wait_status)) {
		fprintf(out, ", %s", process_state(state, meta));
		return;
	}
	for (size_t i = 0; !snapshot->process_count && i < ARRAY_SIZE(moments); i++)
		if (!strcmp(meta->moment, moments[i].moment))
			fputs(moments[i].text, out);
}

/* Says what the figures mean: growth mode counts pools, not blocks. */
static void growth_print(FILE *out, const struct snapshot_meta *meta, int brief)
{
	if (brief) {
		fputs("Lines that took new pools, maybe for what they drop again: no list of "
		      "leaks\n",
		      out);
		return;
	}

	fprintf(out,
		"Where the heap grew: sizes are of whole pools (%s each), charged to the line that "
		"first used them%s\n"
		"These lines took pools, maybe for what they drop again: it is no list of leaks; "
		"tracer heap --by path, and heap diff of two dumps, show what stays and what holds "
		"it\n",
		meta->pool_bytes ? SIZE_TEXT(meta->pool_bytes) : "of unknown size",
		meta->large_skipped ? ", not of objects"
				    : ", and of blocks of more than 512 bytes");
}

/* How right ages are. */
static void ages_print(FILE *out, const struct snapshot_meta *meta)
{
	char text[RECORDING_DURATION_BYTES];

	if (!meta->ages)
		return;
	fprintf(out, "%s: since the allocation or last realloc, to %.0f %% and %.2f s",
		meta->of_ages ? "Only blocks of the ages that were asked for" : "Ages",
		100 * AGE_ROUNDING + 0.5, (double)meta->ages_error_ns / 1e9);
	if (meta->windows.count)
		fputs(", the longest time for which windows that have shown blocks stand", out);
	if (!meta->from_start)
		fprintf(out, "; blocks from before the trace are at least %s old",
			recording_duration_text(text, meta->duration_ns));
	putc('\n', out);
}

static void title_print(FILE *out, const char *prefix, const char *name,
			const struct snapshot *snapshot, int brief)
{
	const struct snapshot_meta *meta = &snapshot->meta;
	int growth = snapshot_is_growth(snapshot);

	fputs(prefix, out);
	if (name) {
		text_print(out, name);
		fputs(": ", out);
	}
	if (!strcmp(meta->mode, SNAPSHOT_TRACEMALLOC))
		fprintf(out, "taken by Python's tracemalloc, at most %u frame%s a traceback",
			meta->traceback_limit, meta->traceback_limit == 1 ? "" : "s");
	else
		origin_print(out, snapshot, brief);
	putc('\n', out);
	modes_print(out, meta);
	if (growth)
		growth_print(out, meta, brief);
	ages_print(out, meta);
	if (meta->of_app)
		fputs("Tracebacks begin at their most recent frame of the application, if they "
		      "have one (export --app)\n",
		      out);
}

void report_title_print(FILE *out, const struct snapshot *snapshot)
{
	title_print(out, "tracer: ", NULL, snapshot, 0);
}

void report_titles_print(FILE *out, const struct snapshot *snapshot, const struct report_opts *opts)
{
	title_print(out, "tracer: ", opts->name, snapshot, opts->brief != 0);
	if (!opts->old)
		return;
	title_print(out, "compared to: ", opts->old_name, opts->old, opts->brief != 0);
	if (snapshot->meta.traceback_limit != opts->old->meta.traceback_limit)
		fprintf(out,
			"The traceback limits differ, %u frames and %u: only groups by the most "
			"recent frame are comparable\n",
			snapshot->meta.traceback_limit, opts->old->meta.traceback_limit);
}

/* --- report text ------------------------------------------------------------------------------ */

/* How and where a report is printed. */
struct text_page {
	FILE *out;
	const struct report_opts *opts;
	struct source *source;               /* NULL: no source lines */
	const struct statistics *statistics; /* of the layer being printed */
};

static void frame_print(FILE *out, const struct snapshot *snapshot,
			const struct snapshot_frame *frame)
{
	text_print(out, strings_get(snapshot->strings, frame->filename));
	fprintf(out, ":%u", frame->line);
}

static void function_print(FILE *out, const char *function)
{
	if (function && function[0]) {
		fputs(" in ", out);
		text_print(out, function);
	}
}

/* An entry's name: its file, with the line, the function, or both. */
static void place_print(FILE *out, const struct statistic *entry,
			const struct snapshot_frame *frame, enum group_by by)
{
	if (by == GROUP_FUNCTION)
		text_print(out, strings_get(entry->snapshot->strings, frame->filename));
	else
		frame_print(out, entry->snapshot, frame);
	function_print(out, report_function(entry->snapshot, frame));
}

/* Prints one standard error; an exact figure has none. */
static void size_error_print(FILE *out, uint64_t error)
{
	if (error)
		fprintf(out, " ± %s", SIZE_TEXT(error));
}

static void count_error_print(FILE *out, uint64_t error)
{
	if (error)
		fprintf(out, " ± %" PRIu64, error);
}

/*
 * "size=…, count=…" in the format of Statistic.__str__() and StatisticDiff.__str__(). Estimates are
 * marked: "size=~10 KiB ± 2 KiB", in a comparison "size=~10 KiB (+5 KiB ± 2 KiB)".
 */
static void figures_print(FILE *out, const struct statistic *sums, int compared)
{
	const struct statistic_error diff = report_error_diff(sums);
	char text[32];

	fprintf(out, "size=%s%s", sums->error.size ? "~" : "", size_text(text, sums->size));
	if (compared) {
		fprintf(out, " (%s", size_format(text, (double)statistic_size_diff(sums), 1));
		size_error_print(out, diff.size);
		putc(')', out);
	} else {
		size_error_print(out, sums->error.size);
	}
	fprintf(out, ", count=%s%" PRIu64, sums->error.count ? "~" : "", sums->count);
	if (compared) {
		fprintf(out, " (%+" PRId64, statistic_count_diff(sums));
		count_error_print(out, diff.count);
		putc(')', out);
	} else {
		count_error_print(out, sums->error.count);
	}
}

static void sums_print(const struct text_page *page, const struct statistic *sums)
{
	char text[32];

	figures_print(page->out, sums, page->opts->old != NULL);
	if (sums->count)
		fprintf(page->out, ", average=%s",
			size_format(text, (double)sums->size / (double)sums->count, 0));
	report_extra_print(page->out, sums, page->statistics, page->opts->old != NULL);
	report_ages_print(page->out, sums, page->statistics);
}

static void source_line_print(const struct text_page *page, const struct snapshot *snapshot,
			      const struct snapshot_frame *frame, const char *indent)
{
	if (page->source)
		source_print(page->source, page->out, indent,
			     strings_get(snapshot->strings, frame->filename), frame->line);
}

static void traceback_print(const struct text_page *page, const struct statistic *entry)
{
	const struct snapshot *snapshot = entry->snapshot;
	const struct snapshot_traceback *traceback = &snapshot->tracebacks[entry->traceback];
	uint32_t nframe;
	const struct snapshot_frame *frames = statistic_frames(entry, GROUP_TRACEBACK, &nframe);

	for (uint32_t i = 0; i < nframe; i++) {
		const struct snapshot_frame *frame = &frames[i];

		fputs("    ", page->out);
		frame_print(page->out, snapshot, frame);
		function_print(page->out, strings_get(snapshot->strings, frame->function));
		fputs(frame->inlined ? " (inlined)\n" : "\n", page->out);
		source_line_print(page, snapshot, frame, "        ");
	}
	if (traceback->total != SNAPSHOT_TOTAL_UNKNOWN && traceback->total > traceback->nframe)
		fprintf(page->out, "    … %u older frames not kept\n",
			traceback->total - traceback->nframe);
}

/* Does the "Not seen" part give the reasons for this <unknown> frame? */
static bool is_explained(const struct snapshot *snapshot, const struct snapshot_frame *frame)
{
	uint64_t blocks = 0;

	if (strcmp(strings_get(snapshot->strings, frame->filename), "<unknown>") != 0)
		return 0;
	for (size_t i = 0; i < SNAPSHOT_UNKNOWNS; i++)
		blocks |= snapshot->meta.unknown[i].blocks;
	return blocks != 0;
}

static void entry_figures_print(const struct text_page *page, const struct statistic *entry)
{
	fputs(": ", page->out);
	sums_print(page, entry);
	holders_print(page->out, entry, page->opts->by);
	if (entry->rounded > 0)
		fprintf(page->out, ", rounded=%s%.0f",
			snapshot_is_estimated(&entry->snapshot->meta) ? "~" : "", entry->rounded);
}

static void entry_print(const struct text_page *page, const struct statistic *entry)
{
	int owner = group_is_owner(page->opts->by);
	uint32_t nframe;
	const struct snapshot_frame *frames = statistic_frames(entry, page->opts->by, &nframe);

	if (page->opts->tables)
		report_table_figures(page->out, page->opts, page->statistics, entry);
	else
		fputs("  ", page->out);
	if (owner)
		owner_print(page->out, entry->process, page->opts->by);
	else
		place_print(page->out, entry, &frames[0], page->opts->by);
	if (!page->opts->tables)
		entry_figures_print(page, entry);
	if (entry->outside)
		fputs(", outside the application", page->out);
	if (!owner && is_explained(entry->snapshot, &frames[0]))
		fputs(" (why: see \"at <unknown>\" below)", page->out);
	putc('\n', page->out);
	if (page->opts->by == GROUP_TRACEBACK)
		traceback_print(page, entry);
	else if (!owner)
		source_line_print(page, entry->snapshot, &frames[0], "    ");
	if (page->opts->notes)
		page->opts->notes->entry(page->opts->notes->context, NULL, entry);
}

/*
 * In a sample the variance of the rest is the total's less that of the entries. Windows know the
 * total better than the entries: what is uncertain of these is uncertain of the rest.
 */
static void error_subtract(uint64_t *from, uint64_t part, const struct snapshot *snapshot)
{
	double sign = snapshot->meta.windows.count ? 1 : -1;
	double rest = (double)*from * (double)*from + sign * (double)part * (double)part;

	*from = rest > 0 ? (uint64_t)ceil(sqrt(rest)) : 0;
}

static void entry_subtract(struct statistic *rest, const struct statistic *entry)
{
	subtract(&rest->size, entry->size);
	subtract(&rest->count, entry->count);
	subtract(&rest->old_size, entry->old_size);
	subtract(&rest->old_count, entry->old_count);
	report_extra_subtract(&rest->extra, &entry->extra);
	report_extra_subtract(&rest->old_extra, &entry->old_extra);
	error_subtract(&rest->error.size, entry->error.size, entry->snapshot);
	error_subtract(&rest->error.count, entry->error.count, entry->snapshot);
	error_subtract(&rest->old_error.size, entry->old_error.size, entry->snapshot);
	error_subtract(&rest->old_error.count, entry->old_error.count, entry->snapshot);
}

static void others_print(const struct text_page *page, const struct statistics *statistics,
			 size_t shown)
{
	struct statistic rest = report_total(statistics);

	if (shown == statistics->count)
		return;
	for (size_t i = 0; i < shown; i++)
		entry_subtract(&rest, &statistics->entries[i]);
	/* cumulative entries overlap: there is no rest */
	if (page->opts->tables && !page->opts->cumulative) {
		report_table_figures(page->out, page->opts, statistics, &rest);
		fprintf(page->out, "%zu other%s\n", statistics->count - shown,
			statistics->count - shown > 1 ? "s" : "");
		return;
	}
	fprintf(page->out, "  %zu other", statistics->count - shown);
	if (!page->opts->cumulative) {
		fputs(": ", page->out);
		sums_print(page, &rest);
	}
	putc('\n', page->out);
}

/* The words for a layer. */
struct words {
	const char *heading, *total, *note;
};

static const struct words first_words = {"", "Total", ""};
static const struct words layer_words[SNAPSHOT_LAYERS] = {
	[EVENT_LAYER_PYTHON] = {"Python's allocators, ", "Total of Python's allocators", ""},
	[EVENT_LAYER_NATIVE] =
		{"Native blocks (malloc and related functions), ", "Total native",
		 "; it includes what Python requests from malloc: do not add up the totals"},
	[SNAPSHOT_OLDER] = {"Older than the trace, by likeness, ", "Total older, by likeness", ""},
	[EVENT_LAYER_MMAP] = {"Memory mapped (mmap, brk), ", "Total mapped",
			      "; it contains the blocks: do not add up the totals"},
	[EVENT_LAYER_PAGES] = {"Resident pages, ", "Total resident", ""},
};

static void heading_print(const struct text_page *page, const struct statistics *statistics,
			  size_t shown, const char *what)
{
	static const char *const names[] = {"files",     "lines",    "functions", "tracebacks",
					    "processes", "commands", "containers"};
	static const char *const singular[] = {"file", "line", "function"};
	const struct report_opts *opts = page->opts;
	static const char *const orders[] = {
		[SORT_SIZE] = "size",
		[SORT_ALLOCATED] = "allocated size",
		[SORT_TEMPORARY] = "number of temporary blocks",
	};
	const char *what_by = opts->sort == SORT_TEMPORARY && statistics->temporary_by_walk
				      ? "number of short-lived blocks"
				      : orders[opts->sort];
	const char *order = opts->old ? " difference" : "";
	FILE *out = page->out;

	fputs(opts->color ? "\033[1m" : "", out);
	fputs(what, out);
	if (shown < statistics->count)
		fprintf(out, "%s %zu %s of %zu by %s%s", *what ? "top" : "Top", shown,
			names[opts->by], statistics->count, what_by, order);
	else
		fprintf(out, "%s %zu %s by %s%s", *what ? "all" : "All", statistics->count,
			names[opts->by], what_by, order);
	if (filters_any(opts->filters))
		fputs(statistics->count ? ", of the blocks that pass the filters"
					: ": no block passes the filters",
		      out);
	if (opts->cumulative)
		fprintf(out, ", cumulative (a block counts once for every %s of %s)",
			singular[opts->by],
			report_is_of_app(opts) ? "the application in its traceback"
					       : "its traceback");
	else if (report_is_of_app(opts))
		fputs(", at the most recent frame of the application", out);
	if (opts->by == GROUP_TRACEBACK)
		fputs(", most recent frame first", out);
	fputs(opts->color ? "\033[0m\n" : "\n", out);
}

/* "size=…, count=…" for a part of the totals. */
static void part_print(FILE *out, const struct statistic_sums *part)
{
	const struct statistic sums = report_part(part);

	figures_print(out, &sums, 0);
}

/* The blocks that --app could not charge to the application. */
static void outside_print(const struct text_page *page, const struct snapshot *snapshot,
			  const struct statistics *statistics)
{
	const struct statistic_sums *outside = &statistics->parts[PART_OUTSIDE];
	const struct statistic_sums *cut = &statistics->parts[PART_OUTSIDE_CUT];
	uint32_t limit = snapshot->meta.traceback_limit;

	if (!report_is_of_app(page->opts))
		return;
	fputs("Without a frame of the application: ", page->out);
	part_print(page->out, outside);
	if (cut->count && limit > 1) {
		fputs("; of these ", page->out);
		part_print(page->out, cut);
		fprintf(page->out,
			" in tracebacks of more than the %u frames kept (tracer -n N keeps more)",
			limit);
	}
	putc('\n', page->out);
	if (limit == 1)
		fputs("Only one frame of each traceback is kept: a block is charged to the "
		      "application only if that frame is the application's (tracer -n N keeps "
		      "more)\n",
		      page->out);
}

/* Does its error exceed it, because too few windows have shown it? */
static bool is_unsure(const struct text_page *page, const struct statistic *entry)
{
	return entry->snapshot->meta.windows.count && !page->opts->old &&
	       entry->error.size > entry->size;
}

/* Prints the first entries, but for those that are too unsure, which are told by their number. */
static void entries_print(const struct text_page *page, const struct statistics *statistics,
			  size_t shown)
{
	size_t unsure = 0;

	for (size_t i = 0; i < shown; i++) {
		if (is_unsure(page, &statistics->entries[i]))
			unsure++;
		else
			entry_print(page, &statistics->entries[i]);
	}
	if (unsure && page->opts->tables)
		fprintf(page->out, "  %zu whose errors exceed their sizes are not shown\n", unsure);
	else if (unsure)
		fprintf(page->out,
			"  %zu of these had too few windows, with errors above their sizes: a "
			"longer trace tells more (--format json has them)\n",
			unsure);
}

/* Only exact mode traces the peak; the others know the highest value that a heap walk has found. */
static bool peak_is_least(const struct snapshot *snapshot)
{
	return !strcmp(snapshot->meta.mode, "census") || snapshot->meta.windows.count ||
	       snapshot_is_growth(snapshot);
}

/* The row of a table. */
static void total_row_print(const struct text_page *page, const struct snapshot *snapshot,
			    const struct statistics *statistics, const struct words *words)
{
	const struct snapshot_meta *meta = &snapshot->meta;
	const struct statistic total = report_total(statistics);
	char text[SIZE_TEXT_MAX];

	report_table_figures(page->out, page->opts, statistics, &total);
	fputs("Total", page->out);
	if (words != &layer_words[SNAPSHOT_OLDER] && meta->peak_bytes > total.size)
		fprintf(page->out, ", peak %s%s", peak_is_least(snapshot) ? "at least " : "",
			size_text(text, meta->peak_bytes));
	if (words == &first_words && report_is_whole(snapshot, page->opts) && meta->rss_bytes)
		fprintf(page->out, ", RSS %s", size_text(text, meta->rss_bytes));
	if (statistics->parts[PART_INHERITED].size)
		fprintf(page->out, ", inherited %s",
			size_text(text, statistics->parts[PART_INHERITED].size));
	if (words->note[0])
		fprintf(page->out, "\n  %s", words->note + strlen("; "));
	putc('\n', page->out);
}

static void total_print(const struct text_page *page, const struct snapshot *snapshot,
			const struct statistics *statistics, const struct words *words)
{
	const struct report_opts *opts = page->opts;
	const struct statistic total = report_total(statistics);
	char text[SIZE_TEXT_MAX];

	fprintf(page->out, "%s: ", words->total);
	figures_print(page->out, &total, opts->old != NULL);
	if (snapshot->meta.peak_bytes)
		fprintf(page->out, " (peak size%s%s%s)",
			peak_is_least(snapshot) ? " at least " : "=",
			snapshot_is_estimated(&snapshot->meta) ? "~" : "",
			size_text(text, snapshot->meta.peak_bytes));
	report_extra_print(page->out, &total, statistics, opts->old != NULL);
	report_ages_print(page->out, &total, statistics);
	if (statistics->parts[PART_INHERITED].count) {
		fputs("; inherited by forked processes: ", page->out);
		part_print(page->out, &statistics->parts[PART_INHERITED]);
		fputs(" (--no-inherited excludes it)", page->out);
	}
	fputs(words->note, page->out);
	if (words == &layer_words[SNAPSHOT_OLDER])
		windows_older_print(page->out, &snapshot->meta);
	putc('\n', page->out);
}

static void statistics_print(struct text_page *page, const struct snapshot *snapshot,
			     const struct statistics *statistics, const struct words *words)
{
	const struct report_opts *opts = page->opts;
	size_t shown = report_shown(statistics, opts);
	/* A table without rows is none. */
	int tables = opts->tables && shown;

	page->statistics = statistics;
	if (opts->brief && !statistics->count) {
		fprintf(page->out, "%s%so line is known of any block\n", words->heading,
			words->heading[0] ? "n" : "N");
		return;
	}
	heading_print(page, statistics, shown, words->heading);
	if (tables)
		report_table_titles(page->out, opts, statistics);
	entries_print(page, statistics, shown);
	others_print(page, statistics, shown);
	/* The entries of cumulative statistics do not add up to it. */
	(tables ? total_row_print : total_print)(page, snapshot, statistics, words);
	outside_print(page, snapshot, statistics);
}

/* Is there an older block, or one that could not be attributed? */
static int older_known(const struct report_layer *layer)
{
	return layer->layer.trace_count || layer->layer.meta.windows.old_unseen_blocks ||
	       (layer->opts.old && layer->old.trace_count);
}

/*
 * A layer beside the first. Its total is separate, because blocks of one layer lie in blocks of the
 * next.
 */
static int layer_print(const struct text_page *page, const struct snapshot *snapshot,
		       uint32_t which)
{
	struct report_layer layer;
	struct text_page below = *page;
	struct statistics statistics;

	if (!report_layer(snapshot, page->opts, which, &layer))
		return 0;
	if (which == SNAPSHOT_OLDER && !older_known(&layer))
		return 0;
	int err = report_statistics(&layer.layer, &layer.opts, &statistics);
	if (err)
		return err;
	below.opts = &layer.opts;
	statistics_print(&below, &layer.layer, &statistics, &layer_words[which]);
	statistics_free(&statistics);
	return 0;
}

/* Seconds until the largest lines are known well enough; of no line, that says nothing. */
static double windows_more(const struct snapshot *snapshot, const struct statistics *statistics)
{
	double error = precision_of(statistics);

	return isinf(error) ? 0 : precision_more(error, windows_seconds(snapshot), PRECISION_AIM);
}

/* Is there a table of the processes? On a page workers of one program are named in its title. */
static bool has_processes(const struct snapshot *snapshot, const struct report_opts *opts)
{
	return snapshot->process_count && !opts->old && !group_is_owner(opts->by) &&
	       !(opts->brief && processes_are_alike(snapshot));
}

/* How many tables there are beside that of the first layer's entries. */
static size_t tables_extra(const struct snapshot *snapshot, const struct report_opts *opts)
{
	size_t count = has_processes(snapshot, opts) != 0;
	struct report_layer layer;

	for (uint32_t which = 0; which <= SNAPSHOT_OLDER; which++)
		count += report_layer(snapshot, opts, which, &layer) &&
			 (which != SNAPSHOT_OLDER || older_known(&layer));
	return count;
}

#define PAGE_LINES  6u /* of the head and the foot */
#define TABLE_LINES 4u /* the heading, the titles, the others and the total */

/* The rows of the first table, if the page has that many others; *beside: of each of these. */
static size_t page_rows(size_t tables, size_t *extra)
{
	size_t used = PAGE_LINES + TABLE_LINES * (tables + 1);
	size_t rows = used < REPORT_BRIEF_LINES ? REPORT_BRIEF_LINES - used : 0;

	*extra = tables == 1 ? 3 : tables == 2 ? 2 : 1;
	return rows > *extra * (tables + 1) ? rows - *extra * tables : *extra;
}

/* The last lines of a page. */
static void foot_brief_print(const struct text_page *page, const struct snapshot *snapshot,
			     const struct statistics *statistics)
{
	const struct report_opts *opts = page->opts;
	struct statistics old;
	struct report_opts of_old = *opts;

	quality_print(page->out, snapshot, statistics, opts->old ? "New figures" : "Figures",
		      opts->brief, opts->color);
	if (!opts->old)
		return;
	of_old.old = NULL;
	if (report_statistics(opts->old, &of_old, &old))
		return;
	quality_print(page->out, opts->old, &old, "Old figures", opts->brief, opts->color);
	statistics_free(&old);
}

static void foot_print(const struct text_page *page, const struct snapshot *snapshot)
{
	const struct report_opts *opts = page->opts;
	struct not_seen_opts caveats = {.color = opts->color,
					.whole = report_is_whole(snapshot, opts)};

	caveats.title = opts->old ? "Not seen by the new one" : "Not seen";
	not_seen_print(page->out, snapshot, &caveats);
	if (page->source)
		source_missing_print(page->source, page->out);
	caveats.title = "Not seen by the old one";
	if (opts->old)
		not_seen_print(page->out, opts->old, &caveats);
}

static int page_print(struct text_page *page, const struct snapshot *snapshot,
		      const struct statistics *statistics)
{
	const struct report_opts *opts = page->opts;
	struct report_opts first = *opts, extra = *opts;
	struct text_page below = *page;
	int err = 0;

	if (opts->brief && !opts->top_asked) {
		size_t rows = page_rows(tables_extra(snapshot, opts), &extra.top);

		first.top = rows < opts->top ? rows : opts->top;
	}
	below.opts = &extra;
	inconsistencies_print(page->out, snapshot, opts->brief != 0);
	report_titles_print(page->out, snapshot, opts);
	if (has_processes(snapshot, opts))
		err = processes_print(page->out, snapshot, &extra);
	if (err)
		return err;
	if (opts->notes)
		opts->notes->head(opts->notes->context, NULL);
	page->opts = &first;
	statistics_print(page, snapshot, statistics, &first_words);
	page->opts = opts;
	if (!opts->brief)
		windows_print(page->out, &snapshot->meta, "Windows",
			      opts->old ? 0 : windows_more(snapshot, statistics));
	if (!opts->brief && opts->old)
		windows_print(page->out, &opts->old->meta, "Windows of the old one", 0);
	for (uint32_t layer = 0; layer <= SNAPSHOT_OLDER && !err; layer++)
		err = layer_print(&below, snapshot, layer);
	if (err)
		return err;
	if (opts->brief)
		foot_brief_print(page, snapshot, statistics);
	else
		foot_print(page, snapshot);
	if (opts->tables && opts->next)
		fprintf(page->out, "next: %s\n", opts->next);
	return 0;
}

int report_text(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out)
{
	struct report_opts how = *opts;
	struct text_page page = {.opts = &how};
	struct terminal terminal;
	struct statistics statistics;
	int err;

	if (group_is_histogram(opts->by)) {
		terminal_begin(&terminal, &out);
		err = histogram_text(snapshot, opts, out);
		terminal_end(&terminal);
		return err ?: report_end(out);
	}
	how.once = 1;
	err = report_statistics(snapshot, &how, &statistics);
	if (err)
		return err;
	if (opts->source)
		err = source_new(&page.source, opts->roots);
	terminal_begin(&terminal, &out);
	page.out = out;
	err = err ?: page_print(&page, snapshot, &statistics);
	terminal_end(&terminal);
	source_free(page.source);
	statistics_free(&statistics);
	return err ?: report_end(out);
}
