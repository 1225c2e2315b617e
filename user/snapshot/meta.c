/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/meta.h"

#include <string.h>

#define KEYED(name, member, in_profile, how, ...)                                                  \
	{                                                                                          \
		.key = (name), .offset = offsetof(struct snapshot_meta, member),                   \
		.size = sizeof(((struct snapshot_meta *)0)->member), .when = META_##in_profile,    \
		.sum = META_##how, ##__VA_ARGS__                                                   \
	}
#define FIELD(member, ...) KEYED(#member, member, __VA_ARGS__)

/* Profiles of earlier versions have these keys: they stay. */
#define EXTRA(what, member)                                                                        \
	KEYED("beside[BESIDE_" #what "]." #member, extra[EXTRA_##what].member, KNOWN, ANY)

#define IN(object)             .json = META_JSON_##object
#define IN_AS(object, name)    .json = META_JSON_##object, .json_key = name
#define CAVEAT(part, sentence) .caveat = META_CAVEAT_##part, .text = sentence

const struct meta_field meta_fields[] = {
	FIELD(pid, ALWAYS, SINGLE),
	FIELD(python_version, ALWAYS, SAME),
	FIELD(traceback_limit, ALWAYS, MOST),
	FIELD(name, ALWAYS, SAME),
	FIELD(mode, ALWAYS, MIXED),
	FIELD(moment, ALWAYS, MIXED),
	FIELD(taken_realtime_ns, ALWAYS, MOST),
	FIELD(duration_ns, ALWAYS, MOST),
	FIELD(from_start, ALWAYS, ALL),
	FIELD(peak_bytes, ALWAYS, SINGLE),
	FIELD(frees_unknown, ALWAYS, SUM, IN(NOT_SEEN)),
	FIELD(replaced, ALWAYS, SUM, IN(NOT_SEEN),
	      CAVEAT(BLOCKS, "blocks freed unseen (their address was allocated again)")),
	FIELD(stacks_unknown, ALWAYS, SUM, IN(NOT_SEEN),
	      CAVEAT(UNKNOWN, "allocations without their stack record (<unknown>)")),
	FIELD(frames_unknown, ALWAYS, SUM, IN(NOT_SEEN)),
	FIELD(records_malformed, ALWAYS, SUM, IN(NOT_SEEN), CAVEAT(RECORDS, "malformed records")),
	FIELD(layer, ALWAYS, SAME),
	FIELD(frames_unnamed, ALWAYS, SUM,
	      CAVEAT(STACKS, "native frames known only by their address")),
	FIELD(frames_slow, ALWAYS, SUM,
	      CAVEAT(STACKS, "native frames whose files took too long to read")),
	KEYED("stacks_cut", stack_ends.reasons[ABI_UNWIND_CUT_FRAME], ALWAYS, OTHER),
	FIELD(rounded_blocks, ALWAYS, SUM, IN(NOT_SEEN)),
	FIELD(sample_bytes, ALWAYS, MOST),
	FIELD(self_sampled, ALWAYS, ANY),
	FIELD(self_sampled_ns, ALWAYS, MOST),
	FIELD(changes_dropped, ALWAYS, SINGLE),
	FIELD(unread_ns, ALWAYS, MOST),
	FIELD(layers, ALWAYS, OTHER),
	KEYED("native_peak_bytes", native.peak_bytes, ALWAYS, SINGLE),
	KEYED("native_frees_unknown", native.frees_unknown, ALWAYS, SUM,
	      CAVEAT(NATIVE, "native frees of blocks unknown to the trace")),
	KEYED("native_replaced", native.replaced, ALWAYS, SUM,
	      CAVEAT(NATIVE, "native blocks freed unseen (their address was allocated again)")),
	FIELD(large_skipped, ALWAYS, ANY),
	FIELD(reuse_unseen, ALWAYS, ANY),
	FIELD(pool_bytes, ALWAYS, SAME),
	FIELD(regions_dropped, ALWAYS, SUM,
	      CAVEAT(MAPPED, "changes of mapped memory beyond the limit")),
	FIELD(blocks_dropped, ALWAYS, SUM),
	FIELD(bytes_dropped, ALWAYS, SUM),
	FIELD(coverage_known, ALWAYS, ANY),
	KEYED("new_blocks", coverage.new_blocks, ALWAYS, SUM, IN(COVERAGE)),
	KEYED("new_bytes", coverage.new_bytes, ALWAYS, SUM, IN(COVERAGE)),
	KEYED("seen_blocks", coverage.seen_blocks, ALWAYS, SUM, IN(COVERAGE)),
	KEYED("seen_bytes", coverage.seen_bytes, ALWAYS, SUM, IN(COVERAGE)),
	KEYED("old_blocks", coverage.old_blocks, ALWAYS, SUM, IN(COVERAGE)),
	KEYED("old_bytes", coverage.old_bytes, ALWAYS, SUM, IN(COVERAGE)),
	KEYED("time_ns", coverage.time_ns, ALWAYS, MOST),
	KEYED("live_blocks", coverage.live_blocks, ALWAYS, SUM, IN(COVERAGE)),
	KEYED("live_bytes", coverage.live_bytes, ALWAYS, SUM, IN(COVERAGE)),
	KEYED("large_blocks", coverage.large_blocks, ALWAYS, SUM, IN(COVERAGE)),
	KEYED("pools_unreadable", coverage.pools_unreadable, ALWAYS, SUM, IN(COVERAGE)),
	KEYED("dead_blocks", coverage.dead_blocks, ALWAYS, SUM),
	KEYED("elapsed_ns", coverage.elapsed_ns, ALWAYS, SUM, IN(COVERAGE)),
	KEYED("frozen_ns", coverage.frozen_ns, ALWAYS, SUM, IN(COVERAGE)),
	KEYED("large_new", coverage.large_new, ALWAYS, SUM, IN(COVERAGE)),
	KEYED("large_seen", coverage.large_seen, ALWAYS, SUM, IN(COVERAGE)),
	KEYED("ending_pieces", ending.pieces, KNOWN, SUM, IN_AS(ENDING, "pieces")),
	KEYED("ending_steps", ending.steps, KNOWN, SUM, IN_AS(ENDING, "steps")),
	KEYED("ending_slowest_ns", ending.slowest_ns, KNOWN, MOST, IN_AS(ENDING, "slowest_ns")),
	KEYED("ending_arenas", ending.arenas, KNOWN, SUM, IN_AS(ENDING, "arenas")),
	KEYED("ending_arenas_unread", ending.arenas_unread, KNOWN, SUM,
	      IN_AS(ENDING, "arenas_unread")),
	KEYED("ending_failed", ending.failed, KNOWN, MOST),
	FIELD(stacks_dropped, KNOWN, SUM, IN(DROPPED)),
	FIELD(codes_dropped, KNOWN, SUM, IN(DROPPED)),
	FIELD(symbols_dropped, KNOWN, SUM, IN(DROPPED)),
	FIELD(walks_dropped, KNOWN, SUM, IN_AS(DROPPED, "readings_dropped")),
	KEYED("unknown_no_frame", unknown[UNKNOWN_NO_FRAME].blocks, KNOWN, SUM),
	KEYED("unknown_no_frame_bytes", unknown[UNKNOWN_NO_FRAME].bytes, KNOWN, SUM),
	KEYED("unknown_no_stack", unknown[UNKNOWN_NO_STACK].blocks, KNOWN, SUM),
	KEYED("unknown_no_stack_bytes", unknown[UNKNOWN_NO_STACK].bytes, KNOWN, SUM),
	KEYED("unknown_no_room", unknown[UNKNOWN_NO_MEMORY].blocks, KNOWN, SUM),
	KEYED("unknown_no_room_bytes", unknown[UNKNOWN_NO_MEMORY].bytes, KNOWN, SUM),
	KEYED("unknown_no_code", unknown[UNKNOWN_NO_CODE].blocks, KNOWN, SUM),
	KEYED("unknown_no_code_bytes", unknown[UNKNOWN_NO_CODE].bytes, KNOWN, SUM),
	KEYED("unknown_no_name", unknown[UNKNOWN_NO_NAME].blocks, KNOWN, SUM),
	KEYED("unknown_no_name_bytes", unknown[UNKNOWN_NO_NAME].bytes, KNOWN, SUM),
	KEYED("unknown_no_file", unknown[UNKNOWN_NO_FILE].blocks, KNOWN, SUM),
	KEYED("unknown_no_file_bytes", unknown[UNKNOWN_NO_FILE].bytes, KNOWN, SUM),
	KEYED("unknown_no_fault", unknown[UNKNOWN_NO_FAULT].blocks, KNOWN, SUM),
	KEYED("unknown_no_fault_bytes", unknown[UNKNOWN_NO_FAULT].bytes, KNOWN, SUM),
	KEYED("pages_resident", pages.resident, KNOWN, SUM, IN_AS(PAGES, "resident")),
	KEYED("pages_before", pages.before, KNOWN, SUM, IN_AS(PAGES, "before")),
	KEYED("pages_before_first", pages.before_first, KNOWN, SUM, IN_AS(PAGES, "before_first")),
	KEYED("pages_unfaulted", pages.unfaulted, KNOWN, SUM, IN_AS(PAGES, "no_fault")),
	KEYED("pages_file", pages.file, KNOWN, SUM, IN_AS(PAGES, "file")),
	KEYED("pages_huge", pages.huge, KNOWN, SUM, IN_AS(PAGES, "huge")),
	KEYED("pages_again", pages.again, KNOWN, SUM, IN_AS(PAGES, "again")),
	KEYED("pages_unread", pages.unread, KNOWN, SUM, IN_AS(PAGES, "unread")),
	FIELD(of_app, KNOWN, ANY),
	FIELD(ages, KNOWN, ALL),
	FIELD(ages_error_ns, KNOWN, MOST),
	FIELD(of_ages, KNOWN, ANY),
	FIELD(rss_bytes, KNOWN, SUM),
	FIELD(rss_age_ns, KNOWN, MOST),
	FIELD(cpu_ns, KNOWN, SUM),
	FIELD(wait_ns, KNOWN, SUM),
	FIELD(probes_ns, KNOWN, SUM),
	FIELD(budget_permille, KNOWN, MOST),
	FIELD(emptied, KNOWN, SUM),
	FIELD(ends_unseen, KNOWN, ANY),
	FIELD(coverage.typed_blocks, KNOWN, SUM, IN_AS(COVERAGE, "typed_blocks")),
	FIELD(coverage.mistyped_blocks, KNOWN, SUM, IN_AS(COVERAGE, "mistyped_blocks")),
	FIELD(container, KNOWN, SAME),
	FIELD(service, KNOWN, SAME),
	FIELD(version, KNOWN, SAME),
	FIELD(boot, KNOWN, SAME),
	FIELD(start_ticks, KNOWN, SINGLE),
	FIELD(ns_pid, KNOWN, SINGLE),
	FIELD(parent, OF_SEVERAL, SINGLE),
	FIELD(windows.count, KNOWN, MOST),
	FIELD(windows.on_ns, KNOWN, SUM),
	FIELD(windows.span_ns, KNOWN, SUM),
	FIELD(windows.new_blocks, KNOWN, SUM),
	FIELD(windows.seen_blocks, KNOWN, SUM),
	FIELD(windows.unseen_blocks, KNOWN, SUM),
	FIELD(windows.unseen_bytes, KNOWN, SUM),
	FIELD(windows.old_unseen_blocks, KNOWN, SUM),
	FIELD(windows.old_unseen_bytes, KNOWN, SUM),
	FIELD(windows.large, KNOWN, ANY),
	FIELD(windows.malloc_blocks, KNOWN, SUM),
	FIELD(windows.pool_blocks, KNOWN, SUM),
	FIELD(windows.pool_bytes, KNOWN, SUM),
	FIELD(windows.allocated_bytes, KNOWN, SINGLE),
	FIELD(windows.allocated_low, KNOWN, SINGLE),
	FIELD(windows.allocated_high, KNOWN, SINGLE),
	FIELD(windows.allocated_by_work, KNOWN, SINGLE),
	EXTRA(ALLOCATED, known),
	EXTRA(ALLOCATED, gaps),
	EXTRA(FREED, known),
	EXTRA(FREED, gaps),
	EXTRA(PEAK, known),
	EXTRA(PEAK, gaps),
	EXTRA(THREAD, known),
	EXTRA(THREAD, gaps),
	FIELD(sole_thread[EVENT_LAYER_PYTHON], KNOWN, SINGLE),
	FIELD(sole_thread[EVENT_LAYER_NATIVE], KNOWN, SINGLE),
	FIELD(sole_thread_name[EVENT_LAYER_PYTHON], KNOWN, SINGLE),
	FIELD(sole_thread_name[EVENT_LAYER_NATIVE], KNOWN, SINGLE),
	FIELD(tasks, KNOWN, ALL),
	FIELD(label, KNOWN, SAME),
	FIELD(labels_hashed, KNOWN, ALL),
	FIELD(peak_after_ns[EVENT_LAYER_PYTHON], KNOWN, SINGLE),
	FIELD(peak_after_ns[EVENT_LAYER_NATIVE], KNOWN, SINGLE),
	FIELD(at_peak, KNOWN, OTHER),
	FIELD(allocated_ns, KNOWN, MOST),
	FIELD(has_exited, KNOWN, SINGLE),
	FIELD(wait_status, KNOWN, SINGLE),
	FIELD(oom_killed, KNOWN, SINGLE),
	FIELD(collections.known, KNOWN, ALL),
	FIELD(collections.full, KNOWN, SUM),
	FIELD(collections.all, KNOWN, SUM),
	FIELD(collections.collected, KNOWN, SUM),
	KEYED("stacks_whole", stack_ends.whole, KNOWN, OTHER),
	KEYED("stacks_whole_bytes", stack_ends.whole_bytes, KNOWN, OTHER),
	KEYED("stacks_cut_bytes", stack_ends.cut_bytes, KNOWN, OTHER),
	KEYED("stacks_cut_table", stack_ends.reasons[ABI_UNWIND_CUT_TABLE], KNOWN, OTHER),
	KEYED("stacks_cut_row", stack_ends.reasons[ABI_UNWIND_CUT_ROW], KNOWN, OTHER),
	KEYED("stacks_cut_rule", stack_ends.reasons[ABI_UNWIND_CUT_RULE], KNOWN, OTHER),
	KEYED("stacks_cut_code", stack_ends.reasons[ABI_UNWIND_CUT_CODE], KNOWN, OTHER),
	KEYED("stacks_cut_read", stack_ends.reasons[ABI_UNWIND_CUT_READ], KNOWN, OTHER),
	KEYED("stacks_cut_bounds", stack_ends.reasons[ABI_UNWIND_CUT_BOUNDS], KNOWN, OTHER),
	KEYED("stacks_cut_signal", stack_ends.reasons[ABI_UNWIND_CUT_SIGNAL], KNOWN, OTHER),
	KEYED("stacks_cut_return", stack_ends.reasons[ABI_UNWIND_CUT_RETURN], KNOWN, OTHER),
	KEYED("stacks_cut_busy", stack_ends.reasons[ABI_UNWIND_CUT_BUSY], KNOWN, OTHER),
	KEYED("stacks_cut_in_0", stack_ends.files[0].path, KNOWN, OTHER),
	KEYED("stacks_cut_in_0_count", stack_ends.files[0].stacks, KNOWN, OTHER),
	KEYED("stacks_cut_in_1", stack_ends.files[1].path, KNOWN, OTHER),
	KEYED("stacks_cut_in_1_count", stack_ends.files[1].stacks, KNOWN, OTHER),
	KEYED("stacks_cut_in_2", stack_ends.files[2].path, KNOWN, OTHER),
	KEYED("stacks_cut_in_2_count", stack_ends.files[2].stacks, KNOWN, OTHER),
};

const size_t meta_field_count = sizeof(meta_fields) / sizeof(meta_fields[0]);

/* clang-format off */
const struct meta_loss meta_losses[LOSS_COUNT] = {
	[LOSS_ALLOC] = {"lost_allocs", "allocation", "allocations", 1},
	[LOSS_ALLOC_BYTES] = {.json_key = "lost_alloc_bytes"},
	[LOSS_FREE] = {"lost_frees", "free", "frees", 1},
	[LOSS_REALLOC] = {"lost_reallocs", "realloc", "reallocs", 1},
	[LOSS_STACK] = {"lost_stacks", "stack", "stacks", 1},
	[LOSS_CODE] = {"lost_codes", "code object", "code objects", 1},
	[LOSS_PROCESS] = {"lost_process_events", "event of the process",
			  "events of the process", 1},
	[LOSS_THREAD_STATE] = {"no_thread_memory", "request without memory for its thread's state",
			       "requests without memory for their thread's state", 0},
	[LOSS_NO_THREAD] = {.json_key = "no_python_thread"},
	[LOSS_FRAME_FAULT] = {.json_key = "frame_faults"},
	[LOSS_RETURN] = {"missing_returns", "request whose return was not seen",
			 "requests whose return was not seen", 0},
	[LOSS_REUSE] = {"lost_reuses", "reuse of a dead object", "reuses of dead objects", 1},
	[LOSS_MAP] = {"lost_mappings", "change of mapped memory", "changes of mapped memory", 1},
	[LOSS_SHARER] = {"memory_sharers",
			 "process that shares a target's memory and is no thread of it: its "
			 "requests",
			 "processes that share a target's memory and are no threads of it: their "
			 "requests", 0},
};
/* clang-format on */

bool meta_is_text(const struct meta_field *field)
{
	return field->size > sizeof(uint64_t);
}

uint64_t meta_number(const struct snapshot_meta *meta, const struct meta_field *field)
{
	const char *at = (const char *)meta + field->offset;
	uint32_t half;
	uint64_t whole;

	if (field->size == sizeof(half)) {
		memcpy(&half, at, sizeof(half));
		return half;
	}
	memcpy(&whole, at, sizeof(whole));
	return whole;
}

void meta_number_set(struct snapshot_meta *meta, const struct meta_field *field, uint64_t number)
{
	uint32_t half = (uint32_t)number;

	memcpy((char *)meta + field->offset,
	       field->size == sizeof(half) ? (void *)&half : (void *)&number, field->size);
}

const char *meta_text(const struct snapshot_meta *meta, const struct meta_field *field)
{
	return (const char *)meta + field->offset;
}

bool meta_is_known(const struct snapshot_meta *meta, const struct meta_field *field)
{
	return meta_is_text(field) ? meta_text(meta, field)[0] != 0 : meta_number(meta, field) != 0;
}

/* Clears the whole array, because such texts are compared and copied with their padding. */
static void text_add(struct snapshot_meta *sum, const struct snapshot_meta *one,
		     const struct meta_field *field)
{
	char *text = (char *)sum + field->offset;

	if (field->sum != META_SINGLE && !strcmp(text, meta_text(one, field)))
		return;
	memset(text, 0, field->size);
	if (field->sum == META_MIXED)
		memcpy(text, SNAPSHOT_MIXED, sizeof(SNAPSHOT_MIXED));
}

static uint64_t number_sum(enum meta_sum how, uint64_t sum, uint64_t one)
{
	switch (how) {
	case META_SUM:
		return sum + one;
	case META_MOST:
		return sum > one ? sum : one;
	case META_ANY:
		return sum | one;
	case META_ALL:
		return sum & one;
	case META_SAME:
		return sum == one ? sum : 0;
	default:
		return 0;
	}
}

void meta_add(struct snapshot_meta *sum, const struct snapshot_meta *one)
{
	for (const struct meta_field *field = meta_fields; field < meta_fields + meta_field_count;
	     field++)
		if (field->sum == META_OTHER)
			continue;
		else if (meta_is_text(field))
			text_add(sum, one, field);
		else
			meta_number_set(sum, field,
					number_sum(field->sum, meta_number(sum, field),
						   meta_number(one, field)));
}
