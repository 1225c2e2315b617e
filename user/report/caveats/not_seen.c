/* SPDX-License-Identifier: Apache-2.0 */
#include "report/caveats/not_seen.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/caveats/not_seen_heap.h"
#include "report/caveats/slowed.h"
#include "snapshot/group/explained.h"
#include "snapshot/meta.h"
#include "util/size.h"
#include "util/text.h"

/* --- not seen losses -------------------------------------------------------------------------- */

/* Events that were lost, and what was dropped, malformed or unreadable. For not_seen.c. */

/*
 * Each kind of loss makes different figures wrong, and the text says which: a lost free leaves a
 * dead block among the live ones, a lost allocation omits a live block, and a lost stack or code
 * record leaves a block of the right size at <unknown>.
 */

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
		fprintf(out, " of %s", size_text(text, loss[LOSS_ALLOC_BYTES]));
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
	if (items) /* the kinds above are lost when the ring buffer is full */
		fputs(" (ring buffer full)", out);
	item_print(out, &items, loss[LOSS_THREAD_STATE],
		   "request without memory for its thread's state",
		   "requests without memory for their thread's state");
	item_print(out, &items, loss[LOSS_RETURN], "request whose return was not seen",
		   "requests whose return was not seen");
	item_print(out, &items, loss[LOSS_SHARER],
		   "process that shares a target's memory and is no thread of it: its requests",
		   "processes that share a target's memory and are no threads of it: their "
		   "requests");
	for (unsigned int i = LOSS_SHARER + 1; i < LOSS_COUNT; i++)
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

/* What was dropped because the memory budget was used up. */
static void dropped_print(FILE *out, const struct snapshot_meta *meta)
{
	char text[32];
	int items = 0;

	if (meta->blocks_dropped) {
		fprintf(out, "  blocks beyond the memory budget (--budget): %s",
			text_count(text, meta->blocks_dropped));
		fprintf(out, " of %s were dropped, and are not in the report\n",
			size_text(text, meta->bytes_dropped));
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
	};
	char blocks[32], bytes[32];
	int items = 0;

	for (size_t i = 0; i < SNAPSHOT_UNKNOWNS; i++) {
		const struct snapshot_unknowns *unknown = &meta->unknown[i];

		if (!unknown->blocks)
			continue;
		fprintf(out, "%s%s %s (%s) %s",
			items++ ? "; " : "  at <unknown>: ", text_count(blocks, unknown->blocks),
			unknown->blocks == 1 ? "block" : "blocks", size_text(bytes, unknown->bytes),
			i == UNKNOWN_NO_FRAME && meta->layer != EVENT_LAYER_PYTHON
				? "without a frame"
				: why[i]);
	}
	if (items)
		putc('\n', out);
}

/* The lines of meta_fields that belong to one part of the text. */
static void caveats_print(FILE *out, const struct snapshot_meta *meta, enum meta_caveat part)
{
	char text[32];

	for (size_t i = 0; i < meta_field_count; i++)
		if (meta_fields[i].caveat == part && meta_is_known(meta, &meta_fields[i]))
			fprintf(out, "  %s: %s\n", meta_fields[i].text,
				text_count(text, meta_number(meta, &meta_fields[i])));
}

/* Frames, stacks and blocks that could not be read, attributed or kept. */
static void not_seen_unread_print(FILE *out, const struct snapshot_meta *meta)
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
	caveats_print(out, meta, META_CAVEAT_UNKNOWN);
	caveats_print(out, meta, META_CAVEAT_BLOCKS);
	if (meta->frees_unknown && meta->from_start && !snapshot_is_estimated(meta))
		fprintf(out, "  frees of blocks whose allocation was not seen: %s\n",
			text_count(text, meta->frees_unknown));
	if (meta->rounded_blocks)
		fprintf(out,
			"  sizes rounded up by the allocator, by at most 15 bytes: those of %s "
			"blocks (rounded=... in their lines)\n",
			text_count(text, meta->rounded_blocks));
	dropped_print(out, meta);
	caveats_print(out, meta, META_CAVEAT_RECORDS);
}

/* --- not seen --------------------------------------------------------------------------------- */

#define RSS_OLD_NS 100000000
/* the attach itself takes as long */
#define SELF_SAMPLED_LATE_NS 100000000
#define COVERAGE_REMARKED    990u /* permille: a process with less gets a remark */
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
	char text[32];

	if (meta->sample_bytes)
		fprintf(out,
			"  sampled: one block for every %s allocated (--sample); sizes and counts "
			"above are estimates, ± one standard error; event counts below are those "
			"of the sample\n",
			size_text(text, meta->sample_bytes));
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
	char text[32];

	fputs("  older than the trace: ", out);
	if (meta->from_start) {
		fputs("nothing, the process was traced from its start\n", out);
		return;
	}
	if (meta->coverage_known) {
		/* A new block that is not in the sample may reuse the address of an older one. */
		fprintf(out, "%s%s %s", snapshot_is_estimated(meta) ? "at most " : "",
			text_count(text, meta->coverage.old_blocks), units(snapshot));
		fprintf(out, " (%s) on the heap are not %s",
			size_text(text, meta->coverage.old_bytes),
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
			text_count(text, meta->frees_unknown));
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
	caveats_print(out, meta, META_CAVEAT_MAPPED);
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
	char text[32];

	if (!all)
		return;
	fprintf(out, "  native stacks that are whole: %u.%u %% of %s", whole / 10, whole % 10,
		text_count(text, all));
	if (bytes) {
		whole = not_seen_permille(ends->whole_bytes, bytes);
		fprintf(out, ", with %u.%u %% of the bytes", whole / 10, whole % 10);
	}
	if (cut)
		fprintf(out, "; %s end early", text_count(text, cut));
	for (uint32_t i = 0; i < STACK_ENDS_REASONS; i++) {
		if (!ends->reasons[i])
			continue;
		fprintf(out, "%s%s %s", separator, text_count(text, ends->reasons[i]),
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
			text_count(text, ends->files[i].stacks));
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
	caveats_print(out, meta, META_CAVEAT_NATIVE);
}

/* Native stacks: of native blocks, and of mapped memory. */
static void native_stacks_print(FILE *out, const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;

	if (!snapshot_has_layer(snapshot, EVENT_LAYER_NATIVE) &&
	    !snapshot_has_layer(snapshot, EVENT_LAYER_MMAP))
		return;
	caveats_print(out, meta, META_CAVEAT_STACKS);
	stack_ends_print(out, &meta->stack_ends);
}

/*
 * The remarks about one of several processes, separated by "; ". Returns their number. out NULL:
 * only counts.
 */
static int remarks_print(FILE *out, const struct snapshot_meta *meta)
{
	const struct snapshot_coverage *counts = &meta->coverage;
	unsigned int seen = not_seen_permille(counts->seen_blocks, counts->new_blocks);
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
			fprintf(out, " (at its end %" PRIu64 " arenas, at most %" PRIu64 " not)",
				meta->ending.arenas, meta->ending.arenas_unread);
	}
	if (counts->new_blocks && !snapshot_is_estimated(meta) && seen < COVERAGE_REMARKED &&
	    ++remarks && out) {
		fprintf(out, "%scoverage %u.%u %%", remarks > 1 ? "; " : "", seen / 10, seen % 10);
		/* A probe in a process is not inherited. */
		if (meta->parent && !meta->change_count)
			fprintf(out,
				": %" PRIu64 " small blocks are in no line, from between the fork "
				"and its probes",
				counts->new_blocks - counts->seen_blocks);
	}
	if (counts->pools_unreadable && ++remarks && out)
		fprintf(out, "%s%" PRIu64 " pools could not be read", remarks > 1 ? "; " : "",
			counts->pools_unreadable);
	if (meta->change_count && ++remarks && out)
		fprintf(out, "%sits mode changed (report --pid %u shows when)",
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
		fprintf(out, "  PID %u (", meta->pid);
		text_print(out, meta->name);
		fputs("): ", out);
		remarks_print(out, meta);
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
	char rss[32], bytes[32];

	if (!opts->whole || !explained_read(snapshot, &explained))
		return;
	fprintf(out, "%sRSS %s", lead, size_text(rss, explained.rss_bytes));
	if (processes > explained.processes)
		fprintf(out, " of %zu of %zu processes", explained.processes, processes);
	else if (processes > 1)
		fprintf(out, " of %zu processes", processes);
	if (meta->rss_age_ns >= RSS_OLD_NS)
		fprintf(out, ", read %.1f s before", (double)meta->rss_age_ns / 1e9);
	fprintf(out, ": %s%s in this report", snapshot_is_estimated(meta) ? "~" : "",
		size_text(bytes, explained.bytes));
	for (int layer = EVENT_LAYER_NATIVE; layer < EVENT_LAYERS; layer++)
		if (!snapshot_has_layer(snapshot, layer)) {
			fputs("; --layer all shows more", out);
			break;
		}
	fputs(end, out);
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
	double share = tiny ? 0 : (double)meta->probes_ns / (double)meta->cpu_ns;

	if (!opts->whole || (tiny && !meta->budget_permille))
		return;
	if (tiny)
		fprintf(out, "%sthe probes took less than 0.01 %% of %s CPU time", lead, whose);
	else
		fprintf(out, "%sthe probes took %.*f %% of %s CPU time, %.2f s of %.2f s", lead,
			share < 0.1 ? 1 : 0, 100 * share, whose, (double)meta->probes_ns / 1e9,
			(double)meta->cpu_ns / 1e9);
	if (meta->budget_permille)
		fprintf(out, ", the budget is %g %%", meta->budget_permille / 10.0);
	else if (share >= COST_SLOWED)
		fprintf(out, ", which slowed %s to 1/%.0f", snapshot->process_count ? "them" : "it",
			cost_slowed(share));
	fputs(end, out);
}

static int heap_is_well(const struct snapshot_meta *meta)
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

static int stacks_are_well(const struct snapshot_meta *meta)
{
	for (size_t i = 0; i < SNAPSHOT_UNKNOWNS; i++)
		if (meta->unknown[i].blocks)
			return 0;
	return !(meta->frames_unknown | stack_ends_cut_count(&meta->stack_ends) |
		 meta->loss[LOSS_FRAME_FAULT] | meta->loss[LOSS_NO_THREAD]);
}

static int blocks_are_well(const struct snapshot_meta *meta)
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
static int is_all_well(const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;

	for (size_t i = 0; i < snapshot->process_count; i++)
		if (remarks_print(NULL, &snapshot->processes[i]))
			return 0;
	return !snapshot_lost_events(snapshot) && !snapshot_is_estimated(meta) &&
	       !snapshot_is_growth(snapshot) && !snapshot_has_layer(snapshot, EVENT_LAYER_MMAP) &&
	       heap_is_well(meta) && stacks_are_well(meta) && blocks_are_well(meta);
}

/*
 * "53,843 blocks (4807 KiB) older than the trace; no event lost, 100.0 % of 13 new small blocks
 * traced".
 */
static void well_print(FILE *out, const struct snapshot *snapshot, const struct not_seen_opts *opts)
{
	const struct snapshot_meta *meta = &snapshot->meta;
	const struct snapshot_coverage *counts = &meta->coverage;
	char text[32];

	if (!meta->from_start && meta->coverage_known) {
		fprintf(out, " %s blocks", text_count(text, counts->old_blocks));
		fprintf(out, " (%s) older than the trace;", size_text(text, counts->old_bytes));
	} else if (!meta->from_start && !meta->windows.count) {
		fputs(" blocks older than the trace (not measured);", out);
	}
	fputs(" no event lost", out);
	if (meta->coverage_known && counts->new_blocks) {
		unsigned int seen = not_seen_permille(counts->seen_blocks, counts->new_blocks);

		fprintf(out, ", %u.%u %% of %s new small blocks traced", seen / 10, seen % 10,
			text_count(text, counts->new_blocks));
	}
	if (meta->rounded_blocks)
		fprintf(out, ", %s of them with a rounded size",
			text_count(text, meta->rounded_blocks));
	if (meta->stack_ends.whole)
		fprintf(out, ", all %s native stacks whole",
			text_count(text, meta->stack_ends.whole));
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
	if (snapshot->meta.layer == EVENT_LAYER_PYTHON)
		not_seen_coverage_print(out, snapshot);
	native_print(out, snapshot);
	native_stacks_print(out, snapshot);
	mapped_print(out, snapshot);
	not_seen_unread_heap_print(out, snapshot);
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
		not_seen_lost_print(out, snapshot);
		older_print(out, snapshot);
	}
	fputs("  for all that was not seen: tracer report FILE\n", out);
}
