/* SPDX-License-Identifier: Apache-2.0 */
#include "report/caveats/not_seen.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/caveats/windows.h"
#include "snapshot/group/explained.h"
#include "snapshot/meta.h"
#include "util/array.h"
#include "util/size.h"
#include "util/text.h"

/* --- not seen heap ---------------------------------------------------------------------------- */

/*
 * What the walks of Python's heap say of the figures: the share of the new blocks that is traced,
 * and the time that no walk covers.
 */

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
	int few = counts->large_seen < counts->large_new;

	if (meta->large_skipped) {
		fprintf(out,
			"blocks of more than %u bytes are not traced individually "
			"(--large-blocks), their number grew by %s since the %s; ",
			EVENT_SMALL_BYTES, COUNT_TEXT(counts->large_new), since);
		return;
	}
	if (!counts->large_new && !counts->large_seen)
		return;
	fprintf(out,
		"%s%s blocks of more than %u bytes are traced,%s their number grew by %s since the "
		"%s; ",
		few ? "only " : "", COUNT_TEXT(counts->large_seen), EVENT_SMALL_BYTES,
		few ? " but" : "", COUNT_TEXT(counts->large_new), since);
}

/* What is known of large blocks that nobody has seen, such as the items of an old list. */
static void large_unseen_print(FILE *out, const struct snapshot_meta *meta, const char *which)
{
	if (meta->windows.malloc_blocks) {
		fprintf(out,
			"; estimates cover them by size, as far as windows have shown such sizes: "
			"malloc has given out %s blocks of more than %u bytes, and what part of "
			"these are Python's is taken to be the same for all sizes",
			COUNT_TEXT(meta->windows.malloc_blocks), EVENT_SMALL_BYTES);
		return;
	}
	fprintf(out, "; %s are in no line, and their size is not known", which);
	if (meta->rss_bytes > meta->coverage.live_bytes)
		fprintf(out, " (of RSS, %s are outside pools)",
			SIZE_TEXT(meta->rss_bytes - meta->coverage.live_bytes));
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

	if (!meta->coverage_known || counts->large_blocks <= counts->large_seen)
		return;
	fprintf(out, "  large blocks: %s of %s that were passed on to malloc were not seen",
		COUNT_TEXT(counts->large_blocks - counts->large_seen),
		COUNT_TEXT(counts->large_blocks));
	if (fresh)
		fprintf(out,
			": at least %s were allocated since the trace began, and not traced; at "
			"most %s are older",
			COUNT_TEXT(fresh),
			COUNT_TEXT(counts->large_blocks - counts->large_seen - fresh));
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
		blocks / 10, blocks % 10, COUNT_TEXT(meta->coverage.new_blocks), kind, bytes / 10,
		bytes % 10, since);
}

/* The blocks of the whole heap: how many are traced, older than the trace, or unseen. */
static void heap_print(FILE *out, const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;
	const struct snapshot_coverage *counts = &meta->coverage;

	if (!meta->coverage_known)
		return;
	fprintf(out,
		"  heap: %s %s: %s %s, %s%s older than the trace, %s %s; %s blocks passed on to "
		"malloc; read in %.1f ms",
		COUNT_TEXT(counts->live_blocks),
		snapshot_is_growth(snapshot) ? "pools in use" : "blocks in pools",
		COUNT_TEXT(counts->seen_blocks),
		meta->sample_bytes    ? "in the sample"
		: meta->windows.count ? "seen in windows"
				      : "traced",
		snapshot_is_estimated(meta) ? "at most " : "", COUNT_TEXT(counts->old_blocks),
		COUNT_TEXT(counts->new_blocks - counts->seen_blocks),
		snapshot_is_estimated(meta) ? "others" : "unseen", COUNT_TEXT(counts->large_blocks),
		(double)counts->elapsed_ns / 1e6);
	if (counts->frozen_ns)
		fprintf(out, ", with the target stopped for %.1f ms",
			(double)counts->frozen_ns / 1e6);
	if (counts->pools_unreadable)
		fprintf(out,
			"; pools that could not be read: %s, where traced blocks are counted as "
			"live",
			COUNT_TEXT(counts->pools_unreadable));
	putc('\n', out);
}

/* The kernel's heap walk at the end has reached its limit. */
static void cut_print(FILE *out, const struct snapshot_ending *ending)
{
	if (ending->failed != EVENT_CENSUS_CUT)
		return;
	fprintf(out,
		"  of the heap's arenas, %s were read at the end, at most %s were not: the next "
		"line is about the small blocks there\n",
		COUNT_TEXT(ending->arenas), COUNT_TEXT(ending->arenas_unread));
}

/*
 * The time between the last heap walk and the end of the trace, or of a target that ended by
 * itself.
 */
static void unread_heap_print(FILE *out, const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;
	int growth = snapshot_is_growth(snapshot);

	/* caveats_print() says it for each of several processes. */
	if (snapshot->process_count || !snapshot_is_unread(meta))
		return;
	cut_print(out, &meta->ending);
	if (meta->layer == EVENT_LAYER_PAGES)
		fprintf(out,
			"  the resident pages were last looked up %.1f ms before the end: those "
			"released since then are counted as resident\n",
			(double)meta->unread_ns / 1e6);
	else if (meta->coverage_known)
		fprintf(out, "  the heap was last read %.1f ms before the end: %s\n",
			(double)meta->unread_ns / 1e6,
			growth ? "pools given back since then are counted as in use"
			       : "small blocks freed since then are counted as live");
	else
		fprintf(out, "  the heap was not read before the end: %s\n",
			growth ? "pools that were given back are counted as in use"
			       : "small blocks that were freed are counted as live");
}

/* --- not seen losses -------------------------------------------------------------------------- */

/* Events that were lost, and what was dropped, malformed or unreadable. */

/*
 * Each kind of loss makes different figures wrong, and the text says which: a lost free leaves a
 * dead block among the live ones, a lost allocation omits a live block, and a lost stack or code
 * record leaves a block of the right size at <unknown>.
 */

/* "12 things" or "1 thing", after a comma unless it is the first. */
static void item_print(FILE *out, int *items, uint64_t count, const char *one, const char *many)
{

	if (!count)
		return;
	fprintf(out, "%s%s %s", (*items)++ ? ", " : "", COUNT_TEXT(count), count == 1 ? one : many);
}

static void lost_kinds_print(FILE *out, const uint64_t loss[LOSS_COUNT])
{
	int items = 0;

	for (int ring = 1; ring >= 0; ring--) {
		for (unsigned int i = 0; i < LOSS_COUNT; i++) {
			const struct meta_loss *kind = &meta_losses[i];

			if (kind->one && kind->ring == ring)
				item_print(out, &items, loss[i], kind->one, kind->many);
			if (i == LOSS_ALLOC && ring && loss[i])
				fprintf(out, " of %s", SIZE_TEXT(loss[LOSS_ALLOC_BYTES]));
		}
		if (ring && items)
			fputs(" (ring buffer full)", out);
	}
	for (unsigned int i = 0; i < LOSS_COUNT; i++)
		if (!meta_losses[i].json_key)
			item_print(out, &items, loss[i], "event of another kind",
				   "events of another kind");
}

static bool loss_is_overrun(const uint64_t loss[LOSS_COUNT])
{
	return (loss[LOSS_ALLOC] | loss[LOSS_FREE] | loss[LOSS_REALLOC] | loss[LOSS_STACK] |
		loss[LOSS_CODE] | loss[LOSS_REUSE]) != 0;
}

static void lost_meaning_print(FILE *out, const struct snapshot_meta *meta)
{
	const uint64_t *loss = meta->loss;
	uint64_t either = loss[LOSS_REALLOC] | loss[LOSS_THREAD_STATE] | loss[LOSS_RETURN] |
			  loss[LOSS_SHARER];
	uint64_t allocs = loss[LOSS_ALLOC] | either, frees = loss[LOSS_FREE] | either;

	if (frees && meta->coverage_known)
		fputs("; small blocks are checked against the heap, but some larger blocks may "
		      "be dead",
		      out);
	else if (frees)
		fputs("; live figures are upper bounds: some blocks may be dead", out);
	if (allocs)
		fputs("; blocks of lost allocations are not in the report", out);
	if (loss[LOSS_REUSE])
		fputs("; some reused objects are charged to the line of an earlier object", out);
	if (loss[LOSS_MAP])
		fputs("; figures of mapped memory are wrong", out);
	if (loss[LOSS_STACK] | loss[LOSS_CODE])
		fputs("; some tracebacks are incomplete or <unknown>", out);
	/*
	 * The reader did not keep up. The remedy is fewer events, unless a sample or a change of
	 * mode reduces them already.
	 */
	if (!snapshot_is_estimated(meta) && !meta->change_count && loss_is_overrun(loss))
		fputs("; --sample or --overhead reduces the number of events", out);
}

/* The line of lost events: their kinds, and which figures they make wrong. */
static void not_seen_lost_print(FILE *out, const struct snapshot *snapshot)
{
	uint64_t lost = snapshot_lost_events(snapshot);

	if (!lost) {
		fputs("  lost events: none\n", out);
		return;
	}
	fprintf(out, "  lost events: %s: ", COUNT_TEXT(lost));
	lost_kinds_print(out, snapshot->meta.loss);
	lost_meaning_print(out, &snapshot->meta);
	putc('\n', out);
}

/* What was dropped because the memory budget was used up. */
static void dropped_print(FILE *out, const struct snapshot_meta *meta)
{
	int items = 0;

	if (meta->blocks_dropped) {
		fprintf(out,
			"  blocks beyond the memory budget (--budget): %s of %s were dropped, and "
			"are not in the report\n",
			COUNT_TEXT(meta->blocks_dropped), SIZE_TEXT(meta->bytes_dropped));
	}
	if (!(meta->stacks_dropped | meta->codes_dropped | meta->symbols_dropped |
	      meta->walks_dropped))
		return;
	fputs("  also beyond the budget: ", out);
	item_print(out, &items, meta->stacks_dropped, "stack", "stacks");
	item_print(out, &items, meta->codes_dropped, "record of a code object",
		   "records of code objects");
	item_print(out, &items, meta->symbols_dropped, "name of a native frame",
		   "names of native frames");
	if (items)
		fputs(" (<unknown>, or without a line)", out);
	item_print(out, &items, meta->walks_dropped, "heap walk, which was abandoned",
		   "heap walks, which were abandoned");
	putc('\n', out);
}

/* The blocks charged to <unknown>, by reason. */
static void unknown_print(FILE *out, const struct snapshot_meta *meta)
{
	static const char *const why[SNAPSHOT_UNKNOWNS] = {
		[UNKNOWN_NO_FRAME] =
			"without a Python frame (the interpreter's start, threads of C)",
		[UNKNOWN_NO_STACK] = "whose stack was lost",
		[UNKNOWN_NO_MEMORY] = "for whose stack there was no memory (--budget)",
		[UNKNOWN_NO_CODE] = "whose frame could not be read",
		[UNKNOWN_NO_NAME] = "whose file name could not be read",
		[UNKNOWN_NO_FILE] = "in native code outside any known file",
		[UNKNOWN_NO_FAULT] = "without a fault that was seen (MAP_POPULATE, mlock)",
	};
	int items = 0;

	for (size_t i = 0; i < SNAPSHOT_UNKNOWNS; i++) {
		const struct snapshot_unknowns *unknown = &meta->unknown[i];

		if (!unknown->blocks)
			continue;
		fprintf(out, "%s%s %s (%s) %s",
			items++ ? "; " : "  at <unknown>: ", COUNT_TEXT(unknown->blocks),
			unknown->blocks == 1 ? "block" : "blocks", SIZE_TEXT(unknown->bytes),
			i == UNKNOWN_NO_FRAME && meta->layer != EVENT_LAYER_PYTHON
				? "without a frame"
				: why[i]);
	}
	if (items)
		putc('\n', out);
}

/* The lines of meta_fields that belong to one part of the text. */
static void fields_print(FILE *out, const struct snapshot_meta *meta, enum meta_caveat part)
{

	for (size_t i = 0; i < meta_field_count; i++)
		if (meta_fields[i].caveat == part && meta_is_known(meta, &meta_fields[i]))
			fprintf(out, "  %s: %s\n", meta_fields[i].text,
				COUNT_TEXT(meta_number(meta, &meta_fields[i])));
}

/* Frames, stacks and blocks that could not be read, attributed or kept. */
static void not_seen_unread_print(FILE *out, const struct snapshot_meta *meta)
{
	if (meta->layer == EVENT_LAYER_PYTHON || meta->python_version)
		fprintf(out, "  frames that could not be read: %s\n",
			meta->frames_unknown ? COUNT_TEXT(meta->frames_unknown) : "none");
	unknown_print(out, meta);
	if (meta->loss[LOSS_FRAME_FAULT])
		fprintf(out, "  tracebacks cut short by a page that was not resident: %s\n",
			COUNT_TEXT(meta->loss[LOSS_FRAME_FAULT]));
	if (meta->loss[LOSS_NO_THREAD])
		fprintf(out, "  requests of threads unknown to Python (<unknown>): %s\n",
			COUNT_TEXT(meta->loss[LOSS_NO_THREAD]));
	fields_print(out, meta, META_CAVEAT_UNKNOWN);
	fields_print(out, meta, META_CAVEAT_BLOCKS);
	if (meta->frees_unknown && meta->from_start && !snapshot_is_estimated(meta))
		fprintf(out, "  frees of blocks whose allocation was not seen: %s\n",
			COUNT_TEXT(meta->frees_unknown));
	if (meta->rounded_blocks)
		fprintf(out,
			"  sizes rounded up by the allocator, by at most 15 bytes: those of %s "
			"blocks (rounded=... in their lines)\n",
			COUNT_TEXT(meta->rounded_blocks));
	dropped_print(out, meta);
	fields_print(out, meta, META_CAVEAT_RECORDS);
}

/* --- not seen --------------------------------------------------------------------------------- */

#define RSS_OLD_NS 100000000
/* the attach itself takes as long */
#define SELF_SAMPLED_LATE_NS 100000000
#define COVERAGE_REMARKED    990u /* permille: a process with less gets a caveat */
#define PROCESSES_REMARKED   10u

/* Growth mode counts pools in place of small blocks. */
static const char *units(const struct snapshot *snapshot)
{
	return snapshot_is_growth(snapshot) ? "pools" : "blocks";
}

/*
 * Blocks outside the sample are not traced, by intent: the lines below are read with that in mind.
 */
static void sample_print(FILE *out, const struct snapshot_meta *meta)
{
	if (meta->sample_bytes)
		fprintf(out,
			"  sampled: one block for every %s allocated (--sample); sizes and counts "
			"above are estimates, ± one standard error; event counts below are those "
			"of the sample\n",
			SIZE_TEXT(meta->sample_bytes));
}

/* The weights are the process's own: nothing here says whether they are right. */
static void self_sample_print(FILE *out, const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;

	if (!meta->self_sampled || !snapshot_has_layer(snapshot, EVENT_LAYER_NATIVE))
		return;
	fprintf(out,
		"  sampled by %s (otel_memory): sizes and counts of native blocks are estimates "
		"from its own weights, ± one standard error; blocks that it did not report are "
		"not in the report",
		snapshot->process_count ? "some of the processes" : "the process itself");
	if (meta->self_sampled_ns >= SELF_SAMPLED_LATE_NS)
		fprintf(out, ", nor are those of the first %.1f s",
			(double)meta->self_sampled_ns / 1e9);
	putc('\n', out);
}

static void older_print(FILE *out, const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;

	fputs("  older than the trace: ", out);
	if (meta->layer == EVENT_LAYER_PAGES) {
		fprintf(out, "%s were resident then, and %s of them are still\n",
			SIZE_TEXT(meta->pages.before_first), SIZE_TEXT(meta->pages.before));
		return;
	}
	if (meta->from_start) {
		fputs("nothing, the process was traced from its start\n", out);
		return;
	}
	if (meta->coverage_known) {
		/* A new block that is not in the sample may reuse the address of an older one. */
		fprintf(out, "%s%s %s (%s) on the heap%s are not %s",
			snapshot_is_estimated(meta) ? "at most " : "",
			COUNT_TEXT(meta->coverage.old_blocks),
			snapshot_is_growth(snapshot) ? "pools" : "small blocks",
			SIZE_TEXT(meta->coverage.old_bytes),
			meta->windows.count ? ", and large ones," : "",
			meta->windows.count ? "in the statistics: attributed by likeness, apart"
					    : "in the report");
	} else if (meta->windows.count) {
		fputs("blocks from before the attach are attributed by likeness, apart", out);
	} else {
		fprintf(out, "%s from before the attach are not in the report (not measured)",
			snapshot->meta.layer == EVENT_LAYER_MMAP ? "regions" : units(snapshot));
	}
	if (meta->frees_unknown && !snapshot_is_estimated(meta))
		fprintf(out, "; %s frees were of blocks unknown to the trace",
			COUNT_TEXT(meta->frees_unknown));
	putc('\n', out);
}

static void mapped_print(FILE *out, const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;

	if (!snapshot_is_growth(snapshot) && !snapshot_has_layer(snapshot, EVENT_LAYER_MMAP))
		return;
	if (!snapshot_has_layer(snapshot, EVENT_LAYER_MMAP))
		fputs("  mapped memory: not traced\n", out);
	else
		fprintf(out,
			"  mapped memory: memory mapped or reserved before the %s, private maps "
			"of files, and whether pages were touched\n",
			meta->from_start ? "start" : "attach");
	fields_print(out, meta, META_CAVEAT_MAPPED);
}

/* What the lines are made of, and what of RSS is in none. */
static void pages_print(FILE *out, const struct snapshot *snapshot)
{
	const struct snapshot_pages *pages = &snapshot->meta.pages;
	const struct {
		uint64_t bytes;
		const char *what;
	} parts[] = {
		{pages->unfaulted, "became resident without a page fault (at <unknown>)"},
		{pages->huge, "came as huge pages"},
		{pages->file, "are pages of files or shared memory"},
		{pages->again, "were resident when they were touched last (copied on write after "
			       "a fork, or released and touched again between two looks)"},
	};

	if (snapshot->meta.layer != EVENT_LAYER_PAGES)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		if (parts[i].bytes)
			fprintf(out, "  of the pages in the lines, %s %s\n",
				SIZE_TEXT(parts[i].bytes), parts[i].what);
	if (pages->unread)
		fprintf(out, "  resident in maps that are too large to be read: %s\n",
			SIZE_TEXT(pages->unread));
}

/*
 * "  native stacks that are whole: 99.2 % of 1,204, with 99.9 % of the bytes; 9 end early (8 no
 * table, 1 not code), in /opt/a.so (8)".
 */
static void stack_ends_print(FILE *out, const struct stack_ends *ends)
{
	uint64_t cut = stack_ends_cut_count(ends), all = ends->whole + cut;
	uint64_t bytes = ends->whole_bytes + ends->cut_bytes;
	unsigned int whole = not_seen_permille(ends->whole, all);
	const char *separator = " (";

	if (!all)
		return;
	fprintf(out, "  native stacks that are whole: %u.%u %% of %s", whole / 10, whole % 10,
		COUNT_TEXT(all));
	if (bytes) {
		whole = not_seen_permille(ends->whole_bytes, bytes);
		fprintf(out, ", with %u.%u %% of the bytes", whole / 10, whole % 10);
	}
	if (cut)
		fprintf(out, "; %s end early", COUNT_TEXT(cut));
	for (uint32_t i = 0; i < STACK_ENDS_REASONS; i++) {
		if (!ends->reasons[i])
			continue;
		fprintf(out, "%s%s %s", separator, COUNT_TEXT(ends->reasons[i]),
			stack_ends_reason(i) ?: "for another reason");
		separator = ", ";
	}
	if (cut)
		putc(')', out);
	separator = ", in ";
	for (size_t i = 0; i < STACK_ENDS_FILES; i++) {
		if (!ends->files[i].path[0])
			continue;
		fprintf(out, "%s%s (%s)", separator, ends->files[i].path,
			COUNT_TEXT(ends->files[i].stacks));
		separator = ", ";
	}
	putc('\n', out);
}

/* malloc's heaps are not walked: the number of blocks older than the trace is unknown. */
static void native_print(FILE *out, const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;

	/* The lines above cover the first layer. */
	if (meta->layer == EVENT_LAYER_NATIVE || !snapshot_has_layer(snapshot, EVENT_LAYER_NATIVE))
		return;
	if (!meta->from_start)
		fputs("  native blocks from before the attach are not in the report (not "
		      "measured)\n",
		      out);
	fields_print(out, meta, META_CAVEAT_NATIVE);
}

/* Native stacks: of native blocks, and of mapped memory. */
static void native_stacks_print(FILE *out, const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;

	if (!snapshot_has_layer(snapshot, EVENT_LAYER_NATIVE) &&
	    !snapshot_has_layer(snapshot, EVENT_LAYER_MMAP) &&
	    !snapshot_has_layer(snapshot, EVENT_LAYER_PAGES))
		return;
	fields_print(out, meta, META_CAVEAT_STACKS);
	stack_ends_print(out, &meta->stack_ends);
}

/*
 * The caveats about one of several processes, separated by "; ". Returns their number. out NULL:
 * only counts.
 */
static int caveats_print(FILE *out, const struct snapshot_meta *meta)
{
	const struct snapshot_coverage *counts = &meta->coverage;
	unsigned int seen = not_seen_permille(counts->seen_blocks, counts->new_blocks);
	int caveats = 0;

	if (meta->layer == EVENT_LAYER_PYTHON && !meta->coverage_known) {
		caveats++;
		if (out)
			fputs("its heap was not read", out);
	} else if (snapshot_is_unread(meta)) {
		caveats++;
		if (out)
			fprintf(out, "its %s last read %.1f ms before %s end",
				meta->layer == EVENT_LAYER_PAGES ? "pages were" : "heap was",
				(double)meta->unread_ns / 1e6,
				strcmp(meta->moment, "running") ? "its" : "the");
		if (out && meta->ending.failed == EVENT_CENSUS_CUT)
			fprintf(out, " (at its end %" PRIu64 " arenas, at most %" PRIu64 " not)",
				meta->ending.arenas, meta->ending.arenas_unread);
	}
	if (counts->new_blocks && !snapshot_is_estimated(meta) && seen < COVERAGE_REMARKED &&
	    ++caveats && out) {
		fprintf(out, "%scoverage %u.%u %%", caveats > 1 ? "; " : "", seen / 10, seen % 10);
		/* A probe in a process is not inherited. */
		if (meta->parent && !meta->change_count)
			fprintf(out,
				": %" PRIu64 " small blocks are in no line, from between the fork "
				"and its probes",
				counts->new_blocks - counts->seen_blocks);
	}
	if (counts->pools_unreadable && ++caveats && out)
		fprintf(out, "%s%" PRIu64 " pools could not be read", caveats > 1 ? "; " : "",
			counts->pools_unreadable);
	if (meta->change_count && ++caveats && out)
		fprintf(out, "%sits mode changed (report --pid %u shows when)",
			caveats > 1 ? "; " : "", meta->pid);
	return caveats;
}

static void processes_print(FILE *out, const struct snapshot *snapshot)
{
	size_t found = 0;

	for (size_t i = 0; i < snapshot->process_count; i++) {
		const struct snapshot_meta *meta = &snapshot->processes[i];

		if (!caveats_print(NULL, meta) || found++ >= PROCESSES_REMARKED)
			continue;
		fprintf(out, "  PID %u (", meta->pid);
		text_print(out, meta->name);
		fputs("): ", out);
		caveats_print(out, meta);
		putc('\n', out);
	}
	if (found > PROCESSES_REMARKED)
		fprintf(out, "  and so for %zu more processes (report --pid PID)\n",
			found - PROCESSES_REMARKED);
}

/*
 * The memory that the processes have resident, and how much of it the report accounts for. lead,
 * end: printed before and after.
 */
static void rss_print(FILE *out, const struct snapshot *snapshot, const struct not_seen_opts *opts,
		      const char *lead, const char *end)
{
	const struct snapshot_meta *meta = &snapshot->meta;
	size_t processes = snapshot_process_count(snapshot);
	struct explained explained;

	if (!opts->whole || !explained_read(snapshot, &explained))
		return;
	fprintf(out, "%sRSS %s", lead, SIZE_TEXT(explained.rss_bytes));
	if (processes > explained.processes)
		fprintf(out, " of %zu of %zu processes", explained.processes, processes);
	else if (processes > 1)
		fprintf(out, " of %zu processes", processes);
	if (meta->rss_age_ns >= RSS_OLD_NS)
		fprintf(out, ", read %.1f s before", (double)meta->rss_age_ns / 1e9);
	fprintf(out, ": %s%s in this report", snapshot_is_estimated(meta) ? "~" : "",
		SIZE_TEXT(explained.bytes));
	for (int layer = EVENT_LAYER_NATIVE; layer <= EVENT_LAYER_MMAP; layer++)
		if (!snapshot_has_layer(snapshot, EVENT_LAYER_PAGES) &&
		    !snapshot_has_layer(snapshot, layer)) {
			fputs("; --layer all shows more", out);
			break;
		}
	fputs(end, out);
}

#define SHARE_MOST 0.95 /* as measured, the cost of a hit is right to a half */

const char *cost_share_text(char out[COST_TEXT], double share)
{
	if (share > SHARE_MOST)
		snprintf(out, COST_TEXT, "more than %.0f %%", 100 * SHARE_MOST);
	else
		snprintf(out, COST_TEXT, "%.*f %%", share < 0.1 ? 1 : 0, 100 * share);
	return out;
}

const char *cost_slowed_text(char out[COST_TEXT], double share)
{
	snprintf(out, COST_TEXT, "%s1/%.0f", share > SHARE_MOST ? "less than " : "",
		 1 / (1 - (share > SHARE_MOST ? SHARE_MOST : share)));
	return out;
}

/*
 * What the probes took, and their budget; without one at least a hundredth of a percent of the CPU
 * time, and how slow that made the process.
 */
static void cost_print(FILE *out, const struct snapshot *snapshot, const struct not_seen_opts *opts,
		       const char *lead, const char *end)
{
	const struct snapshot_meta *meta = &snapshot->meta;
	const char *whose = snapshot->process_count ? "their" : "its";
	int tiny = meta->probes_ns * 10000 < meta->cpu_ns || !meta->probes_ns;
	int digits = meta->cpu_ns < COST_BRIEF_NS ? 4 : 2;
	double share = tiny ? 0 : (double)meta->probes_ns / (double)meta->cpu_ns;
	char text[COST_TEXT];

	if (!opts->whole || (tiny && !meta->budget_permille))
		return;
	if (tiny)
		fprintf(out, "%sthe probes took less than 0.01 %% of %s CPU time", lead, whose);
	else
		fprintf(out, "%sthe probes took %s of %s CPU time, %.*f s of %.*f s", lead,
			cost_share_text(text, share), whose, digits, (double)meta->probes_ns / 1e9,
			digits, (double)meta->cpu_ns / 1e9);
	if (meta->budget_permille)
		fprintf(out, ", the budget is %g %%%s", meta->budget_permille / 10.0,
			meta->windows.count && share * 1000 > meta->budget_permille &&
					meta->cpu_ns < meta->duration_ns / COST_FIFTH
				? " of a fifth of a CPU, since it took less"
				: "");
	else if (share >= COST_SLOWED)
		fprintf(out, ", which slowed %s to %s", snapshot->process_count ? "them" : "it",
			cost_slowed_text(text, share));
	fputs(end, out);
}

static bool heap_is_well(const struct snapshot_meta *meta)
{
	const struct snapshot_coverage *counts = &meta->coverage;

	if (meta->layer != EVENT_LAYER_PYTHON)
		return 1;
	return meta->coverage_known &&
	       not_seen_permille(counts->seen_blocks, counts->new_blocks) >= COVERAGE_REMARKED &&
	       not_seen_permille(counts->seen_bytes, counts->new_bytes) >= COVERAGE_REMARKED &&
	       counts->large_seen >= counts->large_new && !counts->pools_unreadable &&
	       !counts->frozen_ns && meta->ending.failed != EVENT_CENSUS_CUT &&
	       !snapshot_is_unread(meta);
}

static bool stacks_are_well(const struct snapshot_meta *meta)
{
	for (size_t i = 0; i < SNAPSHOT_UNKNOWNS; i++)
		if (meta->unknown[i].blocks)
			return 0;
	return !(meta->frames_unknown | stack_ends_cut_count(&meta->stack_ends) |
		 meta->loss[LOSS_FRAME_FAULT] | meta->loss[LOSS_NO_THREAD]);
}

static bool blocks_are_well(const struct snapshot_meta *meta)
{
	for (size_t i = 0; i < meta_field_count; i++) {
		const struct meta_field *field = &meta_fields[i];

		if ((field->json == META_JSON_DROPPED ||
		     (field->caveat && field->caveat != META_CAVEAT_MAPPED)) &&
		    meta_is_known(meta, field))
			return 0;
	}
	return !meta->blocks_dropped && !(meta->from_start && meta->frees_unknown);
}

/*
 * Is nothing missing beyond what every trace lacks? Growth mode and mapped memory always print in
 * full what they leave out.
 */
static bool is_all_well(const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;

	for (size_t i = 0; i < snapshot->process_count; i++)
		if (caveats_print(NULL, &snapshot->processes[i]))
			return 0;
	return !snapshot_lost_events(snapshot) && !snapshot_is_estimated(meta) &&
	       !snapshot_is_growth(snapshot) && !snapshot_has_layer(snapshot, EVENT_LAYER_MMAP) &&
	       !snapshot_has_layer(snapshot, EVENT_LAYER_PAGES) && heap_is_well(meta) &&
	       stacks_are_well(meta) && blocks_are_well(meta);
}

/*
 * "53,843 blocks (4807 KiB) older than the trace; no event lost, 100.0 % of 13 new small blocks
 * traced".
 */
static void well_print(FILE *out, const struct snapshot *snapshot, const struct not_seen_opts *opts)
{
	const struct snapshot_meta *meta = &snapshot->meta;
	const struct snapshot_coverage *counts = &meta->coverage;

	if (!meta->from_start && meta->coverage_known) {
		fprintf(out, " %s blocks (%s) older than the trace;",
			COUNT_TEXT(counts->old_blocks), SIZE_TEXT(counts->old_bytes));
	} else if (!meta->from_start && !meta->windows.count) {
		fputs(" blocks older than the trace (not measured);", out);
	}
	fputs(" no event lost", out);
	if (meta->coverage_known && counts->new_blocks) {
		unsigned int seen = not_seen_permille(counts->seen_blocks, counts->new_blocks);

		fprintf(out, ", %u.%u %% of %s new small blocks traced", seen / 10, seen % 10,
			COUNT_TEXT(counts->new_blocks));
	}
	if (meta->rounded_blocks)
		fprintf(out, ", %s of them with a rounded size", COUNT_TEXT(meta->rounded_blocks));
	if (meta->stack_ends.whole)
		fprintf(out, ", all %s native stacks whole", COUNT_TEXT(meta->stack_ends.whole));
	rss_print(out, snapshot, opts, "; ", "");
	cost_print(out, snapshot, opts, "; ", "");
	putc('\n', out);
}

void not_seen_print(FILE *out, const struct snapshot *snapshot, const struct not_seen_opts *opts)
{
	int known = strcmp(snapshot->meta.mode, SNAPSHOT_TRACEMALLOC) != 0;

	fprintf(out, opts->color ? "\033[1m%s:\033[0m" : "%s:", opts->title);
	if (known && is_all_well(snapshot)) {
		well_print(out, snapshot, opts);
		return;
	}
	putc('\n', out);
	if (!known) {
		fputs("  not known: tracemalloc's files do not say what was allocated before it "
		      "started\n",
		      out);
		return;
	}
	sample_print(out, &snapshot->meta);
	self_sample_print(out, snapshot);
	not_seen_lost_print(out, snapshot);
	older_print(out, snapshot);
	if (snapshot->meta.layer == EVENT_LAYER_PYTHON) {
		coverage_print(out, snapshot);
		heap_print(out, snapshot);
	}
	native_print(out, snapshot);
	native_stacks_print(out, snapshot);
	mapped_print(out, snapshot);
	pages_print(out, snapshot);
	unread_heap_print(out, snapshot);
	not_seen_unread_print(out, &snapshot->meta);
	rss_print(out, snapshot, opts, "  ", "\n");
	cost_print(out, snapshot, opts, "  ", "\n");
	processes_print(out, snapshot);
}

void not_seen_brief_print(FILE *out, const struct snapshot *snapshot)
{
	if (strcmp(snapshot->meta.mode, SNAPSHOT_TRACEMALLOC)) {
		sample_print(out, &snapshot->meta);
		self_sample_print(out, snapshot);
		windows_allocated_print(out, &snapshot->meta);
		not_seen_lost_print(out, snapshot);
		older_print(out, snapshot);
	}
	fputs("  for all that was not seen: tracer report FILE\n", out);
}
