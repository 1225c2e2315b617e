/* SPDX-License-Identifier: Apache-2.0 */
#include "report/caveats/completeness.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "report/caveats/inconsistencies.h"
#include "util/array.h"
#include "util/text.h"

/* Blocks that have a line, which is not known. Those without a Python frame have none. */
static uint64_t lines_unknown(const struct snapshot_meta *meta)
{
	uint64_t blocks = 0;

	for (size_t i = 0; i < SNAPSHOT_UNKNOWNS; i++)
		if (i != UNKNOWN_NO_FRAME)
			blocks += meta->unknown[i].blocks;
	return blocks;
}

/* What the counters of the whole snapshot say. */
static bool sums_are_complete(const struct snapshot *snapshot, char why[INCOMPLETE_WHY])
{
	const struct snapshot_meta *meta = &snapshot->meta;
	const struct {
		uint64_t count;
		const char *one, *many;
	} missing[] = {
		{snapshot_lost_events(snapshot), "event was lost", "events were lost"},
		{meta->records_malformed, "record was malformed", "records were malformed"},
		{meta->blocks_dropped, "block was dropped (--budget)",
		 "blocks were dropped (--budget)"},
		{meta->regions_dropped, "change of mapped memory was dropped",
		 "changes of mapped memory were dropped"},
		{meta->windows.unseen_blocks, "new block is in no line",
		 "new blocks are in no line: no window has shown their like"},
		{lines_unknown(meta), "block is at <unknown>", "blocks are at <unknown>"},
		{meta->coverage.pools_unreadable, "pool could not be read",
		 "pools could not be read"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(missing); i++)
		if (missing[i].count) {
			snprintf(why, INCOMPLETE_WHY, "%s %s", COUNT_TEXT(missing[i].count),
				 missing[i].count == 1 ? missing[i].one : missing[i].many);
			return 0;
		}
	return 1;
}

/* Was nothing traced for a time, for its cost (--overhead)? */
static bool was_off(const struct snapshot_meta *meta)
{
	for (uint32_t i = 0; i < meta->change_count && i < SNAPSHOT_CHANGES; i++)
		if (meta->changes[i].mode == EVENT_MODE_OFF)
			return 1;
	return 0;
}

static bool process_is_complete(const struct snapshot_meta *meta, char why[INCOMPLETE_WHY])
{
	const struct snapshot_coverage *counts = &meta->coverage;

	if (was_off(meta))
		snprintf(why, INCOMPLETE_WHY, "nothing was traced for a time");
	else if (meta->large_skipped)
		snprintf(why, INCOMPLETE_WHY, "blocks of more than %u bytes were not traced",
			 EVENT_SMALL_BYTES);
	else if (meta->parent && !snapshot_is_estimated(meta) &&
		 coverage_lacks_blocks(counts)) /* between the fork and its probes */
		snprintf(why, INCOMPLETE_WHY, "%s new blocks are in no line",
			 COUNT_TEXT(counts->new_blocks - counts->seen_blocks));
	else
		return !inconsistencies_first(meta, why, INCOMPLETE_WHY);
	return 0;
}

bool figures_are_complete(const struct snapshot *snapshot, char why[INCOMPLETE_WHY])
{
	char reason[INCOMPLETE_WHY - 32];

	if (!sums_are_complete(snapshot, why))
		return 0;
	for (size_t i = 0; i < snapshot_process_count(snapshot); i++) {
		const struct snapshot_meta *meta = snapshot_process(snapshot, i);

		if (process_is_complete(meta, why))
			continue;
		if (snapshot->process_count) {
			snprintf(reason, sizeof(reason), "%s", why);
			snprintf(why, INCOMPLETE_WHY, "PID %u: %s", meta->pid, reason);
		}
		return 0;
	}
	return 1;
}
