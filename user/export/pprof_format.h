/* SPDX-License-Identifier: Apache-2.0 */
/* What pprof_write.c and pprof_read.c share: how the meta data of a snapshot stands in comments. */
#ifndef TRACER_EXPORT_PPROF_FORMAT_H
#define TRACER_EXPORT_PPROF_FORMAT_H

#include "snapshot/builder.h"

#define PPROF_COMMENT     "tracer:" /* before every comment of ours */
#define PPROF_VALUES      2         /* of a sample, for each layer: number and bytes */
#define PPROF_COMMENT_MAX 256       /* bytes of a comment, its NUL included */

/*
 * A snapshot's comments, one a call: first those of the whole, "tracer:KEY=VALUE"; then, of several processes, those of
 * each that are not 0, "tracer:PROCESS.KEY=VALUE" (from 1), first its pid. Losses are the session's: of the whole alone. Zero-initialise.
 */
struct pprof_comments {
	size_t process, next; /* process: 0 is the whole */
	size_t changes;       /* of mode, that were told */
	int begun;
};
/* The next one into out: 1; 0 when there are no more. */
int pprof_comment_next(struct pprof_comments *comments, const struct snapshot *snapshot,
		       char out[PPROF_COMMENT_MAX]);

/*
 * Takes a comment of bytes bytes back into the snapshot that is built; those that are not ours, and keys that are not
 * known, do nothing. 1 when it is the one that says whose file it is ("tracer:snapshot=1"), 0; -EBADMSG (error_set),
 * -ENOMEM. When all have been taken, pprof_comments_end() gives each process what the whole's say of all.
 */
int pprof_comment_parse(struct builder *builder, const char *comment, size_t bytes);
int pprof_comments_end(struct builder *builder); /* 0; -EBADMSG: a single process, numbered */

#endif
