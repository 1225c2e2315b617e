/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches which processes map executable files, exec, and change their names: PERF_RECORD_MMAP2 and
 * PERF_RECORD_COMM of a dummy counter on every processor (perf_event_open(2)). An executable
 * mapping costs a microsecond more; nothing else is slowed.
 */
#pragma once

#include <stdint.h>

#include "proc/process.h"

struct map_watch;

struct map_watch_record {
	uint32_t tgid;
	uint64_t time_ns; /* CLOCK_MONOTONIC */
	int exec;         /* 1: the process has exec'd, nothing is mapped yet; map is zero */
	/* the new name of its first thread, map is zero; NULL: none; borrowed as the path */
	const char *renamed;
	/* Executable. The path is as the process sees it, borrowed until the callback returns. */
	struct process_map map;
};

/* 0; -EACCES, -EPERM, -errno: the kernel refuses (with error_set()). */
int map_watch_open(struct map_watch **out);
void map_watch_close(struct map_watch *watch); /* NULL is legal */
/* Delivers all records since the last call, in the order of time. */
void map_watch_drain(struct map_watch *watch,
		     void (*each)(void *context, const struct map_watch_record *record),
		     void *context);
/* The number of records dropped so far because the buffers were full. */
uint64_t map_watch_lost(const struct map_watch *watch);
