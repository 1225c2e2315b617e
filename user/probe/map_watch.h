/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processes of the machine map files with code, as it happens: perf's PERF_RECORD_MMAP of a counter that counts nothing,
 * one on every processor (perf_event_open(2)). It costs the mapping of code a microsecond and nothing else anything.
 */
#ifndef TRACER_PROBE_MAP_WATCH_H
#define TRACER_PROBE_MAP_WATCH_H

#include <stdint.h>

struct map_watch;

/* 0; -EACCES, -EPERM, -errno: the kernel does not let us (error_set). */
int map_watch_open(struct map_watch **out);
void map_watch_close(struct map_watch *watch); /* NULL is legal */
/* Tells of each process (tgid) that has mapped one since the last time; of some more than once. */
void map_watch_drain(struct map_watch *watch, void (*mapped)(void *context, uint32_t tgid), void *context);
/* Records that did not fit into the buffers so far. */
uint64_t map_watch_lost(const struct map_watch *watch);

#endif
