/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Was anything seen at all? A report with losses beside it is a report; an empty one of a program
 * that was at work is an error, since it reads like one of a program that did nothing. Pure.
 */
#ifndef TRACER_TRACE_BLIND_H
#define TRACER_TRACE_BLIND_H

#include <stdint.h>

#include "abi/events.h"
#include "trace/trace.h"

/*
 * So many blocks must have come to life on a heap, and none at a probe, before that is taken for an
 * error.
 */
#define BLIND_HEAP_BLOCKS 1000u

struct blind_facts {
	struct trace_told told;
	uint64_t loss[LOSS_COUNT];
	uint64_t
		/*
		 * blocks of Python's heaps that are new since the trace began, where every one is
		 * traced
		 */
		heap_new;
};

enum blind_cause {
	BLIND_NOT = 0,   /* something was seen, or there was nothing to see */
	BLIND_NO_STATE,  /* the kernel gave no memory for the threads' state */
	BLIND_NO_ROOM,   /* the ring buffer took nothing */
	BLIND_NO_RETURN, /* requests began and none returned */
	BLIND_NO_PROBE,  /* the heap tells of new blocks, and no probe did */
};

void blind_facts_read(const struct trace *trace, struct blind_facts *out);
/* Of several causes the one that took most. */
enum blind_cause blind_judge(const struct blind_facts *facts);
/* 0; -ENODATA nothing was seen, with error_set() telling why and *remedy, static. */
int blind_check(const struct blind_facts *facts, const char **remedy);

#endif
