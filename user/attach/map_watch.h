/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processes of the machine map files with code, and which of them call exec, as it happens:
 * perf's PERF_RECORD_MMAP2 and PERF_RECORD_COMM of a counter that counts nothing, one on every
 * processor (perf_event_open(2)). It costs the mapping of code a microsecond and nothing else
 * anything.
 */
#ifndef TRACER_ATTACH_MAP_WATCH_H
#define TRACER_ATTACH_MAP_WATCH_H

#include <stdint.h>

#include "process/process.h"

struct map_watch;

struct map_watch_record {
	uint32_t tgid;
	uint64_t time_ns; /* CLOCK_MONOTONIC */
	int exec;         /* 1: another program begins, nothing is mapped yet; map is all zero */
	/* With code. Its path is as the process sees it, borrowed until the callback returns. */
	struct process_map map;
};

/* 0; -EACCES, -EPERM, -errno: the kernel does not let us (error_set). */
int map_watch_open(struct map_watch **out);
void map_watch_close(struct map_watch *watch); /* NULL is legal */
/* Tells, in the order of time, of all there was up to now since the last time. */
void map_watch_drain(struct map_watch *watch,
		     void (*told)(void *context, const struct map_watch_record *record),
		     void *context);
/* Records that did not fit into the buffers so far. */
uint64_t map_watch_lost(const struct map_watch *watch);

#endif
