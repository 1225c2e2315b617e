/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/blind.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

/*
 * Of a sample, or of a part of the time, nothing need be seen; what a fork has inherited is new to
 * its heap alone.
 */
static int is_traced_whole(const struct trace_process *process)
{
	return !process->sample_bytes && !process->change_count && !process->off &&
	       !process->parent && process->coverage.time_ns && process->mode != EVENT_MODE_GROWTH;
}

void blind_facts_read(const struct trace *trace, struct blind_facts *out)
{
	memset(out, 0, sizeof(*out));
	out->told = trace_told(trace);
	for (size_t i = 0; i < LOSS_COUNT; i++)
		out->loss[i] = trace_loss(trace)->counts[i];
	for (size_t i = 0; i < trace_process_count(trace); i++) {
		const struct trace_process *process = trace_process_at(trace, i);

		if (process && is_traced_whole(process))
			out->heap_new += process->coverage.new_blocks;
	}
}

static uint64_t unstored(const struct blind_facts *facts)
{
	return facts->loss[LOSS_ALLOC] + facts->loss[LOSS_REALLOC] + facts->loss[LOSS_REUSE] +
	       (facts->told.maps ? 0 : facts->loss[LOSS_MAP]);
}

enum blind_cause blind_judge(const struct blind_facts *facts)
{
	uint64_t state = facts->loss[LOSS_THREAD_STATE], room = unstored(facts);
	uint64_t returns = facts->loss[LOSS_RETURN];

	if (facts->told.blocks)
		return BLIND_NOT;
	if (state && state >= room && state >= returns)
		return BLIND_NO_STATE;
	if (room && room >= returns)
		return BLIND_NO_ROOM;
	if (returns)
		return BLIND_NO_RETURN;
	return facts->heap_new >= BLIND_HEAP_BLOCKS ? BLIND_NO_PROBE : BLIND_NOT;
}

int blind_check(const struct blind_facts *facts, const char **remedy)
{
	switch (blind_judge(facts)) {
	case BLIND_NOT:
		return 0;
	case BLIND_NO_STATE:
		*remedy = "another kernel helps, or more memory for the tracer's cgroup";
		return error_set(
			-ENODATA,
			"not one block was seen: the kernel gave no memory for the threads' state, "
			"and %llu requests were lost",
			(unsigned long long)facts->loss[LOSS_THREAD_STATE]);
	case BLIND_NO_ROOM:
		*remedy =
			"use a larger --buffer, or --sample or --overhead, which make fewer events";
		return error_set(
			-ENODATA,
			"not one block was seen: the ring buffer was full, and %llu events were "
			"lost",
			(unsigned long long)unstored(facts));
	case BLIND_NO_RETURN:
		*remedy = "try --backend multi or --backend perf";
		return error_set(
			-ENODATA,
			"not one block was seen: %llu requests began, and none was seen to return",
			(unsigned long long)facts->loss[LOSS_RETURN]);
	case BLIND_NO_PROBE:
		*remedy = "`tracer doctor` tries whether probes work here, --dry-run shows where "
			  "they are placed";
		return error_set(
			-ENODATA,
			"not one block was seen, and %llu have come to life on the heap meanwhile",
			(unsigned long long)facts->heap_new);
	}
	return 0;
}
