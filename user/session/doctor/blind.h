/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Detects a trace that saw nothing. A report with losses is still a report. An empty report of a
 * busy program is an error, because it looks like the report of a program that allocated nothing.
 * Pure.
 */
#pragma once

#include <stdint.h>

#include "abi/events.h"
#include "trace/trace.h"

/* Minimum number of new heap blocks, without a single event, that counts as an error. */
#define BLIND_HEAP_BLOCKS 1000u

struct blind_facts {
	struct trace_observed observed;
	uint64_t loss[LOSS_COUNT];
	/* new blocks on Python's heaps, only of processes that are fully traced */
	uint64_t heap_new;
};

enum blind_cause {
	BLIND_NOT = 0,     /* something was seen, or there was nothing to see */
	BLIND_NO_STATE,    /* the kernel gave no memory for the threads' state */
	BLIND_BUFFER_FULL, /* the ring buffer was full */
	BLIND_NO_RETURN,   /* requests began and none returned */
	BLIND_NO_PROBE,    /* heap walks found new blocks, and no probe fired */
};

void blind_facts_read(const struct trace *trace, struct blind_facts *out);
/* The cause with the highest count. */
enum blind_cause blind_judge(const struct blind_facts *facts);
/* Returns 0, or -ENODATA if nothing was seen: error_set() has the cause, and *remedy is static. */
int blind_check(const struct blind_facts *facts, const char **remedy);
