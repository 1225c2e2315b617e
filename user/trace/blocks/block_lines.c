/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/blocks/block_lines.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/ages.h"
#include "util/array.h"
#include "util/error.h"
#include "util/infile.h"
#include "util/sorted.h"

#define HEAD     "tracer blocks "
#define MAX_LINE 8192u        /* bytes of a line of the file */
#define MAX_KEEP (1u << 28)   /* blocks, and lines */
#define MAX_MS   (1ull << 43) /* nearly 300 years */

void block_lines_head(FILE *out, uint32_t pid)
{
	fprintf(out, HEAD "3 %" PRIu32 "\n", pid);
}

void block_lines_time(FILE *out, uint64_t taken_ms, uint64_t traced_ms, bool whole)
{
	fprintf(out, "t %" PRIu64 " %" PRIu64 " %d\n", taken_ms, traced_ms, whole);
}

static void text_write(FILE *out, const char *text)
{
	for (size_t i = 0; i < MAX_LINE - 64 && text[i]; i++)
		putc(text[i] == '\n' ? '?' : text[i], out);
	putc('\n', out);
}

void block_lines_line(FILE *out, uint32_t number, const char *file, uint32_t line)
{
	fprintf(out, "l %" PRIu32 " %" PRIu32 " ", number, line);
	text_write(out, file);
}

void block_lines_frame(FILE *out, uint32_t number, uint32_t line, const char *function)
{
	fprintf(out, "f %" PRIu32 " %" PRIu32 " ", number, line);
	text_write(out, function);
}

void block_lines_stack(FILE *out, uint32_t number, uint32_t parent, uint32_t frame)
{
	fprintf(out, "s %" PRIu32 " %" PRIu32 " %" PRIu32 "\n", number, parent, frame);
}

void block_lines_block(FILE *out, const struct block_line *block)
{
	fprintf(out, "b %" PRIx64 " %" PRIx64 " %" PRIu32 " %" PRIu32 " %" PRIu32 "\n",
		block->address, block->bytes, block->line, block->stack, block->age);
}

static int damaged(void)
{
	return error_set(-EINVAL, "it is no list of blocks, or damaged");
}

/* A number and the byte after it. 1, or 0. */
static int number_take(char **at, int base, char after, uint64_t *out)
{
	char *end;

	if (**at == '-' || **at == '+' || **at == ' ')
		return 0;
	errno = 0;
	*out = strtoull(*at, &end, base);
	if (errno || end == *at || *end != after)
		return 0;
	*at = end + (after != 0);
	return 1;
}

static int name_read(struct block_lines *lines, char *at)
{
	uint64_t number, line;
	char *name;
	int err;

	if (!number_take(&at, 10, ' ', &number) || !number_take(&at, 10, ' ', &line) ||
	    number != lines->name_count || line > UINT32_MAX || number >= MAX_KEEP)
		return damaged();
	err = ARRAY_RESERVE(NULL, lines, names, name_count, name_capacity, 1);
	if (err)
		return err;
	if (asprintf(&name, "%s:%" PRIu64, at, line) < 0)
		return -ENOMEM;
	lines->names[lines->name_count++] = name;
	return 0;
}

static int frame_read(struct block_lines *lines, char *at)
{
	struct block_frame *frame;
	uint64_t number, line;
	int err;

	if (!number_take(&at, 10, ' ', &number) || !number_take(&at, 10, ' ', &line) ||
	    number != lines->frame_count || line >= lines->name_count || number >= MAX_KEEP)
		return damaged();
	err = ARRAY_RESERVE(NULL, lines, frames, frame_count, frame_capacity, 1);
	if (err)
		return err;
	frame = &lines->frames[lines->frame_count];
	frame->line = (uint32_t)line;
	frame->function = strdup(at);
	lines->frame_count += frame->function != NULL;
	return frame->function ? 0 : -ENOMEM;
}

static int stack_read(struct block_lines *lines, char *at)
{
	struct block_stack stack = {.parent = BLOCK_LINES_NONE};
	uint64_t number, parent, frame;
	int err;

	if (!number_take(&at, 10, ' ', &number) || !number_take(&at, 10, ' ', &parent) ||
	    !number_take(&at, 10, '\0', &frame) || number != lines->stack_count ||
	    parent > number || frame >= lines->frame_count || number >= MAX_KEEP)
		return damaged();
	err = ARRAY_RESERVE(NULL, lines, stacks, stack_count, stack_capacity, 1);
	if (err)
		return err;
	stack.frame = (uint32_t)frame;
	if (parent < number) {
		stack.parent = (uint32_t)parent;
		stack.depth = lines->stacks[parent].depth + 1;
	}
	if (stack.depth >= BLOCK_STACK_DEPTH)
		return damaged();
	lines->stacks[lines->stack_count++] = stack;
	return 0;
}

static int time_read(struct block_lines *lines, char *at)
{
	uint64_t whole;

	if (lines->format < 3 || lines->taken_ms || !number_take(&at, 10, ' ', &lines->taken_ms) ||
	    !number_take(&at, 10, ' ', &lines->traced_ms) || !number_take(&at, 10, '\0', &whole) ||
	    whole > 1 || !lines->taken_ms || lines->taken_ms > MAX_MS || lines->traced_ms > MAX_MS)
		return damaged();
	lines->whole = whole;
	return 0;
}

/* A block of format 1 ends behind its line, of format 2 behind its stack. */
static int block_read(struct block_lines *lines, char *at)
{
	uint64_t address, bytes, number, stack = BLOCK_LINES_NONE, age = AGE_UNKNOWN;
	int has_stack = lines->format > 1, has_age = lines->format > 2;
	int err;

	if (!number_take(&at, 16, ' ', &address) || !number_take(&at, 16, ' ', &bytes) ||
	    !number_take(&at, 10, has_stack ? ' ' : '\0', &number) || number >= lines->name_count ||
	    bytes > UINT64_MAX - address || lines->count >= MAX_KEEP ||
	    (has_stack && (!number_take(&at, 10, has_age ? ' ' : '\0', &stack) ||
			   stack >= lines->stack_count)) ||
	    (has_age && (!number_take(&at, 10, '\0', &age) || age >= AGE_BEFORE)))
		return damaged();
	err = ARRAY_RESERVE(NULL, lines, blocks, count, capacity, 1);
	if (!err)
		lines->blocks[lines->count++] = (struct block_line){
			address, bytes, (uint32_t)number, (uint32_t)stack, (uint32_t)age};
	return err;
}

static int head_read(struct block_lines *lines, const char *text)
{
	if (sscanf(text, "tracer blocks %" SCNu32 " %" SCNu32, &lines->format, &lines->pid) != 2)
		return damaged();
	return lines->format >= 1 && lines->format <= 3
		       ? 0
		       : error_set(-EINVAL, "it was written by another version of the tracer");
}

/* A line without its end. 1; 0: the end of the file; -EINVAL. */
static int text_read(FILE *file, char text[MAX_LINE])
{
	size_t length;

	if (!fgets(text, MAX_LINE, file))
		return ferror(file) ? -EIO : 0;
	length = strlen(text);
	if (!length || text[length - 1] != '\n')
		return damaged();
	text[length - 1] = '\0';
	return 1;
}

int block_lines_read(struct block_lines *out, FILE *file)
{
	struct block_lines lines = {0};
	char text[MAX_LINE];
	int got = text_read(file, text);
	int err = got > 0 ? head_read(&lines, text) : got ? got : damaged();

	while (!err && (got = text_read(file, text)) > 0)
		err = !strncmp(text, "l ", 2)   ? name_read(&lines, text + 2)
		      : !strncmp(text, "f ", 2) ? frame_read(&lines, text + 2)
		      : !strncmp(text, "s ", 2) ? stack_read(&lines, text + 2)
		      : !strncmp(text, "b ", 2) ? block_read(&lines, text + 2)
		      : !strncmp(text, "t ", 2) ? time_read(&lines, text + 2)
						: damaged();
	err = err ?: got;
	if (!err && lines.format > 2 && !lines.taken_ms)
		err = damaged();
	if (err) {
		block_lines_free(&lines);
		return err;
	}
	if (lines.count)
		qsort(lines.blocks, lines.count, sizeof(*lines.blocks), key_compare);
	*out = lines;
	return 0;
}

void block_lines_free(struct block_lines *lines)
{
	for (size_t i = 0; i < lines->name_count; i++)
		free(lines->names[i]);
	for (size_t i = 0; i < lines->frame_count; i++)
		free(lines->frames[i].function);
	free(lines->names);
	free(lines->frames);
	free(lines->stacks);
	free(lines->blocks);
	*lines = (struct block_lines){0};
}

bool block_lines_are(const char *path)
{
	return infile_begins(path, HEAD);
}

const struct block_line *block_lines_at(const struct block_lines *lines, uint64_t address)
{
	size_t above = SORTED_ABOVE(lines->blocks, lines->count, address, address);
	const struct block_line *block = above ? &lines->blocks[above - 1] : NULL;

	return block && address - block->address < block->bytes ? block : NULL;
}

uint32_t block_lines_find(const struct block_lines *lines, uint64_t address)
{
	const struct block_line *block = block_lines_at(lines, address);

	return block ? block->line : BLOCK_LINES_NONE;
}
