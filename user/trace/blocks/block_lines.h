/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that tell which line allocated each live block of a process, and its stack. Text, a fact a
 * line; each NUMBER counts from 0:
 *
 *   tracer blocks 3 PID          the first line
 *   t TAKEN TRACED WHOLE         when this was so, in ms since 1970; for how many ms blocks had
 *                                been seen; 1: all that came since then and live, 0: a part
 *   l NUMBER LINE FILE           a line of a program
 *   f NUMBER L FUNCTION          a frame: a function at the line with number L
 *   s NUMBER S F                 a stack: frame F, called by stack S; S is NUMBER: by none
 *   b ADDRESS BYTES L S AGE      a block, both in hexadecimal: the line of its most recent frame,
 *                                its stack, its age in ms (snapshot/ages.h)
 *
 * Format 2 has no ages and no line "t", format 1 neither frames nor stacks, either. A file that is
 * read is hostile.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define BLOCK_LINES_NONE UINT32_MAX

struct block_line {
	uint64_t address, bytes;
	uint32_t line, stack; /* stack: BLOCK_LINES_NONE in format 1 */
	uint32_t age;         /* AGE_UNKNOWN before format 3 */
};

struct block_frame {
	char *function;
	uint32_t line;
};

#define BLOCK_STACK_DEPTH 1024u /* frames of a stack; deeper ones are refused */

struct block_stack {
	uint32_t parent; /* its caller, a smaller number; BLOCK_LINES_NONE */
	uint32_t frame, depth;
};

/* Zero-initialise; block_lines_free() releases. */
struct block_lines {
	uint32_t pid, format;
	uint64_t taken_ms, traced_ms; /* of line "t"; taken_ms 0: ages are not known */
	bool whole;
	struct block_line *blocks; /* by address */
	size_t count, capacity;
	char **names; /* FILE:LINE */
	size_t name_count, name_capacity;
	struct block_frame *frames;
	size_t frame_count, frame_capacity;
	struct block_stack *stacks;
	size_t stack_count, stack_capacity;
};

void block_lines_head(FILE *out, uint32_t pid);
void block_lines_time(FILE *out, uint64_t taken_ms, uint64_t traced_ms, bool whole);
void block_lines_line(FILE *out, uint32_t number, const char *file, uint32_t line);
void block_lines_frame(FILE *out, uint32_t number, uint32_t line, const char *function);
/* parent: number if there is none. */
void block_lines_stack(FILE *out, uint32_t number, uint32_t parent, uint32_t frame);
void block_lines_block(FILE *out, const struct block_line *block);

/* Does the file begin as one? */
bool block_lines_are(const char *path);
/* 0; -EINVAL: it is no such file, or damaged (error_set); -ENOMEM; -errno. */
int block_lines_read(struct block_lines *out, FILE *file);
void block_lines_free(struct block_lines *lines);
/* The block in which address is; NULL: it is in none. */
const struct block_line *block_lines_at(const struct block_lines *lines, uint64_t address);
/* The number of the line that allocated it; BLOCK_LINES_NONE. */
uint32_t block_lines_find(const struct block_lines *lines, uint64_t address);
