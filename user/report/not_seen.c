/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each kind of loss falsifies something else, and the text says which: without a free a dead block
 * looks alive, without an allocation a live one is in no line, without a stack or code record the
 * size is right and its owner unknown.
 */
#include "report/not_seen.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "report/report_parts.h"
#include "stats/explained.h"

#define RSS_OLD_NS         100000000
#define COVERAGE_REMARKED  990u /* permille: of a process that has less it is said */
#define PROCESSES_REMARKED 10u

/* "12 things" or "1 thing", after a comma unless it is the first. */
static void item_print(FILE *out, int *items, uint64_t count, const char *one, const char *many)
{
	char text[32];

	if (!count)
		return;
	fprintf(out, "%s%s %s", (*items)++ ? ", " : "", text_count(text, count),
		count == 1 ? one : many);
}

static void lost_kinds_print(FILE *out, const uint64_t loss[LOSS_COUNT])
{
	char text[32];
	int items = 0;

	item_print(out, &items, loss[LOSS_ALLOC], "allocation", "allocations");
	if (loss[LOSS_ALLOC])
		fprintf(out, " of %s", report_size(text, loss[LOSS_ALLOC_BYTES]));
	item_print(out, &items, loss[LOSS_FREE], "free", "frees");
	item_print(out, &items, loss[LOSS_REALLOC], "realloc", "reallocs");
	item_print(out, &items, loss[LOSS_STACK], "stack", "stacks");
	item_print(out, &items, loss[LOSS_CODE], "code object", "code objects");
	item_print(out, &items, loss[LOSS_PROCESS], "event of the process",
		   "events of the process");
	item_print(out, &items, loss[LOSS_REUSE], "reuse of a dead object",
		   "reuses of dead objects");
	item_print(out, &items, loss[LOSS_MAP], "change of mapped memory",
		   "changes of mapped memory");
	if (items) /* what came before stood in the ring buffer's way */
		fputs(" (ring buffer full)", out);
	item_print(out, &items, loss[LOSS_THREAD_STATE],
		   "request without memory for its thread's state",
		   "requests without memory for their thread's state");
	item_print(out, &items, loss[LOSS_RETURN], "request whose return was not seen",
		   "requests whose return was not seen");
	for (unsigned int i = LOSS_MAP + 1; i < LOSS_COUNT; i++)
		item_print(out, &items, loss[i], "event of another kind", "events of another kind");
}

static int loss_is_overrun(const uint64_t loss[LOSS_COUNT])
{
	return (loss[LOSS_ALLOC] | loss[LOSS_FREE] | loss[LOSS_REALLOC] | loss[LOSS_STACK] |
		loss[LOSS_CODE] | loss[LOSS_REUSE]) != 0;
}

static void lost_meaning_print(FILE *out, const struct snapshot_meta *meta)
{
	const uint64_t *loss = meta->loss;
	uint64_t either = loss[LOSS_REALLOC] | loss[LOSS_THREAD_STATE] | loss[LOSS_RETURN];
	uint64_t allocs = loss[LOSS_ALLOC] | either, frees = loss[LOSS_FREE] | either;

	if (frees && meta->coverage_known)
		fputs("; of small blocks only what the heap shows is live, some of the others may "
		      "be dead",
		      out);
	else if (frees)
		fputs("; live figures are upper bounds of what they count: some blocks may be dead",
		      out);
	if (allocs)
		fputs("; blocks of lost allocations are in no line", out);
	if (loss[LOSS_REUSE])
		fputs("; some objects stand at the line of an earlier life", out);
	if (loss[LOSS_MAP])
		fputs("; mapped memory is not what the figures say", out);
	if (loss[LOSS_STACK] | loss[LOSS_CODE])
		fputs("; some tracebacks are incomplete or <unknown>", out);
	/* The reader did not keep up: fewer events are the remedy, unless that was thought of. */
	if (!meta->sample_bytes && !meta->change_count && loss_is_overrun(loss))
		fputs("; --sample or --overhead makes fewer events", out);
}

static void lost_print(FILE *out, const struct snapshot *snapshot)
{
	uint64_t lost = snapshot_lost_events(snapshot);
	char text[32];

	if (!lost) {
		fputs("  lost events: none\n", out);
		return;
	}
	fprintf(out, "  lost events: %s: ", text_count(text, lost));
	lost_kinds_print(out, snapshot->meta.loss);
	lost_meaning_print(out, &snapshot->meta);
	putc('\n', out);
}

/* Growth mode: of the small blocks it is their pools that are counted. */
static const char *units(const struct snapshot *snapshot)
{
	return snapshot_is_growth(snapshot) ? "pools" : "blocks";
}

/*
 * What the rest is to be read with: of the blocks beyond the sample nothing was seen, nor was it
 * meant to be.
 */
static void sample_print(FILE *out, const struct snapshot_meta *meta)
{
	char text[32];

	if (meta->sample_bytes)
		fprintf(out,
			"  sampled: a block for every %s that was allocated (--sample); sizes and "
			"counts above are estimates, ± one standard error; numbers of events below "
			"are of the sample\n",
			report_size(text, meta->sample_bytes));
}

static void older_print(FILE *out, const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;
	char text[32];

	fputs("  older than the trace: ", out);
	if (meta->from_start) {
		fputs("nothing, it was traced from its start\n", out);
		return;
	}
	if (meta->coverage_known) {
		/* A block that is not in the sample may have taken the place of an older one. */
		fprintf(out, "%s%s %s", meta->sample_bytes ? "at most " : "",
			text_count(text, meta->coverage.old_blocks), units(snapshot));
		fprintf(out, " (%s) on the heap are in no line",
			report_size(text, meta->coverage.old_bytes));
	} else {
		fprintf(out, "%s from before the attach are in no line (not measured)",
			snapshot->meta.layer == EVENT_LAYER_MMAP ? "regions" : units(snapshot));
	}
	if (meta->frees_unknown && !meta->sample_bytes)
		fprintf(out, "; %s frees were of blocks that the trace does not know",
			text_count(text, meta->frees_unknown));
	putc('\n', out);
}

/* Tenths of a percent, rounded down: 100.0 is said of everything only. */
static unsigned int permille(uint64_t part, uint64_t whole)
{
	if (part >= whole)
		return 1000;
	return (unsigned int)((unsigned __int128)part * 1000 / whole);
}

/* Of the large blocks only their number is known, before and after. */
static void large_print(FILE *out, const struct snapshot_meta *meta, const char *since)
{
	const struct snapshot_coverage *counts = &meta->coverage;
	char seen[32], grown[32];

	if (meta->large_skipped) {
		fprintf(out,
			"blocks of more than %u bytes are not traced one by one (--large-blocks), "
			"their number grew by %s since the %s; ",
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

static void coverage_print(FILE *out, const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;
	const char *kind = snapshot_is_growth(snapshot) ? "pool" : "small block";
	const char *since = meta->from_start ? "start" : "attach";
	char text[32];

	fputs("  coverage: ", out);
	if (meta->sample_bytes) {
		fputs("no share of the blocks to tell of a sample: the estimates stand for all of "
		      "them\n",
		      out);
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
	unsigned int blocks = permille(meta->coverage.seen_blocks, meta->coverage.new_blocks);
	unsigned int bytes = permille(meta->coverage.seen_bytes, meta->coverage.new_bytes);
	fprintf(out,
		"%u.%u %% of the %s %ss (%u.%u %% of bytes) that are new on the heap since the "
		"%s\n",
		blocks / 10, blocks % 10, text_count(text, meta->coverage.new_blocks), kind,
		bytes / 10, bytes % 10, since);
}

/* The whole heap, block by block: who accounts for it. */
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
		meta->sample_bytes ? "in the sample" : "traced");
	fprintf(out, "%s%s older than the trace, ", meta->sample_bytes ? "at most " : "",
		text_count(text, counts->old_blocks));
	fprintf(out, "%s %s; ", text_count(text, counts->new_blocks - counts->seen_blocks),
		meta->sample_bytes ? "others" : "unseen");
	fprintf(out, "%s blocks passed on to malloc; read in %.1f ms",
		text_count(text, counts->large_blocks), (double)counts->elapsed_ns / 1e6);
	if (counts->frozen_ns)
		fprintf(out, ", for which the target was stopped for %.1f ms",
			(double)counts->frozen_ns / 1e6);
	if (counts->pools_unreadable)
		fprintf(out,
			"; pools that could not be read: %s, what is traced there stands as live",
			text_count(text, counts->pools_unreadable));
	putc('\n', out);
}

/* The kernel's reading at the end has come to its bound. */
static void cut_print(FILE *out, const struct snapshot_ending *ending)
{
	char text[32];

	if (ending->failed != EVENT_CENSUS_CUT)
		return;
	fprintf(out, "  of the heap's arenas %s were read at the end, ",
		text_count(text, ending->arenas));
	fprintf(out, "at most %s were not: of the small blocks there what follows is true\n",
		text_count(text, ending->arenas_unread));
}

/* Between the last reading and the end of a target that ended by itself, or of the trace. */
static void unreconciled_print(FILE *out, const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;
	int growth = snapshot_is_growth(snapshot);

	/* Of several processes it is said of each. */
	if (snapshot->process_count || !snapshot_is_unread(meta))
		return;
	cut_print(out, &meta->ending);
	if (meta->coverage_known)
		fprintf(out, "  the heap was last read %.1f ms before: %s\n",
			(double)meta->unread_ns / 1e6,
			growth ? "pools that were given back since stand as in use"
			       : "small blocks that died since stand as live");
	else
		fprintf(out, "  the heap was not read before the end: %s\n",
			growth ? "pools that were given back stand as in use"
			       : "small blocks that died stand as live; --mode exact follows "
				 "frees");
}

static void mapped_print(FILE *out, const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;
	char text[32];

	if (!snapshot_is_growth(snapshot) && !snapshot_has_layer(snapshot, EVENT_LAYER_MMAP))
		return;
	if (!snapshot_has_layer(snapshot, EVENT_LAYER_MMAP))
		fputs("  mapped memory: not followed\n", out);
	else
		fprintf(out,
			"  mapped memory: what was mapped or reserved before the %s, files, and "
			"whether pages were touched\n",
			meta->from_start ? "start" : "attach");
	if (meta->regions_dropped)
		fprintf(out, "  changes of mapped memory beyond what is kept: %s\n",
			text_count(text, meta->regions_dropped));
}

/* What there was no memory for. */
static void dropped_print(FILE *out, const struct snapshot_meta *meta)
{
	char text[32];
	int items = 0;

	if (meta->blocks_dropped) {
		fprintf(out, "  blocks beyond the tables' budget (--budget): %s",
			text_count(text, meta->blocks_dropped));
		fprintf(out, " of %s were not kept, and are in no line\n",
			report_size(text, meta->bytes_dropped));
	}
	if (!(meta->stacks_dropped | meta->codes_dropped | meta->symbols_dropped |
	      meta->readings_dropped))
		return;
	fputs("  also beyond it: ", out);
	item_print(out, &items, meta->stacks_dropped, "stack", "stacks");
	item_print(out, &items, meta->codes_dropped, "record of a code object",
		   "records of code objects");
	item_print(out, &items, meta->symbols_dropped, "name of a native frame",
		   "names of native frames");
	if (items)
		fputs(" (<unknown>, or without a line)", out);
	item_print(out, &items, meta->readings_dropped, "reading of the heap, which was given up",
		   "readings of the heap, which were given up");
	putc('\n', out);
}

/* What stands at <unknown>, by reasons. */
static void unknown_print(FILE *out, const struct snapshot_meta *meta)
{
	static const char *const why[SNAPSHOT_UNKNOWNS] = {
		[UNKNOWN_NO_FRAME] =
			"without a Python frame (the interpreter's start, threads of C)",
		[UNKNOWN_NO_STACK] = "whose stack was lost",
		[UNKNOWN_NO_ROOM] = "for whose stack there was no memory (--budget)",
		[UNKNOWN_NO_CODE] = "whose frame could not be read",
		[UNKNOWN_NO_NAME] = "whose code has a file name that could not be read",
		[UNKNOWN_NO_FILE] = "in native code that is in no known file",
	};
	char blocks[32], bytes[32];
	int items = 0;

	for (size_t i = 0; i < SNAPSHOT_UNKNOWNS; i++) {
		const struct snapshot_unknowns *unknown = &meta->unknown[i];

		if (!unknown->blocks)
			continue;
		fprintf(out, "%s%s %s (%s) %s",
			items++ ? "; " : "  at <unknown>: ", text_count(blocks, unknown->blocks),
			unknown->blocks == 1 ? "block" : "blocks",
			report_size(bytes, unknown->bytes),
			i == UNKNOWN_NO_FRAME && meta->layer != EVENT_LAYER_PYTHON
				? "without a frame"
				: why[i]);
	}
	if (items)
		putc('\n', out);
}

static void unread_print(FILE *out, const struct snapshot_meta *meta)
{
	char text[32];

	if (meta->layer == EVENT_LAYER_PYTHON || meta->python_version)
		fprintf(out, "  frames that could not be read: %s\n",
			meta->frames_unknown ? text_count(text, meta->frames_unknown) : "none");
	unknown_print(out, meta);
	if (meta->loss[LOSS_FRAME_FAULT])
		fprintf(out, "  tracebacks cut short by a page that was not resident: %s\n",
			text_count(text, meta->loss[LOSS_FRAME_FAULT]));
	if (meta->loss[LOSS_NO_THREAD])
		fprintf(out, "  requests of threads unknown to Python (<unknown>): %s\n",
			text_count(text, meta->loss[LOSS_NO_THREAD]));
	if (meta->stacks_unknown)
		fprintf(out, "  allocations whose stack never came (<unknown>): %s\n",
			text_count(text, meta->stacks_unknown));
	if (meta->replaced)
		fprintf(out,
			"  blocks that died unseen (another came to life at their address): %s\n",
			text_count(text, meta->replaced));
	if (meta->frees_unknown && meta->from_start && !meta->sample_bytes)
		fprintf(out, "  frees of blocks whose allocation was not seen: %s\n",
			text_count(text, meta->frees_unknown));
	if (meta->rounded_blocks)
		fprintf(out,
			"  sizes known only as rounded up by the allocator, by at most 15 bytes: "
			"of %s blocks (rounded=... in their lines)\n",
			text_count(text, meta->rounded_blocks));
	dropped_print(out, meta);
	if (meta->records_malformed)
		fprintf(out, "  malformed records: %s\n",
			text_count(text, meta->records_malformed));
}

/* malloc's heaps are not read: what is older than the trace is not known. */
static void native_print(FILE *out, const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;
	int first = meta->layer == EVENT_LAYER_NATIVE;
	const struct snapshot_table *table = &meta->native;
	char text[32];

	if (!snapshot_has_layer(snapshot, EVENT_LAYER_NATIVE))
		return;
	/* Of the first layer the others have told already. */
	if (!first && !meta->from_start)
		fputs("  native blocks from before the attach are in no line (not measured)\n",
		      out);
	if (!first && table->frees_unknown)
		fprintf(out, "  native frees of blocks that the trace does not know: %s\n",
			text_count(text, table->frees_unknown));
	if (!first && table->replaced)
		fprintf(out,
			"  native blocks that died unseen (another came to life at their address): "
			"%s\n",
			text_count(text, table->replaced));
	if (meta->frames_unnamed)
		fprintf(out, "  native frames of which only the address is known: %s\n",
			text_count(text, meta->frames_unnamed));
	if (meta->frames_slow)
		fprintf(out, "  native frames whose files took too long to read: %s\n",
			text_count(text, meta->frames_slow));
	fprintf(out, "  native tracebacks that end early, in code without frame pointers: %s\n",
		meta->stacks_cut ? text_count(text, meta->stacks_cut) : "none");
}

/*
 * What is worth a remark of one of several processes: "; " before all but the first. Returns how
 * many.
 */
static int remarks_print(FILE *out, const struct snapshot_meta *meta)
{
	const struct snapshot_coverage *counts = &meta->coverage;
	unsigned int seen = permille(counts->seen_blocks, counts->new_blocks);
	int remarks = 0;

	if (meta->layer == EVENT_LAYER_PYTHON && !meta->coverage_known) {
		remarks++;
		if (out)
			fputs("its heap was not read", out);
	} else if (snapshot_is_unread(meta)) {
		remarks++;
		if (out)
			fprintf(out, "its heap was last read %.1f ms before %s end",
				(double)meta->unread_ns / 1e6,
				strcmp(meta->moment, "running") ? "its" : "the");
		if (out && meta->ending.failed == EVENT_CENSUS_CUT)
			fprintf(out,
				" (and %" PRIu64 " arenas at its end, at most %" PRIu64 " not)",
				meta->ending.arenas, meta->ending.arenas_unread);
	}
	if (counts->new_blocks && !meta->sample_bytes && seen < COVERAGE_REMARKED && ++remarks &&
	    out)
		fprintf(out, "%scoverage %u.%u %%", remarks > 1 ? "; " : "", seen / 10, seen % 10);
	if (counts->pools_unreadable && ++remarks && out)
		fprintf(out, "%s%" PRIu64 " pools could not be read", remarks > 1 ? "; " : "",
			counts->pools_unreadable);
	if (meta->change_count && ++remarks && out)
		fprintf(out, "%sits mode has changed (report --pid %u tells what ran when)",
			remarks > 1 ? "; " : "", meta->pid);
	return remarks;
}

static void processes_print(FILE *out, const struct snapshot *snapshot)
{
	size_t found = 0;

	for (size_t i = 0; i < snapshot->process_count; i++) {
		const struct snapshot_meta *meta = &snapshot->processes[i];

		if (!remarks_print(NULL, meta) || found++ >= PROCESSES_REMARKED)
			continue;
		fprintf(out, "  of PID %u (", meta->pid);
		text_print(out, meta->name);
		fputs("): ", out);
		remarks_print(out, meta);
		putc('\n', out);
	}
	if (found > PROCESSES_REMARKED)
		fprintf(out, "  and likewise of %zu more processes (report --pid PID)\n",
			found - PROCESSES_REMARKED);
}

/*
 * What the processes have in memory, and how much of that the report is about. lead, end: what
 * stands around it.
 */
static void rss_print(FILE *out, const struct snapshot *snapshot, const struct report_opts *opts,
		      const char *lead, const char *end)
{
	const struct snapshot_meta *meta = &snapshot->meta;
	size_t processes = snapshot_process_count(snapshot);
	struct explained explained;
	char rss[32], bytes[32];

	if (!report_is_whole(opts) || !explained_read(snapshot, &explained))
		return;
	fprintf(out, "%sRSS %s", lead, report_size(rss, explained.rss_bytes));
	if (processes > explained.processes)
		fprintf(out, " of %zu of %zu processes", explained.processes, processes);
	else if (processes > 1)
		fprintf(out, " of %zu processes", processes);
	if (meta->rss_age_ns >= RSS_OLD_NS)
		fprintf(out, ", read %.1f s before", (double)meta->rss_age_ns / 1e9);
	fprintf(out, ": %s%s in this report", meta->sample_bytes ? "~" : "",
		report_size(bytes, explained.bytes));
	for (int layer = EVENT_LAYER_NATIVE; layer < EVENT_LAYERS; layer++)
		if (!snapshot_has_layer(snapshot, layer)) {
			fputs("; --layer all tells more", out);
			break;
		}
	fputs(end, out);
}

static int heap_is_well(const struct snapshot_meta *meta)
{
	const struct snapshot_coverage *counts = &meta->coverage;

	if (meta->layer != EVENT_LAYER_PYTHON)
		return 1;
	return meta->coverage_known &&
	       permille(counts->seen_blocks, counts->new_blocks) >= COVERAGE_REMARKED &&
	       permille(counts->seen_bytes, counts->new_bytes) >= COVERAGE_REMARKED &&
	       counts->large_seen >= counts->large_new && !counts->pools_unreadable &&
	       !counts->frozen_ns && meta->ending.failed != EVENT_CENSUS_CUT &&
	       !snapshot_is_unread(meta);
}

static int stacks_are_well(const struct snapshot_meta *meta)
{
	for (size_t i = 0; i < SNAPSHOT_UNKNOWNS; i++)
		if (meta->unknown[i].blocks)
			return 0;
	return !(meta->frames_unknown | meta->frames_unnamed | meta->frames_slow |
		 meta->stacks_cut | meta->stacks_unknown | meta->loss[LOSS_FRAME_FAULT] |
		 meta->loss[LOSS_NO_THREAD]);
}

static int blocks_are_well(const struct snapshot_meta *meta)
{
	return !(meta->replaced | meta->native.replaced | meta->native.frees_unknown |
		 meta->blocks_dropped | meta->stacks_dropped | meta->codes_dropped |
		 meta->symbols_dropped | meta->readings_dropped | meta->records_malformed) &&
	       !(meta->from_start && meta->frees_unknown);
}

/*
 * Is there nothing to tell but what is told of every trace? What growth mode and mapped memory
 * leave out is told in full.
 */
static int is_all_well(const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;

	for (size_t i = 0; i < snapshot->process_count; i++)
		if (remarks_print(NULL, &snapshot->processes[i]))
			return 0;
	return !snapshot_lost_events(snapshot) && !meta->sample_bytes &&
	       !snapshot_is_growth(snapshot) && !snapshot_has_layer(snapshot, EVENT_LAYER_MMAP) &&
	       heap_is_well(meta) && stacks_are_well(meta) && blocks_are_well(meta);
}

/*
 * "53,843 blocks (4807 KiB) older than the trace; no event lost, 100.0 % of 13 new small blocks
 * traced".
 */
static void well_print(FILE *out, const struct snapshot *snapshot, const struct report_opts *opts)
{
	const struct snapshot_meta *meta = &snapshot->meta;
	const struct snapshot_coverage *counts = &meta->coverage;
	char text[32];

	if (!meta->from_start && meta->coverage_known) {
		fprintf(out, " %s blocks", text_count(text, counts->old_blocks));
		fprintf(out, " (%s) older than the trace;", report_size(text, counts->old_bytes));
	} else if (!meta->from_start) {
		fputs(" blocks older than the trace (not measured);", out);
	}
	fputs(" no event lost", out);
	if (meta->coverage_known && counts->new_blocks) {
		unsigned int seen = permille(counts->seen_blocks, counts->new_blocks);

		fprintf(out, ", %u.%u %% of %s new small blocks traced", seen / 10, seen % 10,
			text_count(text, counts->new_blocks));
	}
	if (meta->rounded_blocks)
		fprintf(out, ", %s of them with a rounded size",
			text_count(text, meta->rounded_blocks));
	rss_print(out, snapshot, opts, "; ", "");
	putc('\n', out);
}

void not_seen_print(FILE *out, const struct snapshot *snapshot, const char *title,
		    const struct report_opts *opts)
{
	int known = strcmp(snapshot->meta.mode, SNAPSHOT_TRACEMALLOC) != 0;

	fprintf(out, opts->color ? "\033[1m%s:\033[0m" : "%s:", title);
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
	lost_print(out, snapshot);
	older_print(out, snapshot);
	if (snapshot->meta.layer == EVENT_LAYER_PYTHON) {
		coverage_print(out, snapshot);
		heap_print(out, snapshot);
	}
	native_print(out, snapshot);
	mapped_print(out, snapshot);
	unreconciled_print(out, snapshot);
	unread_print(out, &snapshot->meta);
	rss_print(out, snapshot, opts, "  ", "\n");
	processes_print(out, snapshot);
}

void not_seen_brief_print(FILE *out, const struct snapshot *snapshot)
{
	if (strcmp(snapshot->meta.mode, SNAPSHOT_TRACEMALLOC)) {
		sample_print(out, &snapshot->meta);
		lost_print(out, snapshot);
		older_print(out, snapshot);
	}
	fputs("  what else was not seen: tracer report FILE\n", out);
}
