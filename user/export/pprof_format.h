/* SPDX-License-Identifier: Apache-2.0 */
/* What pprof_write.c and pprof_read.c share: how the meta data of a snapshot stands in comments. */
#ifndef TRACER_EXPORT_PPROF_FORMAT_H
#define TRACER_EXPORT_PPROF_FORMAT_H

#include "stats/snapshot.h"

#define PPROF_COMMENT     "tracer:" /* before every comment of ours */
#define PPROF_VALUES      2         /* of a sample, for each layer: number and bytes */
#define PPROF_COMMENT_MAX 256       /* bytes of a comment, its NUL included */

/* The index-th comment of meta into out; 0 when there are no more, else 1. */
int pprof_meta_comment(const struct snapshot_meta *meta, size_t index, char out[PPROF_COMMENT_MAX]);
/*
 * Takes a comment of bytes bytes back into meta; those that are not ours, and keys that are not known, do
 * nothing. 1 when it is the one that says whose file it is ("tracer:snapshot=1"), 0; -EBADMSG (error_set).
 */
int pprof_meta_parse(struct snapshot_meta *meta, const char *comment, size_t bytes);

#endif
