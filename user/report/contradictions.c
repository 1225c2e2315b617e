/* SPDX-License-Identifier: Apache-2.0 */
#include "report/contradictions.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "report/json.h"

#define SENTENCE_MAX  320
#define SENTENCES_MAX 8
#define PROCESSES_MAX 10u
/* What comes and goes while the heap is read. */
#define SLACK_BLOCKS      16u
#define SLACK_SMALL_SHARE 100u
/* Types that a program has made say what it likes. */
#define SLACK_TYPED_SHARE 50u
/* The raw allocator's are told from others by their callers, where code is inlined. */
#define SLACK_LARGE_SHARE 10u

struct sentences {
	char text[SENTENCES_MAX][SENTENCE_MAX];
	size_t count;
};

#define SAY(sentences, ...)                                                                        \
	snprintf((sentences)->text[(sentences)->count++], SENTENCE_MAX, __VA_ARGS__)

static int is_more(uint64_t a, uint64_t b, uint64_t share)
{
	return a > b && a - b > SLACK_BLOCKS + a / share;
}

static void large_judge(const struct snapshot_meta *meta, struct sentences *out)
{
	const struct snapshot_coverage *counts = &meta->coverage;

	/*
	 * 3.8 counts all blocks together: of a heap that changes, those that are not in pools are
	 * of no one moment.
	 */
	if (meta->large_skipped || meta->python_version >> 16 == 0x0308)
		return;
	if (is_more(counts->large_seen, counts->large_blocks, SLACK_LARGE_SHARE))
		SAY(out,
		    "%" PRIu64 " blocks of more than %u bytes stand as live, but the interpreter "
		    "counts %" PRIu64 " in all: the others are dead, and their sizes too much%s",
		    counts->large_seen, EVENT_SMALL_BYTES, counts->large_blocks,
		    strcmp(meta->mode, "exact") != 0 ? "; --mode exact follows every free" : "");
	else if (is_more(counts->large_new, counts->large_seen, SLACK_LARGE_SHARE))
		SAY(out,
		    "the interpreter counts %" PRIu64
		    " blocks of more than %u bytes more than at the start of the trace, but only "
		    "%" PRIu64 " are known to be of them: the others may be in no line",
		    counts->large_new, EVENT_SMALL_BYTES, counts->large_seen);
}

static void small_judge(const struct snapshot_meta *meta, struct sentences *out)
{
	const struct snapshot_coverage *counts = &meta->coverage;
	int growth = !strcmp(meta->mode, "growth");

	if (is_more(counts->new_blocks, counts->seen_blocks, SLACK_SMALL_SHARE))
		SAY(out,
		    "of %" PRIu64 " %s that are new on the heap only %" PRIu64
		    " were seen: the others are in no line",
		    counts->new_blocks, growth ? "pools" : "small blocks", counts->seen_blocks);
}

/*
 * Of blocks whose place is known to be a live block's: are they the ones that the table has there?
 */
static void types_judge(const struct snapshot_meta *meta, struct sentences *out)
{
	const struct snapshot_coverage *counts = &meta->coverage;

	if (counts->mistyped_blocks > SLACK_BLOCKS + counts->typed_blocks / SLACK_TYPED_SHARE)
		SAY(out,
		    "of %" PRIu64 " objects whose types tell their sizes %" PRIu64
		    " are of another size than was seen: their blocks may stand at the lines of "
		    "earlier ones",
		    counts->typed_blocks, counts->mistyped_blocks);
}

/*
 * What has died is known of the heap alone: where it was not read figures rest on what was known
 * before.
 */
static void unread_judge(const struct snapshot_meta *meta, struct sentences *out)
{
	int growth = !strcmp(meta->mode, "growth");
	const char *stands = growth ? "pools that were given back since stand as in use"
				    : "small blocks that died since stand as live";
	const char *follow = growth ? "" : "; --mode exact follows every free";

	if (snapshot_is_unread(meta) && meta->coverage_known)
		SAY(out, "the heap was last read %.1f ms before the end: %s%s",
		    (double)meta->unread_ns / 1e6, stands, follow);
	else if (snapshot_is_unread(meta))
		SAY(out, "the heap was not read before the end: %s%s", stands, follow);
	else if (meta->readings_dropped && !meta->coverage_known)
		SAY(out, "there was no memory to read the heap (--budget): %s%s", stands, follow);
}

/*
 * Of a sample, or of a part of the time, nothing need agree; what a fork has inherited is new to
 * its heap alone.
 */
static int is_whole(const struct snapshot_meta *meta)
{
	return meta->coverage_known && !meta->sample_bytes && !meta->change_count && !meta->parent;
}

static void judge(const struct snapshot_meta *meta, struct sentences *out)
{
	out->count = 0;
	if (meta->layer != EVENT_LAYER_PYTHON)
		return;
	if (is_whole(meta)) {
		large_judge(meta, out);
		small_judge(meta, out);
		types_judge(meta, out);
	}
	unread_judge(meta, out);
	if (meta->ends_unseen)
		SAY(out,
		    "the code of an allocator that the interpreter exports leads to no place that "
		    "is probed (--dry-run names it): what is allocated or freed through it may not "
		    "be seen");
	if (meta->reuse_unseen)
		SAY(out,
		    "objects that are taken from free lists are not all seen: blocks may stand at "
		    "the lines of their earlier lives");
}

static void process_print(FILE *out, const struct snapshot_meta *meta, int of_several)
{
	struct sentences sentences;

	judge(meta, &sentences);
	for (size_t i = 0; i < sentences.count; i++) {
		fputs("Warning: ", out);
		if (of_several)
			fprintf(out, "PID %u: ", meta->pid);
		fprintf(out, "%s\n", sentences.text[i]);
	}
}

static size_t is_doubted(const struct snapshot_meta *meta)
{
	struct sentences sentences;

	judge(meta, &sentences);
	return sentences.count > 0;
}

void contradictions_print(FILE *out, const struct snapshot *snapshot)
{
	size_t count = snapshot_process_count(snapshot), doubted = 0;

	for (size_t i = 0; i < count; i++) {
		const struct snapshot_meta *meta = snapshot_process(snapshot, i);

		if (is_doubted(meta) && doubted++ < PROCESSES_MAX)
			process_print(out, meta, count > 1);
	}
	if (doubted > PROCESSES_MAX)
		fprintf(out, "Warning: likewise %zu more processes (report --pid PID)\n",
			doubted - PROCESSES_MAX);
}

int contradictions_first(const struct snapshot_meta *meta, char *out, size_t room)
{
	struct sentences sentences;

	judge(meta, &sentences);
	if (!sentences.count)
		return 0;
	snprintf(out, room, "%s", sentences.text[0]);
	return 1;
}

void contradictions_json(FILE *out, const struct snapshot_meta *meta)
{
	struct sentences sentences;

	judge(meta, &sentences);
	if (!sentences.count)
		return;
	fputs("\"warnings\": [", out);
	for (size_t i = 0; i < sentences.count; i++) {
		fputs(i ? ", " : "", out);
		json_string(out, sentences.text[i]);
	}
	fputs("], ", out);
}
