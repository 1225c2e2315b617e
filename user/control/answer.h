/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a session says of a process under trace: one JSON object, no line end; keys are only ever
 * added.
 */
#ifndef TRACER_CONTROL_ANSWER_H
#define TRACER_CONTROL_ANSWER_H

#include <stdint.h>
#include <stdio.h>

struct trace;

/*
 * is_tracing, traceback_limit, traced_memory {size, peak}, tracer_memory (bytes; of all processes
 * of the session): as tracemalloc's functions of these names have it; uptime (seconds since its
 * tracing began), live_blocks, lost_events, session (the tracer's process id), and what a report
 * says of itself; longest_pause_ns, for which a request has held up the handling of events.
 * running: the process is still there; now_ns: CLOCK_MONOTONIC.
 */
void answer_status(FILE *out, const struct trace *trace, size_t process, int running,
		   uint64_t now_ns, uint64_t longest_pause_ns);
/*
 * The block that contains address, as tracemalloc.get_object_traceback(): {"block": {address,
 * offset, size, domain, rounded}, "total_nframe", "traceback": [{filename, lineno, function}]},
 * most recent first; {"block": null} when none does.
 */
void answer_lookup(FILE *out, struct trace *trace, size_t process, uint64_t address);

#endif
