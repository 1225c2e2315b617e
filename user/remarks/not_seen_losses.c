/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each kind of loss makes different figures wrong, and the text says which: a lost free leaves a
 * dead block among the live ones, a lost allocation omits a live block, and a lost stack or code
 * record leaves a block of the right size at <unknown>.
 */
#include "remarks/not_seen_losses.h"

#include "text/size.h"
#include "text/text.h"

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

void not_seen_lost_print(FILE *out, const struct snapshot *snapshot)
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

void not_seen_unread_print(FILE *out, const struct snapshot_meta *meta)
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
		fprintf(out, "  allocations without their stack record (<unknown>): %s\n",
			text_count(text, meta->stacks_unknown));
	if (meta->replaced)
		fprintf(out, "  blocks freed unseen (their address was allocated again): %s\n",
			text_count(text, meta->replaced));
	if (meta->frees_unknown && meta->from_start && !snapshot_is_estimated(meta))
		fprintf(out, "  frees of blocks whose allocation was not seen: %s\n",
			text_count(text, meta->frees_unknown));
	if (meta->rounded_blocks)
		fprintf(out,
			"  sizes rounded up by the allocator, by at most 15 bytes: those of %s "
			"blocks (rounded=... in their lines)\n",
			text_count(text, meta->rounded_blocks));
	dropped_print(out, meta);
	if (meta->records_malformed)
		fprintf(out, "  malformed records: %s\n",
			text_count(text, meta->records_malformed));
}
