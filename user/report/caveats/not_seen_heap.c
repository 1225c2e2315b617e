/* SPDX-License-Identifier: Apache-2.0 */
#include "report/caveats/not_seen_heap.h"

#include "util/size.h"
#include "util/text.h"

unsigned int not_seen_permille(uint64_t part, uint64_t whole)
{
	if (part >= whole)
		return 1000;
	return (unsigned int)((unsigned __int128)part * 1000 / whole);
}

/* The interpreter gives only the number of large blocks, at the start and now. */
static void large_print(FILE *out, const struct snapshot_meta *meta, const char *since)
{
	const struct snapshot_coverage *counts = &meta->coverage;
	char seen[32], grown[32];

	if (meta->large_skipped) {
		fprintf(out,
			"blocks of more than %u bytes are not traced individually "
			"(--large-blocks), their number grew by %s since the %s; ",
			EVENT_SMALL_BYTES, text_count(grown, counts->large_new), since);
		return;
	}
	if (!counts->large_new && !counts->large_seen)
		return;
	if (counts->large_seen >= counts->large_new)
		fprintf(out,
			"%s blocks of more than %u bytes are traced, their number grew by %s since "
			"the %s; ",
			text_count(seen, counts->large_seen), EVENT_SMALL_BYTES,
			text_count(grown, counts->large_new), since);
	else
		fprintf(out,
			"only %s blocks of more than %u bytes are traced, but their number grew by "
			"%s since the %s; ",
			text_count(seen, counts->large_seen), EVENT_SMALL_BYTES,
			text_count(grown, counts->large_new), since);
}

/* What is known of large blocks that nobody has seen, such as the items of an old list. */
static void large_unseen_print(FILE *out, const struct snapshot_meta *meta, const char *which)
{
	char text[SIZE_TEXT_MAX];

	if (meta->windows.malloc_blocks) {
		fprintf(out,
			"; estimates cover them by size, as far as windows have shown such sizes: "
			"malloc has given out %s blocks of more than %u bytes, and what part of "
			"these are Python's is taken to be the same for all sizes",
			text_count(text, meta->windows.malloc_blocks), EVENT_SMALL_BYTES);
		return;
	}
	fprintf(out, "; %s are in no line, and their size is not known", which);
	if (meta->rss_bytes > meta->coverage.live_bytes)
		fprintf(out, " (of RSS, %s are outside pools)",
			size_text(text, meta->rss_bytes - meta->coverage.live_bytes));
}

uint64_t not_seen_sizeless(const struct snapshot_meta *meta)
{
	const struct snapshot_coverage *counts = &meta->coverage;
	const struct snapshot_windows *windows = &meta->windows;
	uint64_t unseen;

	if (!meta->coverage_known || windows->large || windows->malloc_blocks ||
	    counts->large_new <= counts->large_seen)
		return 0;
	unseen = counts->large_new - counts->large_seen;
	return unseen < windows->unseen_blocks ? unseen : windows->unseen_blocks;
}

static void large_windows_print(FILE *out, const struct snapshot_meta *meta)
{
	const struct snapshot_coverage *counts = &meta->coverage;
	uint64_t fresh = not_seen_sizeless(meta);
	char text[SIZE_TEXT_MAX], all[32];

	if (!meta->coverage_known || counts->large_blocks <= counts->large_seen)
		return;
	fprintf(out, "  large blocks: %s of %s that were passed on to malloc were not seen",
		text_count(text, counts->large_blocks - counts->large_seen),
		text_count(all, counts->large_blocks));
	if (fresh)
		fprintf(out,
			": at least %s were allocated since the trace began, and not traced; at "
			"most %s are older",
			text_count(text, fresh),
			text_count(all, counts->large_blocks - counts->large_seen - fresh));
	else
		fputs(meta->windows.large ? ", since they are older than the trace or were "
					    "allocated between windows"
					  : ", since they are older than the trace",
		      out);
	large_unseen_print(out, meta, fresh ? "these" : "those that are older");
	putc('\n', out);
}

static void coverage_print(FILE *out, const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;
	const char *kind = snapshot_is_growth(snapshot) ? "pool" : "small block";
	const char *since = meta->from_start ? "start" : "attach";
	char text[32];

	fputs("  coverage: ", out);
	if (meta->sample_bytes) {
		fputs("not applicable to a sample: the estimates cover all blocks\n", out);
		return;
	}
	if (meta->windows.count) {
		fputs("of small blocks: not applicable to windows, whose estimates cover all "
		      "blocks of the types that they have shown\n",
		      out);
		large_windows_print(out, meta);
		return;
	}
	if (!meta->coverage_known) {
		fputs("not measured (the heap was not read)\n", out);
		return;
	}
	large_print(out, meta, since);
	if (!meta->coverage.new_blocks) {
		fprintf(out, "no %s on the heap is new since the %s\n", kind, since);
		return;
	}
	unsigned int blocks =
		not_seen_permille(meta->coverage.seen_blocks, meta->coverage.new_blocks);
	unsigned int bytes = not_seen_permille(meta->coverage.seen_bytes, meta->coverage.new_bytes);
	fprintf(out,
		"%u.%u %% of the %s %ss (%u.%u %% of bytes) that are new on the heap since the "
		"%s\n",
		blocks / 10, blocks % 10, text_count(text, meta->coverage.new_blocks), kind,
		bytes / 10, bytes % 10, since);
}

/* The blocks of the whole heap: how many are traced, older than the trace, or unseen. */
static void heap_print(FILE *out, const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;
	const struct snapshot_coverage *counts = &meta->coverage;
	char text[32];

	if (!meta->coverage_known)
		return;
	fprintf(out, "  heap: %s %s: ", text_count(text, counts->live_blocks),
		snapshot_is_growth(snapshot) ? "pools in use" : "blocks in pools");
	fprintf(out, "%s %s, ", text_count(text, counts->seen_blocks),
		meta->sample_bytes    ? "in the sample"
		: meta->windows.count ? "seen in windows"
				      : "traced");
	fprintf(out, "%s%s older than the trace, ", snapshot_is_estimated(meta) ? "at most " : "",
		text_count(text, counts->old_blocks));
	fprintf(out, "%s %s; ", text_count(text, counts->new_blocks - counts->seen_blocks),
		snapshot_is_estimated(meta) ? "others" : "unseen");
	fprintf(out, "%s blocks passed on to malloc; read in %.1f ms",
		text_count(text, counts->large_blocks), (double)counts->elapsed_ns / 1e6);
	if (counts->frozen_ns)
		fprintf(out, ", with the target stopped for %.1f ms",
			(double)counts->frozen_ns / 1e6);
	if (counts->pools_unreadable)
		fprintf(out,
			"; pools that could not be read: %s, where traced blocks are counted as "
			"live",
			text_count(text, counts->pools_unreadable));
	putc('\n', out);
}

/* The kernel's heap walk at the end has reached its limit. */
static void cut_print(FILE *out, const struct snapshot_ending *ending)
{
	char text[32];

	if (ending->failed != EVENT_CENSUS_CUT)
		return;
	fprintf(out, "  of the heap's arenas, %s were read at the end, ",
		text_count(text, ending->arenas));
	fprintf(out, "at most %s were not: the next line is about the small blocks there\n",
		text_count(text, ending->arenas_unread));
}

/*
 * The time between the last heap walk and the end of the trace, or of a target that ended by
 * itself.
 */
void not_seen_unread_heap_print(FILE *out, const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;
	int growth = snapshot_is_growth(snapshot);

	/* remarks_print() says it for each of several processes. */
	if (snapshot->process_count || !snapshot_is_unread(meta))
		return;
	cut_print(out, &meta->ending);
	if (meta->coverage_known)
		fprintf(out, "  the heap was last read %.1f ms before the end: %s\n",
			(double)meta->unread_ns / 1e6,
			growth ? "pools given back since then are counted as in use"
			       : "small blocks freed since then are counted as live");
	else
		fprintf(out, "  the heap was not read before the end: %s\n",
			growth ? "pools that were given back are counted as in use"
			       : "small blocks that were freed are counted as live");
}

void not_seen_coverage_print(FILE *out, const struct snapshot *snapshot)
{
	coverage_print(out, snapshot);
	heap_print(out, snapshot);
}
