/* SPDX-License-Identifier: Apache-2.0 */
#include "report/caveats/quality.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "report/caveats/completeness.h"
#include "report/caveats/not_seen.h"
#include "report/caveats/windows.h"
#include "snapshot/group/precision.h"
#include "util/one_line.h"
#include "util/size.h"
#include "util/text.h"

#define LOST_SHARE 0.005 /* of the events: less is told by their number */
#define COVERED    990u  /* permille of the new blocks: less is told */

/* "±8 % for the largest lines; about 40 s more for ±5 %" */
static void error_add(struct one_line *line, const struct snapshot *snapshot,
		      const struct statistics *statistics)
{
	double error, aim;
	char more[WINDOWS_MORE_BYTES] = "";

	if (!statistics || !statistics->sampled) {
		if (snapshot_is_estimated(&snapshot->meta))
			one_line_add(line, "estimates");
		return;
	}
	error = precision_of(statistics);
	aim = precision_next(error);
	if (isinf(error)) {
		one_line_add(line, "no line is known yet: a longer trace tells");
		return;
	}
	if (aim > 0)
		windows_more_text(more, precision_more(error, windows_seconds(snapshot), aim), aim);
	one_line_add(line, "±%.*f %% for the largest lines", error < 0.01 ? 1 : 0, error * 100);
	if (more[0])
		one_line_add(line, "%s", more);
}

/* An event is an allocation or a free. */
static void lost_add(struct one_line *line, const struct snapshot *snapshot,
		     const struct statistics *statistics)
{
	uint64_t lost = snapshot_lost_events(snapshot);
	double seen = 0;

	if (!lost)
		return;
	if (statistics && statistics->allocated_known && !statistics->sampled)
		seen = 2.0 * (double)statistics->extra.allocated.count -
		       (double)statistics->total_count;
	if (seen > 0 && (double)lost >= LOST_SHARE * seen)
		one_line_add(line, "%.0f %% of events lost",
			     100 * (double)lost / ((double)lost + seen));
	else
		one_line_add(line, "%s event%s lost", COUNT_TEXT(lost), lost == 1 ? "" : "s");
}

static size_t processes_unread(const struct snapshot *snapshot)
{
	size_t unread = 0;

	for (size_t i = 0; i < snapshot_process_count(snapshot); i++)
		unread += snapshot_is_unread(snapshot_process(snapshot, i)) != 0;
	return unread;
}

static void heap_add(struct one_line *line, const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;
	const struct snapshot_coverage *counts = &meta->coverage;
	unsigned int seen = not_seen_permille(counts->seen_blocks, counts->new_blocks);
	size_t unread = processes_unread(snapshot);

	if (unread && snapshot->process_count)
		one_line_add(line, "the heaps of %zu of %zu processes not read at the end", unread,
			     snapshot->process_count);
	else if (unread)
		one_line_add(line, "the heap not read at the end: freed blocks count as live");
	if (meta->coverage_known && !snapshot_is_estimated(meta) && seen < COVERED)
		one_line_add(line, "%u.%u %% of new blocks in it", seen / 10, seen % 10);
}

static void blocks_add(struct one_line *line, const struct snapshot_meta *meta)
{
	uint64_t unknown = 0, cut = stack_ends_cut_count(&meta->stack_ends);
	char text[32];

	for (size_t i = 0; i < SNAPSHOT_UNKNOWNS; i++)
		unknown += meta->unknown[i].blocks;
	if (meta->blocks_dropped)
		one_line_add(line, "%s blocks dropped (--budget)",
			     COUNT_TEXT(meta->blocks_dropped));
	if (meta->records_malformed)
		one_line_add(line, "%s malformed records", COUNT_TEXT(meta->records_malformed));
	if (meta->windows.unseen_blocks) {
		text_count(text, meta->windows.unseen_blocks);
		one_line_add(line, "%s new blocks (%s) in no line", text,
			     SIZE_TEXT(meta->windows.unseen_bytes));
	}
	if (unknown)
		one_line_add(line, "%s blocks without a line", COUNT_TEXT(unknown));
	if (cut)
		one_line_add(line, "%.1f %% of native stacks whole",
			     100 * (double)meta->stack_ends.whole /
				     (double)(meta->stack_ends.whole + cut));
}

static void older_add(struct one_line *line, const struct snapshot_meta *meta)
{
	const char *units = !strcmp(meta->mode, "growth") ? "pools" : "blocks";
	char text[32];

	if (meta->from_start || meta->windows.count)
		return;
	if (!meta->coverage_known) {
		one_line_add(line, "older %s not in it", units);
		return;
	}
	text_count(text, meta->coverage.old_blocks);
	one_line_add(line, "%s older %s (%s) not in it", text, units,
		     SIZE_TEXT(meta->coverage.old_bytes));
}

void quality_print(FILE *out, const struct snapshot *snapshot, const struct statistics *statistics,
		   const char *title, size_t width, int color)
{
	const struct snapshot_meta *meta = &snapshot->meta;
	struct one_line line = {0};
	char why[INCOMPLETE_WHY];

	if (!strcmp(meta->mode, SNAPSHOT_TRACEMALLOC)) {
		one_line_add(&line, "as tracemalloc took them, since it started");
	} else {
		error_add(&line, snapshot, statistics);
		lost_add(&line, snapshot, statistics);
		heap_add(&line, snapshot);
		blocks_add(&line, meta);
		if (!figures_are_complete(snapshot, why) && !line.count)
			one_line_add(&line, "%s", why);
		else if (!line.count)
			one_line_add(&line,
				     meta->from_start ? "complete" : "complete since the attach");
		older_add(&line, meta);
	}
	one_line_print(out, title, &line, width, color);
}
