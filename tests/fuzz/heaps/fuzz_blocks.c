/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list of blocks and their lines: what is read is sorted and in range, every block is found at
 * its address, and what is written of it again is read as the same.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/blocks/block_lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct block_lines *lines)
{
	for (size_t i = 0; i < lines->count; i++) {
		const struct block_line *block = &lines->blocks[i];
		uint32_t found = block_lines_find(lines, block->address);

		if (block->line >= lines->name_count ||
		    (lines->format > 1 && block->stack >= lines->stack_count) ||
		    block->address + block->bytes < block->address)
			abort();
		if (i && block->address < block[-1].address)
			abort();
		/* Of several at one address, any may be found. */
		if (block->bytes && found == BLOCK_LINES_NONE &&
		    (i + 1 == lines->count || block[1].address != block->address))
			abort();
		if (found != BLOCK_LINES_NONE && found >= lines->name_count)
			abort();
	}
	for (size_t i = 0; i < lines->name_count; i++)
		if (!strrchr(lines->names[i], ':'))
			abort();
	for (size_t i = 0; i < lines->frame_count; i++)
		if (!lines->frames[i].function || lines->frames[i].line >= lines->name_count)
			abort();
	for (size_t i = 0; i < lines->stack_count; i++)
		if (lines->stacks[i].frame >= lines->frame_count ||
		    (lines->stacks[i].parent != BLOCK_LINES_NONE && lines->stacks[i].parent >= i))
			abort();
}

/* The file name and the number of FILE:LINE. */
static void line_write(FILE *out, uint32_t number, const char *name)
{
	size_t length = (size_t)(strrchr(name, ':') - name);
	char *file = strndup(name, length);

	if (!file)
		abort();
	block_lines_line(out, number, file, (uint32_t)strtoul(name + length + 1, NULL, 10));
	free(file);
}

static void again(const struct block_lines *lines)
{
	struct block_lines other = {0};
	char *text = NULL;
	size_t bytes;
	FILE *file = open_memstream(&text, &bytes);

	if (!file)
		abort();
	block_lines_head(file, lines->pid);
	block_lines_time(file, lines->taken_ms ?: 1, lines->traced_ms, lines->whole);
	for (size_t i = 0; i < lines->name_count; i++)
		line_write(file, (uint32_t)i, lines->names[i]);
	for (size_t i = 0; i < lines->frame_count; i++)
		block_lines_frame(file, (uint32_t)i, lines->frames[i].line,
				  lines->frames[i].function);
	for (size_t i = 0; i < lines->stack_count; i++)
		block_lines_stack(file, (uint32_t)i,
				  lines->stacks[i].parent == BLOCK_LINES_NONE
					  ? (uint32_t)i
					  : lines->stacks[i].parent,
				  lines->stacks[i].frame);
	for (size_t i = 0; i < lines->count; i++)
		block_lines_block(file, &lines->blocks[i]);
	fclose(file);
	file = fmemopen(text, bytes, "r");
	if (!file || block_lines_read(&other, file) || other.pid != lines->pid ||
	    other.count != lines->count || other.name_count != lines->name_count ||
	    other.frame_count != lines->frame_count || other.stack_count != lines->stack_count ||
	    other.traced_ms != lines->traced_ms || other.whole != lines->whole)
		abort();
	for (size_t i = 0; i < lines->name_count; i++)
		if (strcmp(lines->names[i], other.names[i]))
			abort();
	fclose(file);
	free(text);
	block_lines_free(&other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char head[] = "tracer blocks 2 4711\n";
	struct block_lines lines = {0};
	char *text;
	FILE *file;

	/* Most inputs begin well, so that what follows is reached. */
	if (!size)
		return 0;
	text = malloc(sizeof(head) + size);
	if (!text)
		abort();
	memcpy(text, head, sizeof(head) - 1);
	text[sizeof("tracer blocks ") - 1] += *data >> 1 & 1; /* of formats 2 and 3 */
	memcpy(text + sizeof(head) - 1, data + 1, size - 1);
	file = *data & 1  ? fmemopen(text, sizeof(head) - 1 + size - 1, "r")
	       : size > 1 ? fmemopen(text + sizeof(head) - 1, size - 1, "r")
			  : NULL;
	if (file && !block_lines_read(&lines, file)) {
		check(&lines);
		if (lines.format > 1)
			again(&lines);
	}
	if (file)
		fclose(file);
	block_lines_free(&lines);
	free(text);
	return 0;
}
