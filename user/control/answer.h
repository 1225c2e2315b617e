/* SPDX-License-Identifier: Apache-2.0 */
/* Answers about a traced process: one JSON object without a line end. Keys are only ever added. */
#ifndef TRACER_CONTROL_ANSWER_H
#define TRACER_CONTROL_ANSWER_H

#include <stdint.h>
#include <stdio.h>

struct trace;

/*
 * Writes is_tracing, traceback_limit, traced_memory {size, peak} and tracer_memory (bytes, of all
 * processes of the session), as tracemalloc's functions of these names define them; uptime (seconds
 * since its tracing began), live_blocks, lost_events, session (the tracer's pid) and the metadata
 * of a report; longest_pause_ns, the longest time for which a request has delayed the handling of
 * events. running: the process still exists. now_ns: CLOCK_MONOTONIC.
 */
void answer_status(FILE *out, const struct trace *trace, size_t process, int running,
		   uint64_t now_ns, uint64_t longest_pause_ns);
/*
 * Writes the block that contains address, as tracemalloc.get_object_traceback(): {"block":
 * {address, offset, size, domain, rounded}, "total_nframe", "total_nframe_exact", "traceback":
 * [{filename, lineno, function}]}, most recent frame first; {"block": null} if no block contains
 * it.
 */
void answer_lookup(FILE *out, struct trace *trace, size_t process, uint64_t address);

#endif
