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
	struct id_map line_of; /* by stack */
	struct id_map lines;   /* by file name and line */
};

/* The number of the line that a stack ends in, which is written when it is new. 0, -ENOMEM. */
static int line_find(struct saving *saving, uint32_t stack, uint32_t *number)
{
	const struct trace_frame *frame;
	uint64_t key;
	int err;

	*number = id_map_find(&saving->line_of, stack);
	if (*number != ID_MAP_NONE)
		return 0;
	frame = trace_traceback_at(saving->trace, saving->process, stack).frames;
	key = (uint64_t)frame->filename << 32 | frame->line;
	*number = id_map_find(&saving->lines, key);
	if (*number == ID_MAP_NONE) {
		*number = (uint32_t)saving->lines.count;
		err = id_map_put(&saving->lines, key, *number);
		if (err)
			return err;
		block_lines_line(
			saving->out, *number,
			strings_get(trace_strings(saving->trace, saving->process), frame->filename),
			frame->line);
	}
	return id_map_put(&saving->line_of, stack, *number);
}

static int blocks_write(struct saving *saving)
{
	const struct trace_process *process = trace_process_at(saving->trace, saving->process);
	const struct blocks *blocks =
		trace_blocks(saving->trace, saving->process, trace_first_layer(process));
	const struct block *block;
	size_t cursor = 0;
	uint32_t number;
	int err = 0;

	block_lines_head(saving->out, process->tgid);
	while (!err && blocks && (block = blocks_next(blocks, &cursor))) {
		err = line_find(saving, block->stack, &number);
		if (!err)
			block_lines_block(saving->out, block->address, block->bytes, number);
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
	id_map_free(&saving.lines);
	return err;
}
