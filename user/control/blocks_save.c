/* SPDX-License-Identifier: Apache-2.0 */
#include "control/blocks_save.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "blocks/block_lines.h"
#include "blocks/blocks.h"
#include "tables/id_map.h"
#include "trace/trace.h"

struct saving {
	struct trace *trace;
	size_t process;
	FILE *out;
	struct id_map line_of;  /* by stack */
	struct id_map stack_of; /* the same */
	struct id_map lines;    /* by file name and line */
	struct id_map frames;   /* by line and function */
	struct id_map stacks;   /* by caller and frame */
};

/* The number that a map has for two others. 1: it is a new one; 0; -ENOMEM. */
static int number_find(struct id_map *map, uint32_t high, uint32_t low, uint32_t *number)
{
	uint64_t key = (uint64_t)high << 32 | low;

	*number = id_map_find(map, key);
	if (*number != ID_MAP_NONE)
		return 0;
	*number = (uint32_t)map->count;
	return id_map_put(map, key, *number) ?: 1;
}

/* The numbers of a frame and of its line, which are written when they are new. 0, -ENOMEM. */
static int frame_find(struct saving *saving, const struct trace_frame *frame, uint32_t *line,
		      uint32_t *number)
{
	const struct strings *strings = trace_strings(saving->trace, saving->process);
	int found = number_find(&saving->lines, frame->filename, frame->line, line);

	if (found < 0)
		return found;
	if (found)
		block_lines_line(saving->out, *line, strings_get(strings, frame->filename),
				 frame->line);
	found = number_find(&saving->frames, *line, frame->function, number);
	if (found > 0)
		block_lines_frame(saving->out, *number, *line,
				  strings_get(strings, frame->function));
	return found < 0 ? found : 0;
}

/* Writes what is new of a stack, its outermost frame first. 0, -ENOMEM. */
static int stack_write(struct saving *saving, uint32_t stack, uint32_t *line, uint32_t *number)
{
	struct trace_traceback traceback =
		trace_traceback_at(saving->trace, saving->process, stack);
	uint32_t caller = ID_MAP_NONE, frame;
	int err = 0;

	for (uint32_t i = traceback.nframe; i-- && !err;) {
		err = frame_find(saving, &traceback.frames[i], line, &frame);
		if (!err)
			err = number_find(&saving->stacks, caller, frame, number);
		if (err > 0) {
			block_lines_stack(saving->out, *number,
					  caller == ID_MAP_NONE ? *number : caller, frame);
			err = 0;
		}
		caller = *number;
	}
	return err;
}

/* The numbers of a stack of the trace, and of the line that it ends in. 0, -ENOMEM. */
static int stack_find(struct saving *saving, uint32_t stack, uint32_t *line, uint32_t *number)
{
	int err;

	*line = id_map_find(&saving->line_of, stack);
	*number = id_map_find(&saving->stack_of, stack);
	if (*line != ID_MAP_NONE && *number != ID_MAP_NONE)
		return 0;
	err = stack_write(saving, stack, line, number);
	return err ?: id_map_put(&saving->line_of, stack, *line)
		      ?: id_map_put(&saving->stack_of, stack, *number);
}

static int blocks_write(struct saving *saving)
{
	const struct trace_process *process = trace_process_at(saving->trace, saving->process);
	const struct blocks *blocks =
		trace_blocks(saving->trace, saving->process, trace_first_layer(process));
	const struct block *block;
	size_t cursor = 0;
	uint32_t line, number;
	int err = 0;

	block_lines_head(saving->out, process->tgid);
	while (!err && blocks && (block = blocks_next(blocks, &cursor))) {
		err = stack_find(saving, block->stack, &line, &number);
		if (!err)
			block_lines_block(saving->out, block->address, block->bytes, line, number);
	}
	return err;
}

int blocks_save(struct trace *trace, size_t process, int fd)
{
	struct saving saving = {.trace = trace, .process = process};
	const struct trace_process *info = trace_process_at(trace, process);
	int copy, err;

	if (info->mode == EVENT_MODE_GROWTH)
		return error_set(-ENOTSUP, "in growth mode pools are traced, not single blocks");
	copy = dup(fd);
	saving.out = copy < 0 ? NULL : fdopen(copy, "w");
	if (!saving.out) {
		err = -errno;
		if (copy >= 0)
			close(copy);
		return err;
	}
	err = blocks_write(&saving);
	if (ferror(saving.out) && !err)
		err = -EIO;
	if (fclose(saving.out) && !err)
		err = -errno;
	id_map_free(&saving.line_of);
	id_map_free(&saving.stack_of);
	id_map_free(&saving.frames);
	id_map_free(&saving.stacks);
	id_map_free(&saving.lines);
	return err;
}
