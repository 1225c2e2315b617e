/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A capture: the event stream in a file. 16 bytes of header ("TRACERCP", version 1 as little-endian
 * u32, u32 zero), then records as in abi/events.h, and nothing else. A capture that was cut short
 * ends in the middle of a record: everything before it is good.
 */
#ifndef TRACER_TRACE_CAPTURE_H
#define TRACER_TRACE_CAPTURE_H

#include <stddef.h>

struct outfile;

int capture_begin(struct outfile *file);                                   /* writes the header */
int capture_record(struct outfile *file, const void *record, size_t size); /* 0, -errno */

/* Called for each record; non-zero stops and is returned by capture_read(). */
typedef int (*capture_record_fn)(const void *record, size_t size, void *context);
/*
 * Reads a capture from path ("-" is stdin). 0; -EBADMSG not a capture, or a record that cannot be
 * (error_set tells the offset); -ENODATA cut short after *records whole records; -errno. Memory is
 * bounded by the largest record (1 MiB; a larger one is -EBADMSG).
 */
int capture_read(const char *path, capture_record_fn record, void *context, size_t *records);

#endif
