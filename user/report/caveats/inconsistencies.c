/* SPDX-License-Identifier: Apache-2.0 */
#include "report/caveats/inconsistencies.h"

#include <inttypes.h>
#include <string.h>

#include "util/json.h"
#include "util/text.h"

#define SENTENCE_MAX  320
#define SENTENCES_MAX 8
#define PROCESSES_MAX 10u
/* Blocks that are allocated and freed while the heap is read. */
#define SLACK_BLOCKS      16u
#define SLACK_SMALL_SHARE 100u
/* A program's own types may report any size. */
#define SLACK_TYPED_SHARE 50u
/* Where code is inlined, raw allocations are distinguished from others by their callers only. */
#define SLACK_LARGE_SHARE 10u

struct sentences {
	char text[SENTENCES_MAX][SENTENCE_MAX];
	size_t count;
};

#define SAY(sentences, ...)                                                                        \
	snprintf((sentences)->text[(sentences)->count++], SENTENCE_MAX, __VA_ARGS__)

static bool is_more(uint64_t a, uint64_t b, uint64_t share)
{
	return a > b && a - b > SLACK_BLOCKS + a / share;
}

static void large_judge(const struct snapshot_meta *meta, struct sentences *out)
{
	const struct snapshot_coverage *counts = &meta->coverage;

	/*
	 * 3.8 has one counter for all blocks. On a changing heap, the number of blocks outside
	 * pools that is derived from it belongs to no single moment.
	 */
	if (meta->large_skipped || meta->python_version >> 16 == 0x0308)
		return;
	if (is_more(counts->large_seen, counts->large_blocks, SLACK_LARGE_SHARE))
		SAY(out,
		    "%" PRIu64 " blocks of more than %u bytes are counted as live, but the "
		    "interpreter has only %" PRIu64 ": the others are dead, and make the "
		    "figures too large",
		    counts->large_seen, EVENT_SMALL_BYTES, counts->large_blocks);
	else if (is_more(counts->large_new, counts->large_seen, SLACK_LARGE_SHARE))
		SAY(out,
		    "the interpreter counts %" PRIu64
		    " more blocks of over %u bytes than at the start of the trace, but only "
		    "%" PRIu64 " of them are known: the others may not be in the report",
		    counts->large_new, EVENT_SMALL_BYTES, counts->large_seen);
}

bool coverage_lacks_blocks(const struct snapshot_coverage *counts)
{
	return is_more(counts->new_blocks, counts->seen_blocks, SLACK_SMALL_SHARE);
}

static void small_judge(const struct snapshot_meta *meta, struct sentences *out)
{
	const struct snapshot_coverage *counts = &meta->coverage;
	int growth = !strcmp(meta->mode, "growth");

	if (coverage_lacks_blocks(counts))
		SAY(out,
		    "of %" PRIu64 " %s that are new on the heap, only %" PRIu64
		    " were seen: the others are not in the report",
		    counts->new_blocks, growth ? "pools" : "small blocks", counts->seen_blocks);
}

/* For addresses that are known to hold a live block: is it the block that the table has there? */
static void types_judge(const struct snapshot_meta *meta, struct sentences *out)
{
	const struct snapshot_coverage *counts = &meta->coverage;

	if (counts->mistyped_blocks > SLACK_BLOCKS + counts->typed_blocks / SLACK_TYPED_SHARE)
		SAY(out,
		    "of %" PRIu64 " objects whose types give their sizes, %" PRIu64
		    " differ from the traced size: their blocks may be charged to the lines of "
		    "earlier ones",
		    counts->typed_blocks, counts->mistyped_blocks);
}

/* Only the heap shows which blocks have died. Without a walk, figures rest on earlier knowledge. */
static void unread_judge(const struct snapshot_meta *meta, struct sentences *out)
{
	int growth = !strcmp(meta->mode, "growth");
	const char *freed = growth ? "pools that were given back" : "small blocks that were freed";
	const char *counted = growth ? "in use" : "live";

	if (snapshot_is_unread(meta) && meta->coverage_known)
		SAY(out,
		    "the heap was last read %.1f ms before the end: %s since then are counted "
		    "as %s",
		    (double)meta->unread_ns / 1e6, freed, counted);
	else if (snapshot_is_unread(meta))
		SAY(out, "the heap was not read before the end: %s are counted as %s", freed,
		    counted);
	else if (meta->walks_dropped && !meta->coverage_known)
		SAY(out, "there was no memory to read the heap (--budget): %s are counted as %s",
		    freed, counted);
}

/*
 * A sample, windows, or a part of the time need not agree with the interpreter's counts; blocks
 * that a fork inherited are new to its heap only.
 */
static bool is_whole(const struct snapshot_meta *meta)
{
	return meta->coverage_known && !snapshot_is_estimated(meta) &&
	       strcmp(meta->mode, "windows") != 0 && !meta->change_count && !meta->parent;
}

static void judge(const struct snapshot_meta *meta, struct sentences *out, int unread)
{
	out->count = 0;
	if (meta->layer != EVENT_LAYER_PYTHON)
		return;
	if (is_whole(meta)) {
		large_judge(meta, out);
		small_judge(meta, out);
		types_judge(meta, out);
	}
	if (unread)
		unread_judge(meta, out);
	if (meta->ends_unseen)
		SAY(out,
		    "an allocator function that the interpreter exports leads to no probed site "
		    "(--dry-run names it): blocks that are allocated or freed through it may not "
		    "be seen");
	if (meta->reuse_unseen)
		SAY(out, "not all objects that are taken from free lists are seen: blocks may be "
			 "charged to the lines of earlier objects");
}

/* Returns how many there are; those from `most` on are not printed. */
static size_t process_print(FILE *out, const struct snapshot_meta *meta, int of_several,
			    size_t most, int unread)
{
	struct sentences sentences;

	judge(meta, &sentences, unread);
	for (size_t i = 0; i < sentences.count && i < most; i++) {
		fputs("Warning: ", out);
		if (of_several)
			fprintf(out, "PID %u: ", meta->pid);
		fprintf(out, "%s\n", sentences.text[i]);
	}
	return sentences.count;
}

static size_t is_doubted(const struct snapshot_meta *meta)
{
	struct sentences sentences;

	judge(meta, &sentences, 1);
	return sentences.count > 0;
}

static void first_print(FILE *out, const struct snapshot *snapshot)
{
	size_t count = snapshot_process_count(snapshot), found = 0;

	for (size_t i = 0; i < count; i++)
		found += process_print(out, snapshot_process(snapshot, i), count > 1, !found, 0);
	if (found > 1)
		fprintf(out, "Warning: %zu more of this kind (-v)\n", found - 1);
}

void inconsistencies_print(FILE *out, const struct snapshot *snapshot, int brief)
{
	size_t count = snapshot_process_count(snapshot), doubted = 0;

	if (brief) {
		first_print(out, snapshot);
		return;
	}

	for (size_t i = 0; i < count; i++) {
		const struct snapshot_meta *meta = snapshot_process(snapshot, i);

		if (is_doubted(meta) && doubted++ < PROCESSES_MAX)
			process_print(out, meta, count > 1, SENTENCES_MAX, 1);
	}
	if (doubted > PROCESSES_MAX)
		fprintf(out, "Warning: the same for %zu more processes (report --pid PID)\n",
			doubted - PROCESSES_MAX);
}

int inconsistencies_first(const struct snapshot_meta *meta, char *out, size_t capacity)
{
	struct sentences sentences;

	judge(meta, &sentences, 1);
	if (!sentences.count)
		return 0;
	snprintf(out, capacity, "%s", sentences.text[0]);
	return 1;
}

void inconsistencies_json(FILE *out, const struct snapshot_meta *meta)
{
	struct sentences sentences;

	judge(meta, &sentences, 1);
	if (!sentences.count)
		return;
	fputs("\"warnings\": [", out);
	for (size_t i = 0; i < sentences.count; i++) {
		fputs(i ? ", " : "", out);
		json_quote(out, sentences.text[i]);
	}
	fputs("], ", out);
}
