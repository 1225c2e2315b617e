/* SPDX-License-Identifier: Apache-2.0 */
#include "report/caveats/windows.h"

#include <inttypes.h>
#include <math.h>

#include "report/caveats/not_seen.h"
#include "snapshot/group/precision.h"
#include "util/size.h"
#include "util/text.h"

/* With fewer windows, errors are too small for lines that are seldom at work. */
#define FEW_WINDOWS 12
/* From so many seconds on, a time is in minutes; or it says nothing but that it is long. */
#define MINUTES_S 90
#define HOURS_S   7200

static double share(uint64_t part, uint64_t whole)
{
	return !whole ? 0 : part < whole ? (double)part / (double)whole : 1;
}

static double time_share(const struct snapshot_windows *windows)
{
	return share(windows->on_ns, windows->span_ns);
}

static double blocks_share(const struct snapshot_windows *windows)
{
	return share(windows->seen_blocks, windows->new_blocks);
}

/* Shares of 1 % and less have more digits. */
static void percent_print(FILE *out, double part)
{
	fprintf(out, "%.*f %%", part > 0 && part < 0.01 ? 2 : 1, part * 100);
}

static void unseen_print(FILE *out, uint64_t blocks, uint64_t bytes)
{
	fprintf(out, "%s blocks (%s)", COUNT_TEXT(blocks), SIZE_TEXT(bytes));
}

char *windows_more_text(char out[WINDOWS_MORE_BYTES], double more_s, double aim)
{
	out[0] = '\0';
	if (more_s >= HOURS_S)
		snprintf(out, WINDOWS_MORE_BYTES, "hours more for ±%.0f %%", aim * 100);
	else if (more_s >= MINUTES_S)
		snprintf(out, WINDOWS_MORE_BYTES, "about %.0f min more for ±%.0f %%", more_s / 60,
			 aim * 100);
	else if (more_s > 0)
		snprintf(out, WINDOWS_MORE_BYTES, "about %.0f s more for ±%.0f %%", ceil(more_s),
			 aim * 100);
	return out;
}

double windows_seconds(const struct snapshot *snapshot)
{
	uint64_t longest_ns = 0;

	for (size_t i = 0; i < snapshot_process_count(snapshot); i++) {
		const struct snapshot_meta *meta = snapshot_process(snapshot, i);
		uint64_t ns = meta->windows.count ? meta->windows.span_ns : meta->duration_ns;

		if (ns > longest_ns)
			longest_ns = ns;
	}
	return (double)longest_ns / 1e9;
}

void windows_print(FILE *out, const struct snapshot_meta *meta, const char *title, double more_s)
{
	const struct snapshot_windows *windows = &meta->windows;
	char more[WINDOWS_MORE_BYTES];

	if (!windows->count)
		return;
	fprintf(out, "%s: %s, probes on for ", title, COUNT_TEXT(windows->count));
	percent_print(out, time_share(windows));
	fputs(windows->large ? " of the time, those of large blocks, too; they have shown "
			     : " of the time; they have shown ",
	      out);
	percent_print(out, blocks_share(windows));
	fprintf(out,
		" of %s new blocks alive; the heap tells the total, windows how lines share it; ± "
		"is one standard error",
		COUNT_TEXT(windows->new_blocks));
	if (windows->count < FEW_WINDOWS)
		fputs(", too small with so few windows for a line that is seldom at work", out);
	if (windows_more_text(more, more_s, PRECISION_AIM)[0])
		fprintf(out, "; %s of the largest lines", more);
	if (windows->pool_blocks) {
		fputs("; seen only as their pools were taken into use, and in the lines that took "
		      "these: ",
		      out);
		unseen_print(out, windows->pool_blocks, windows->pool_bytes);
	}
	if (windows->unseen_blocks) {
		uint64_t sizeless = not_seen_sizeless(meta);

		fputs("; not seen in any window, and in no line: ", out);
		unseen_print(out, windows->unseen_blocks - sizeless, windows->unseen_bytes);
		if (sizeless)
			fprintf(out, ", and at least %s of more than %u bytes, of unknown size",
				COUNT_TEXT(sizeless), EVENT_SMALL_BYTES);
	}
	putc('\n', out);
}

void windows_allocated_print(FILE *out, const struct snapshot_meta *meta)
{
	const struct snapshot_windows *windows = &meta->windows;

	if (!windows->allocated_bytes)
		return;
	fprintf(out, "  allocated: %s%s in %.1f s, an estimate from windows, which have seen ",
		windows->allocated_high ? "" : "at least ", SIZE_TEXT(windows->allocated_bytes),
		(double)meta->allocated_ns / 1e9);
	percent_print(out, time_share(windows));
	if (windows->allocated_high)
		fprintf(out, " of that: %s to %s (95 %% interval)",
			SIZE_TEXT(windows->allocated_low), SIZE_TEXT(windows->allocated_high));
	else
		fprintf(out,
			" of that: %s or more (97.5 %%), since probes slow the process in windows "
			"by an unknown part",
			SIZE_TEXT(windows->allocated_low));
	fputs("; lines that work in no window are missing\n", out);
}

void windows_older_print(FILE *out, const struct snapshot_meta *meta)
{
	const struct snapshot_windows *windows = &meta->windows;

	fputs("; an assumption: such blocks are allocated there now", out);
	if (!windows->old_unseen_blocks)
		return;
	fputs("; of a type that no window has shown: ", out);
	unseen_print(out, windows->old_unseen_blocks, windows->old_unseen_bytes);
}

static void blocks_write(FILE *out, const char *name, uint64_t blocks, uint64_t bytes)
{
	fprintf(out, ", \"%s\": {\"size\": %" PRIu64 ", \"count\": %" PRIu64 "}", name, bytes,
		blocks);
}

void windows_json(FILE *out, const struct snapshot_meta *meta)
{
	const struct snapshot_windows *windows = &meta->windows;

	if (!windows->count)
		return;
	fprintf(out,
		"\"windows\": {\"count\": %" PRIu64 ", \"time_share\": %.6f, \"blocks_share\": "
		"%.6f, \"large_blocks\": %s, \"malloc_blocks\": %" PRIu64,
		windows->count, time_share(windows), blocks_share(windows),
		windows->large ? "true" : "false", windows->malloc_blocks);
	blocks_write(out, "pools", windows->pool_blocks, windows->pool_bytes);
	blocks_write(out, "unseen", windows->unseen_blocks, windows->unseen_bytes);
	fputs("}, ", out);
}

void windows_older_json(FILE *out, const struct snapshot_meta *meta)
{
	blocks_write(out, "unseen", meta->windows.old_unseen_blocks,
		     meta->windows.old_unseen_bytes);
}
