/* SPDX-License-Identifier: Apache-2.0 */
#include "pprof/pprof_meta_fields.h"

#include <stdint.h>

#include "snapshot/snapshot.h"

#define NUMBER(field)                                                                              \
	{                                                                                          \
#field, offsetof(struct snapshot_meta, field),                                     \
			sizeof(((struct snapshot_meta *)0)->field), 0, ALWAYS                      \
	}
#define COVERAGE(field)                                                                            \
	{                                                                                          \
#field, offsetof(struct snapshot_meta, coverage.field),                            \
			sizeof(((struct snapshot_meta *)0)->coverage.field), 0, ALWAYS             \
	}
#define ENDING(field)                                                                              \
	{                                                                                          \
		"ending_" #field, offsetof(struct snapshot_meta, ending.field),                    \
			sizeof(((struct snapshot_meta *)0)->ending.field), 0, KNOWN                \
	}
#define NATIVE(field)                                                                              \
	{                                                                                          \
		"native_" #field, offsetof(struct snapshot_meta, native.field),                    \
			sizeof(((struct snapshot_meta *)0)->native.field), 0, ALWAYS               \
	}
#define UNKNOWN(name, reason)                                                                      \
	{"unknown_" name, offsetof(struct snapshot_meta, unknown[reason].blocks),                  \
	 sizeof(uint64_t), 0, KNOWN},                                                              \
	{                                                                                          \
		"unknown_" name "_bytes", offsetof(struct snapshot_meta, unknown[reason].bytes),   \
			sizeof(uint64_t), 0, KNOWN                                                 \
	}
#define STACK_END(name, reason, when)                                                              \
	{                                                                                          \
		"stacks_" name, offsetof(struct snapshot_meta, stack_ends.reasons[reason]),        \
			sizeof(uint64_t), 0, when                                                  \
	}
#define STACK_END_FILE(name, index)                                                                \
	{"stacks_" name, offsetof(struct snapshot_meta, stack_ends.files[index].path),             \
	 STACK_ENDS_PATH, 1, KNOWN},                                                               \
	{                                                                                          \
		"stacks_" name "_count",                                                           \
			offsetof(struct snapshot_meta, stack_ends.files[index].stacks),            \
			sizeof(uint64_t), 0, KNOWN                                                 \
	}
#define TEXT(field)                                                                                \
	{                                                                                          \
#field, offsetof(struct snapshot_meta, field),                                     \
			sizeof(((struct snapshot_meta *)0)->field), 1, ALWAYS                      \
	}
#define LATER(field, text, when)                                                                   \
	{                                                                                          \
#field, offsetof(struct snapshot_meta, field),                                     \
			sizeof(((struct snapshot_meta *)0)->field), text, when                     \
	}

const struct meta_field pprof_meta_fields[] = {
	NUMBER(pid),
	NUMBER(python_version),
	NUMBER(traceback_limit),
	TEXT(name),
	TEXT(mode),
	TEXT(moment),
	NUMBER(taken_realtime_ns),
	NUMBER(duration_ns),
	NUMBER(from_start),
	NUMBER(peak_bytes),
	NUMBER(frees_unknown),
	NUMBER(replaced),
	NUMBER(stacks_unknown),
	NUMBER(frames_unknown),
	NUMBER(records_malformed),
	NUMBER(layer),
	NUMBER(frames_unnamed),
	NUMBER(frames_slow),
	STACK_END("cut", ABI_UNWIND_CUT_FRAME, ALWAYS),
	NUMBER(rounded_blocks),
	NUMBER(sample_bytes),
	NUMBER(self_sampled),
	NUMBER(self_sampled_ns),
	NUMBER(changes_dropped),
	NUMBER(unread_ns),
	NUMBER(layers),
	NATIVE(peak_bytes),
	NATIVE(frees_unknown),
	NATIVE(replaced),
	NUMBER(large_skipped),
	NUMBER(reuse_unseen),
	NUMBER(pool_bytes),
	NUMBER(regions_dropped),
	NUMBER(blocks_dropped),
	NUMBER(bytes_dropped),
	NUMBER(coverage_known),
	COVERAGE(new_blocks),
	COVERAGE(new_bytes),
	COVERAGE(seen_blocks),
	COVERAGE(seen_bytes),
	COVERAGE(old_blocks),
	COVERAGE(old_bytes),
	COVERAGE(time_ns),
	COVERAGE(live_blocks),
	COVERAGE(live_bytes),
	COVERAGE(large_blocks),
	COVERAGE(pools_unreadable),
	COVERAGE(dead_blocks),
	COVERAGE(elapsed_ns),
	COVERAGE(frozen_ns),
	COVERAGE(large_new),
	COVERAGE(large_seen),
	ENDING(pieces),
	ENDING(steps),
	ENDING(slowest_ns),
	ENDING(arenas),
	ENDING(arenas_unread),
	ENDING(failed),
	LATER(stacks_dropped, 0, KNOWN),
	LATER(codes_dropped, 0, KNOWN),
	LATER(symbols_dropped, 0, KNOWN),
	LATER(walks_dropped, 0, KNOWN),
	UNKNOWN("no_frame", UNKNOWN_NO_FRAME),
	UNKNOWN("no_stack", UNKNOWN_NO_STACK),
	UNKNOWN("no_room", UNKNOWN_NO_MEMORY),
	UNKNOWN("no_code", UNKNOWN_NO_CODE),
	UNKNOWN("no_name", UNKNOWN_NO_NAME),
	UNKNOWN("no_file", UNKNOWN_NO_FILE),
	LATER(of_app, 0, KNOWN),
	LATER(rss_bytes, 0, KNOWN),
	LATER(rss_age_ns, 0, KNOWN),
	LATER(cpu_ns, 0, KNOWN),
	LATER(wait_ns, 0, KNOWN),
	LATER(probes_ns, 0, KNOWN),
	LATER(budget_permille, 0, KNOWN),
	LATER(emptied, 0, KNOWN),
	LATER(ends_unseen, 0, KNOWN),
	LATER(coverage.typed_blocks, 0, KNOWN),
	LATER(coverage.mistyped_blocks, 0, KNOWN),
	LATER(container, 1, KNOWN),
	LATER(ns_pid, 0, KNOWN),
	LATER(parent, 0, OF_SEVERAL),
	LATER(windows.count, 0, KNOWN),
	LATER(windows.on_ns, 0, KNOWN),
	LATER(windows.span_ns, 0, KNOWN),
	LATER(windows.new_blocks, 0, KNOWN),
	LATER(windows.seen_blocks, 0, KNOWN),
	LATER(windows.unseen_blocks, 0, KNOWN),
	LATER(windows.unseen_bytes, 0, KNOWN),
	LATER(windows.old_unseen_blocks, 0, KNOWN),
	LATER(windows.old_unseen_bytes, 0, KNOWN),
	LATER(windows.large, 0, KNOWN),
	LATER(windows.malloc_blocks, 0, KNOWN),
	LATER(windows.pool_blocks, 0, KNOWN),
	LATER(windows.pool_bytes, 0, KNOWN),
	LATER(beside[BESIDE_ALLOCATED].known, 0, KNOWN),
	LATER(beside[BESIDE_ALLOCATED].gaps, 0, KNOWN),
	LATER(beside[BESIDE_FREED].known, 0, KNOWN),
	LATER(beside[BESIDE_FREED].gaps, 0, KNOWN),
	LATER(beside[BESIDE_PEAK].known, 0, KNOWN),
	LATER(beside[BESIDE_PEAK].gaps, 0, KNOWN),
	LATER(beside[BESIDE_THREAD].known, 0, KNOWN),
	LATER(beside[BESIDE_THREAD].gaps, 0, KNOWN),
	LATER(sole_thread[EVENT_LAYER_PYTHON], 0, KNOWN),
	LATER(sole_thread[EVENT_LAYER_NATIVE], 0, KNOWN),
	LATER(sole_thread_name[EVENT_LAYER_PYTHON], 1, KNOWN),
	LATER(sole_thread_name[EVENT_LAYER_NATIVE], 1, KNOWN),
	LATER(tasks, 0, KNOWN),
	LATER(peak_after_ns[EVENT_LAYER_PYTHON], 0, KNOWN),
	LATER(peak_after_ns[EVENT_LAYER_NATIVE], 0, KNOWN),
	LATER(at_peak, 0, KNOWN),
	LATER(allocated_ns, 0, KNOWN),
	LATER(has_exited, 0, KNOWN),
	LATER(wait_status, 0, KNOWN),
	{"stacks_whole", offsetof(struct snapshot_meta, stack_ends.whole), sizeof(uint64_t), 0,
	 KNOWN},
	{"stacks_whole_bytes", offsetof(struct snapshot_meta, stack_ends.whole_bytes),
	 sizeof(uint64_t), 0, KNOWN},
	{"stacks_cut_bytes", offsetof(struct snapshot_meta, stack_ends.cut_bytes), sizeof(uint64_t),
	 0, KNOWN},
	STACK_END("cut_table", ABI_UNWIND_CUT_TABLE, KNOWN),
	STACK_END("cut_row", ABI_UNWIND_CUT_ROW, KNOWN),
	STACK_END("cut_rule", ABI_UNWIND_CUT_RULE, KNOWN),
	STACK_END("cut_code", ABI_UNWIND_CUT_CODE, KNOWN),
	STACK_END("cut_read", ABI_UNWIND_CUT_READ, KNOWN),
	STACK_END("cut_bounds", ABI_UNWIND_CUT_BOUNDS, KNOWN),
	STACK_END("cut_signal", ABI_UNWIND_CUT_SIGNAL, KNOWN),
	STACK_END("cut_return", ABI_UNWIND_CUT_RETURN, KNOWN),
	STACK_END("cut_busy", ABI_UNWIND_CUT_BUSY, KNOWN),
	STACK_END_FILE("cut_in_0", 0),
	STACK_END_FILE("cut_in_1", 1),
	STACK_END_FILE("cut_in_2", 2),
};

const size_t pprof_meta_field_count = sizeof(pprof_meta_fields) / sizeof(pprof_meta_fields[0]);
