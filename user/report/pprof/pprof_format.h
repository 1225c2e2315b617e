/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the meta data of a snapshot is stored in a profile; shared by writer and reader. It is a list
 * of lines, "tracer:KEY=VALUE", in one string, which the field keep_frames names. The format
 * defines keep_frames as exceptions from drop_frames, which we never set: no tool evaluates it, and
 * tools that rewrite a profile keep it. Comments, which pprof prints, are for people. In files of
 * older versions each line is a comment.
 */
#pragma once

#include <stdbool.h>

#include "snapshot/builder.h"
#include "util/buffer.h"

#define PPROF_SIGN   "tracer:" /* prefix of every line of ours */
#define PPROF_VALUES 2         /* of a sample, per layer: number and bytes */
/*
 * Deviations of an estimated count: a string label of their values in eighths of a block, separated
 * by spaces.
 */
#define PPROF_DEVIATIONS      "deviations"
#define PPROF_DEVIATION_STEPS 8
#define PPROF_LINES_MAX       64  /* frames of one location: inlined ones and what they are in */
#define PPROF_LINE_MAX        256 /* bytes of an unescaped line, including its NUL */
/*
 * Mappings: the program, with Python's code, which has no addresses; each segment of a binary that
 * native frames are in (struct snapshot_binary); and one for all other native frames. Tools that
 * rewrite a profile number them anew, so a reader knows native ones by their limit, which is not 0,
 * or by that name. In files of older versions all native frames are in the latter, or there is
 * none.
 */
#define PPROF_MAPPING 1 /* the id of the program's, + snapshot_frame.native of the others */
#define PPROF_NATIVE  "[native]"

/*
 * The key of the label with a task or a value (snapshot_meta.label): "task"; the variable's own
 * name with its attributes: "request_id" of "context request_id" and of "local handle:request_id".
 * If other labels have that key it is the whole of it, "context thread". Files of older versions
 * have "task" for values, too.
 */
void pprof_label_key(const struct snapshot_meta *meta, char key[EVENT_LABEL_TEXT]);

/*
 * A location without lines stands for a frame of an unknown function, whose name in a snapshot says
 * where it is: "[libc.so.6+0x1234]", the offset in the file. offset is set to it. True if the frame
 * is one whose names follow from its binary and that offset.
 */
bool pprof_is_unnamed(const struct snapshot *snapshot, const struct snapshot_frame *frame,
		      uint64_t *offset);
/* The name of such a function in the file of that path. 0, -ENOMEM. The caller frees the buffer. */
int pprof_unnamed_name(const char *path, uint64_t offset, struct buffer *out);

/*
 * Appends the lines of a snapshot, each with a newline; newlines and backslashes in a line are
 * escaped by a backslash. The lines of the whole snapshot come first, beginning with
 * "tracer:snapshot=1". With several processes, the values of each process that are not 0 follow as
 * "tracer:PROCESS.KEY=VALUE" (from 1), beginning with its pid. Losses belong to the session and are
 * written only for the whole. 0, -ENOMEM.
 */
int pprof_meta_append(const struct snapshot *snapshot, struct buffer *out);
/*
 * Parses lines into the snapshot being built; foreign lines and unknown keys are ignored. 1 if one
 * of the lines identifies the file as ours, else 0; -EBADMSG (error_set), -ENOMEM. After all lines,
 * pprof_meta_end() copies the values of the whole that apply to each process.
 */
int pprof_meta_parse(struct builder *builder, const char *lines, size_t bytes);
/* The same for one unescaped line, a comment of an older file. */
int pprof_meta_parse_line(struct builder *builder, const char *line, size_t bytes);
int pprof_meta_end(struct builder *builder); /* 0; -EBADMSG: a single process, numbered */
/* How many of the frames are one location: those inlined into the last of them, and that one. */
static inline uint32_t pprof_location_frames(const struct snapshot_frame *frames, uint32_t nframe)
{
	uint32_t count = 1;

	while (count < nframe && count < PPROF_LINES_MAX && frames[count - 1].inlined)
		count++;
	return count;
}
