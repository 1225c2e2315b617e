/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracer leaks --lines: what the heaps say, beside what probes have measured afterwards. A line
 * that grows confirms a holder if most of its blocks come through code that fills the holder: if
 * that is a frame of their tracebacks. Pure.
 */
#ifndef TRACER_CLI_LEAKS_CONFIRM_H
#define TRACER_CLI_LEAKS_CONFIRM_H

#include "heap_answers/heap_leaks.h"
#include "time_answers/leaks.h"

/* Sets the lines of the holders, which borrow from the series of `measured`. */
void leaks_confirm(struct heap_leaks *holders, const struct leaks *measured);

#endif
