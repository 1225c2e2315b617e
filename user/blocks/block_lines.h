/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that tell which line allocated each live block of a process. Text, a fact a line:
 *
 *   tracer blocks 1 PID                the first line
 *   l NUMBER LINE FILE                 a line of a program; NUMBER counts from 0
 *   b ADDRESS BYTES NUMBER             a block, both in hexadecimal; LINE of its most recent frame
 *
 * A file that is read is hostile.
 */
#ifndef TRACER_BLOCKS_BLOCK_LINES_H
#define TRACER_BLOCKS_BLOCK_LINES_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define BLOCK_LINES_NONE UINT32_MAX

struct block_line {
	uint64_t address, bytes;
	uint32_t line;
};

/* Zero-initialise; block_lines_free() releases. */
struct block_lines {
	uint32_t pid;
	struct block_line *blocks; /* by address */
	size_t count, capacity;
	char **names; /* FILE:LINE */
	size_t name_count, name_capacity;
};

void block_lines_head(FILE *out, uint32_t pid);
void block_lines_line(FILE *out, uint32_t number, const char *file, uint32_t line);
void block_lines_block(FILE *out, uint64_t address, uint64_t bytes, uint32_t number);

/* 0; -EINVAL: it is no such file, or damaged (error_set); -ENOMEM; -errno. */
int block_lines_read(struct block_lines *out, FILE *file);
void block_lines_free(struct block_lines *lines);
/* The number of the line that allocated the block in which address is; BLOCK_LINES_NONE. */
uint32_t block_lines_find(const struct block_lines *lines, uint64_t address);

#endif
