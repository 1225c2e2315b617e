/* SPDX-License-Identifier: Apache-2.0 */
#include "session/doctor/blind.h"

#include <errno.h>
#include <string.h>

#include "util/error.h"

/*
 * A sampled or temporarily untraced process may legitimately show no events. A forked process's
 * inherited blocks look new on its heap.
 */
static bool is_fully_traced(const struct trace_process *process)
{
	return !process->sample_bytes && !process->change_count && !process->off &&
	       !process->parent && process->coverage.time_ns &&
	       process->mode != EVENT_MODE_GROWTH && process->mode != EVENT_MODE_WINDOWS;
}

void blind_facts_read(const struct trace *trace, struct blind_facts *out)
{
	memset(out, 0, sizeof(*out));
	out->observed = trace_observed(trace);
	for (size_t i = 0; i < LOSS_COUNT; i++)
		out->loss[i] = trace_loss(trace)->counts[i];
	for (size_t i = 0; i < trace_process_count(trace); i++) {
		const struct trace_process *process = trace_process_at(trace, i);

		if (process && is_fully_traced(process))
			out->heap_new += process->coverage.new_blocks;
	}
}

static uint64_t unstored(const struct blind_facts *facts)
{
	return facts->loss[LOSS_ALLOC] + facts->loss[LOSS_REALLOC] + facts->loss[LOSS_REUSE] +
	       (facts->observed.maps ? 0 : facts->loss[LOSS_MAP]);
}

enum blind_cause blind_judge(const struct blind_facts *facts)
{
	uint64_t state = facts->loss[LOSS_THREAD_STATE], full = unstored(facts);
	uint64_t returns = facts->loss[LOSS_RETURN];

	if (facts->observed.blocks)
		return BLIND_NOT;
	if (state && state >= full && state >= returns)
		return BLIND_NO_STATE;
	if (full && full >= returns)
		return BLIND_BUFFER_FULL;
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
			"no block was seen: the kernel gave no memory for the threads' state, "
			"and %llu requests were lost",
			(unsigned long long)facts->loss[LOSS_THREAD_STATE]);
	case BLIND_BUFFER_FULL:
		*remedy =
			"use a larger --buffer, or --sample or --overhead, which make fewer events";
		return error_set(
			-ENODATA,
			"no block was seen: the ring buffer was full, and %llu events were "
			"lost",
			(unsigned long long)unstored(facts));
	case BLIND_NO_RETURN:
		*remedy = "unless a line before tells the cause, try --backend multi or --backend "
			  "perf";
		return error_set(-ENODATA,
				 "no block was seen: %llu requests started, but none returned",
				 (unsigned long long)facts->loss[LOSS_RETURN]);
	case BLIND_NO_PROBE:
		*remedy = "`tracer doctor` tests whether probes work here, --dry-run shows where "
			  "they are placed";
		return error_set(-ENODATA,
				 "no block was seen, although the heap has %llu new blocks",
				 (unsigned long long)facts->heap_new);
	}
	return 0;
}
