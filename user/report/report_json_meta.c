/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the JSON that describes a snapshot or a process, and what it lacks. */
#include <inttypes.h>
#include <string.h>

#include "layouts/version.h"
#include "remarks/contradictions.h"
#include "remarks/modes.h"
#include "remarks/windows.h"
#include "report/report_parts.h"
#include "text/json.h"

static void coverage_write(FILE *out, const struct snapshot_meta *meta)
{
	const struct snapshot_coverage *counts = &meta->coverage;

	if (!meta->coverage_known) {
		fputs("\"coverage\": null", out);
		return;
	}
	fprintf(out,
		"\"coverage\": {\"live_blocks\": %" PRIu64 ", \"live_bytes\": %" PRIu64
		", \"new_blocks\": %" PRIu64 ", \"new_bytes\": %" PRIu64
		", \"seen_blocks\": %" PRIu64 ", \"seen_bytes\": %" PRIu64
		", \"old_blocks\": %" PRIu64 ", \"old_bytes\": %" PRIu64
		", \"large_blocks\": %" PRIu64 ", \"large_new\": %" PRIu64
		", \"large_seen\": %" PRIu64 ", \"typed_blocks\": %" PRIu64
		", \"mistyped_blocks\": %" PRIu64 ", \"pools_unreadable\": %" PRIu64
		", \"elapsed_ns\": %" PRIu64 ", \"frozen_ns\": %" PRIu64 ", \"unread_ns\": %" PRIu64
		"}",
		counts->live_blocks, counts->live_bytes, counts->new_blocks, counts->new_bytes,
		counts->seen_blocks, counts->seen_bytes, counts->old_blocks, counts->old_bytes,
		counts->large_blocks, counts->large_new, counts->large_seen, counts->typed_blocks,
		counts->mistyped_blocks, counts->pools_unreadable, counts->elapsed_ns,
		counts->frozen_ns, meta->unread_ns);
}

/* How the kernel walked the heap at the end. */
static void ending_write(FILE *out, const struct snapshot_ending *ending)
{
	if (!ending->pieces)
		return;
	fprintf(out,
		"\"ending\": {\"pieces\": %" PRIu64 ", \"steps\": %" PRIu64
		", \"slowest_ns\": %" PRIu64 ", \"arenas\": %" PRIu64
		", \"arenas_unread\": %" PRIu64 ", \"whole\": %s}, ",
		ending->pieces, ending->steps, ending->slowest_ns, ending->arenas,
		ending->arenas_unread,
		ending->failed == EVENT_CENSUS_CUT || ending->failed == EVENT_CENSUS_GIVEN_UP
			? "false"
			: "true");
}

/* Why blocks are charged to <unknown>. */
static void unknown_write(FILE *out, const struct snapshot_meta *meta)
{
	static const char *const names[SNAPSHOT_UNKNOWNS] = {
		[UNKNOWN_NO_FRAME] = "no_frame", [UNKNOWN_NO_STACK] = "no_stack",
		[UNKNOWN_NO_MEMORY] = "no_room", [UNKNOWN_NO_CODE] = "no_code",
		[UNKNOWN_NO_NAME] = "no_name",   [UNKNOWN_NO_FILE] = "no_file",
	};
	int items = 0;

	for (size_t i = 0; i < SNAPSHOT_UNKNOWNS; i++)
		if (meta->unknown[i].blocks)
			fprintf(out, "%s\"%s\": {\"size\": %" PRIu64 ", \"count\": %" PRIu64 "}",
				items++ ? ", " : ", \"unknown\": {", names[i],
				meta->unknown[i].bytes, meta->unknown[i].blocks);
	if (items)
		putc('}', out);
}

/* lost: also the counters of the whole session. */
static void not_seen_write(FILE *out, const struct snapshot_meta *meta, int lost)
{
	static const char *const names[LOSS_COUNT] = {
		[LOSS_ALLOC] = "lost_allocs",
		[LOSS_ALLOC_BYTES] = "lost_alloc_bytes",
		[LOSS_FREE] = "lost_frees",
		[LOSS_REALLOC] = "lost_reallocs",
		[LOSS_STACK] = "lost_stacks",
		[LOSS_CODE] = "lost_codes",
		[LOSS_PROCESS] = "lost_process_events",
		[LOSS_THREAD_STATE] = "no_thread_memory",
		[LOSS_NO_THREAD] = "no_python_thread",
		[LOSS_FRAME_FAULT] = "frame_faults",
		[LOSS_RETURN] = "missing_returns",
		[LOSS_REUSE] = "lost_reuses",
		[LOSS_MAP] = "lost_mappings",
		[LOSS_SHARER] = "memory_sharers",
	};

	const struct {
		const char *name;
		uint64_t count;
	} dropped[] = {
		{"stacks_dropped", meta->stacks_dropped},
		{"codes_dropped", meta->codes_dropped},
		{"symbols_dropped", meta->symbols_dropped},
		{"readings_dropped", meta->walks_dropped},
	};

	fprintf(out,
		"\"not_seen\": {\"frees_unknown\": %" PRIu64 ", \"replaced\": %" PRIu64
		", \"stacks_unknown\": %" PRIu64 ", \"frames_unknown\": %" PRIu64
		", \"records_malformed\": %" PRIu64 ", \"rounded_blocks\": %" PRIu64,
		meta->frees_unknown, meta->replaced, meta->stacks_unknown, meta->frames_unknown,
		meta->records_malformed, meta->rounded_blocks);
	for (unsigned int i = 0; lost && i < LOSS_COUNT; i++) {
		if (names[i])
			fprintf(out, ", \"%s\": %" PRIu64, names[i], meta->loss[i]);
		else if (meta->loss[i])
			fprintf(out, ", \"lost_%u\": %" PRIu64, i, meta->loss[i]);
	}
	if (meta->blocks_dropped)
		fprintf(out, ", \"blocks_dropped\": %" PRIu64 ", \"bytes_dropped\": %" PRIu64,
			meta->blocks_dropped, meta->bytes_dropped);
	if (meta->ending.failed == EVENT_CENSUS_CUT)
		fprintf(out, ", \"arenas_unread\": %" PRIu64, meta->ending.arenas_unread);
	for (size_t i = 0; i < sizeof(dropped) / sizeof(dropped[0]); i++)
		if (dropped[i].count)
			fprintf(out, ", \"%s\": %" PRIu64, dropped[i].name, dropped[i].count);
	unknown_write(out, meta);
	/* Without native frames the keys stay as they were before the native layer. */
	if (meta->layer != EVENT_LAYER_PYTHON || meta->layers & 1u << EVENT_LAYER_NATIVE)
		fprintf(out, ", \"frames_unnamed\": %" PRIu64 ", \"stacks_cut\": %" PRIu64,
			meta->frames_unnamed, stack_ends_cut_count(&meta->stack_ends));
	if (meta->reuse_unseen)
		fputs(", \"reuse\": true", out);
	if (meta->frames_slow)
		fprintf(out, ", \"frames_slow\": %" PRIu64, meta->frames_slow);
	putc('}', out);
}

/* How many native stacks are whole, and why the others are not. */
static void stack_ends_write(FILE *out, const struct stack_ends *ends)
{
	const char *separator = "";

	fprintf(out,
		"\"stacks\": {\"whole\": %" PRIu64 ", \"cut\": %" PRIu64
		", \"whole_bytes\": %" PRIu64 ", \"cut_bytes\": %" PRIu64 ", \"reasons\": {",
		ends->whole, stack_ends_cut_count(ends), ends->whole_bytes, ends->cut_bytes);
	for (uint32_t i = 0; i < STACK_ENDS_REASONS; i++) {
		if (!ends->reasons[i])
			continue;
		fprintf(out, "%s\"%s\": %" PRIu64, separator, stack_ends_reason(i) ?: "other",
			ends->reasons[i]);
		separator = ", ";
	}
	fputs("}, \"files\": {", out);
	separator = "";
	for (size_t i = 0; i < STACK_ENDS_FILES; i++) {
		if (!ends->files[i].path[0])
			continue;
		fputs(separator, out);
		json_string(out, ends->files[i].path);
		fprintf(out, ": %" PRIu64, ends->files[i].stacks);
		separator = ", ";
	}
	fputs("}}, ", out);
}

/* of_several: one of several processes; the loss counters belong to the whole session. */
static void meta_write(FILE *out, const struct snapshot_meta *meta, int of_several)
{
	char version[VERSION_TEXT];

	contradictions_json(out, meta);
	json_member(out, "name", meta->name);
	fputs(", \"python\": ", out);
	if (meta->python_version)
		json_string(out, version_text(version, meta->python_version));
	else
		fputs("null", out);
	fputs(", ", out);
	json_member(out, "mode", meta->mode);
	fputs(", ", out);
	if (meta->layer != EVENT_LAYER_PYTHON) {
		json_member(out, "layer", event_layer_name(meta->layer));
		fputs(", ", out);
	}
	json_member(out, "moment", meta->moment);
	fprintf(out, ", \"from_start\": %s, \"duration_ns\": %" PRIu64 ", \"peak_size\": ",
		meta->from_start ? "true" : "false", meta->duration_ns);
	if (meta->peak_bytes)
		fprintf(out, "%" PRIu64 ", ", meta->peak_bytes);
	else
		fputs("null, ", out);
	if (meta->at_peak)
		fprintf(out, "\"at_peak\": true, \"peak_after_ns\": %" PRIu64 ", ",
			meta->layer < EVENT_LAYER_TABLES ? meta->peak_after_ns[meta->layer] : 0);
	if (!strcmp(meta->mode, "growth"))
		fprintf(out, "\"pool_size\": %u, \"large_blocks_traced\": %s, ", meta->pool_bytes,
			meta->large_skipped ? "false" : "true");
	if (meta->of_app)
		fputs("\"of_app\": true, ", out);
	if (meta->self_sampled)
		fprintf(out, "\"self_sampled\": true, \"self_sampled_ns\": %" PRIu64 ", ",
			meta->self_sampled_ns);
	if (meta->sample_bytes)
		fprintf(out, "\"sample_bytes\": %" PRIu64 ", ", meta->sample_bytes);
	windows_json(out, meta);
	modes_json(out, meta);
	coverage_write(out, meta);
	fputs(", ", out);
	ending_write(out, &meta->ending);
	if (meta->layer != EVENT_LAYER_PYTHON || meta->layers & 1u << EVENT_LAYER_NATIVE)
		stack_ends_write(out, &meta->stack_ends);
	not_seen_write(out, meta, !of_several);
}

void report_json_meta(const struct snapshot *snapshot, FILE *out)
{
	if (snapshot->process_count)
		fputs("\"pid\": null, ", out);
	else
		fprintf(out, "\"pid\": %u, ", snapshot->meta.pid);
	meta_write(out, &snapshot->meta, 0);
}

void report_json_process_meta(const struct snapshot_meta *process, FILE *out)
{
	meta_write(out, process, 1);
}
