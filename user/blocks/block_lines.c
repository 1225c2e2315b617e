/* SPDX-License-Identifier: Apache-2.0 */
#include "blocks/block_lines.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/sorted.h"

#define MAX_LINE 8192u      /* bytes of a line of the file */
#define MAX_KEEP (1u << 28) /* blocks, and lines */

void block_lines_head(FILE *out, uint32_t pid)
{
	fprintf(out, "tracer blocks 1 %" PRIu32 "\n", pid);
}

void block_lines_line(FILE *out, uint32_t number, const char *file, uint32_t line)
{
	fprintf(out, "l %" PRIu32 " %" PRIu32 " ", number, line);
	for (size_t i = 0; i < MAX_LINE - 64 && file[i]; i++)
		putc(file[i] == '\n' ? '?' : file[i], out);
	putc('\n', out);
}

void block_lines_block(FILE *out, uint64_t address, uint64_t bytes, uint32_t number)
{
	fprintf(out, "b %" PRIx64 " %" PRIx64 " %" PRIu32 "\n", address, bytes, number);
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
	err = array_reserve(&lines->names, &lines->name_capacity, lines->name_count, 1,
			    sizeof(*lines->names));
	if (err)
		return err;
	if (asprintf(&name, "%s:%" PRIu64, at, line) < 0)
		return -ENOMEM;
	lines->names[lines->name_count++] = name;
	return 0;
}

static int block_read(struct block_lines *lines, char *at)
{
	uint64_t address, bytes, number;
	int err;

	if (!number_take(&at, 16, ' ', &address) || !number_take(&at, 16, ' ', &bytes) ||
	    !number_take(&at, 10, '\0', &number) || number >= lines->name_count ||
	    bytes > UINT64_MAX - address || lines->count >= MAX_KEEP)
		return damaged();
	err = array_reserve(&lines->blocks, &lines->capacity, lines->count, 1,
			    sizeof(*lines->blocks));
	if (!err)
		lines->blocks[lines->count++] =
			(struct block_line){address, bytes, (uint32_t)number};
	return err;
}

static int head_read(struct block_lines *lines, const char *text)
{
	uint32_t format;

	if (sscanf(text, "tracer blocks %" SCNu32 " %" SCNu32, &format, &lines->pid) != 2)
		return damaged();
	return format == 1 ? 0
			   : error_set(-EINVAL, "it was written by another version of the tracer");
}

static int block_compare(const void *a, const void *b)
{
	const struct block_line *x = a, *y = b;

	return x->address < y->address ? -1 : x->address > y->address;
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
		      : !strncmp(text, "b ", 2) ? block_read(&lines, text + 2)
						: damaged();
	err = err ? err : got;
	if (err) {
		block_lines_free(&lines);
		return err;
	}
	if (lines.count)
		qsort(lines.blocks, lines.count, sizeof(*lines.blocks), block_compare);
	*out = lines;
	return 0;
}

void block_lines_free(struct block_lines *lines)
{
	for (size_t i = 0; i < lines->name_count; i++)
		free(lines->names[i]);
	free(lines->names);
	free(lines->blocks);
	*lines = (struct block_lines){0};
}

uint32_t block_lines_find(const struct block_lines *lines, uint64_t address)
{
	size_t above = SORTED_ABOVE(lines->blocks, lines->count, address, address);
	const struct block_line *block;

	if (!above)
		return BLOCK_LINES_NONE;
	block = &lines->blocks[above - 1];
	return address - block->address < block->bytes ? block->line : BLOCK_LINES_NONE;
}
