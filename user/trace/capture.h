/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A capture file holds the event stream: 16 bytes of header ("TRACERCP", version 1 as little-endian
 * u32, u32 zero), then records as in abi/events.h, and nothing else. A truncated capture ends
 * inside a record; all records before it are valid.
 */
#pragma once

#include <stddef.h>

struct outfile;

int capture_begin(struct outfile *file);                                   /* writes the header */
int capture_record(struct outfile *file, const void *record, size_t size); /* 0, -errno */

/* Called for each record; a non-zero result stops reading and is returned by capture_read(). */
typedef int (*capture_record_fn)(const void *record, size_t size, void *context);
/*
 * Reads a capture from path ("-": stdin). 0; -EBADMSG: not a capture, or an invalid record
 * (error_set() has the offset); -ENODATA: truncated after *records complete records; -errno. Memory
 * is bounded by the largest record: 1 MiB, larger ones are -EBADMSG.
 */
int capture_read(const char *path, capture_record_fn record, void *context, size_t *records);
