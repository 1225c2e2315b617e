/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What pprof_write.c and pprof_read.c share: how the meta data of a snapshot stands in a profile.
 * It is in lines, "tracer:KEY=VALUE", and all of them are one string, that of the field
 * keep_frames. By the format it names frames that drop_frames, which we never set, is not to drop,
 * so that no tool looks at it, and tools that write a profile again keep it. Comments, which pprof
 * prints, are for people. In files of older tracers each line is a comment.
 */
#ifndef TRACER_EXPORT_PPROF_FORMAT_H
#define TRACER_EXPORT_PPROF_FORMAT_H

#include "base/buffer.h"
#include "snapshot/builder.h"

#define PPROF_SIGN     "tracer:" /* before every line of ours */
#define PPROF_VALUES   2         /* of a sample, for each layer: number and bytes */
#define PPROF_LINE_MAX 256       /* bytes of a line that is not escaped, its NUL included */

/*
 * Appends the lines of a snapshot, each with a newline behind it; newlines and backslashes in them
 * are escaped by a backslash. First come those of the whole, "tracer:snapshot=1" before all; then,
 * of several processes, those of each that are not 0, "tracer:PROCESS.KEY=VALUE" (from 1), first
 * its pid. Losses are the session's: of the whole alone. 0, -ENOMEM.
 */
int pprof_meta_append(const struct snapshot *snapshot, struct buffer *out);
/*
 * Takes lines back into the snapshot that is built; those that are not ours, and keys that are not
 * known, do nothing. 1 when one is the one that says whose file it is, 0; -EBADMSG (error_set),
 * -ENOMEM. When all have been taken, pprof_meta_end() gives each process what the whole's say of
 * all.
 */
int pprof_meta_parse(struct builder *builder, const char *lines, size_t bytes);
/* The same of one line that is not escaped, as comments of older files are. */
int pprof_meta_parse_line(struct builder *builder, const char *line, size_t bytes);
int pprof_meta_end(struct builder *builder); /* 0; -EBADMSG: a single process, numbered */

#endif
