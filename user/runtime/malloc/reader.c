/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/malloc/reader.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define PAGE        SPACE_PAGE
#define LINE_PAGES  4u
#define LINE        (PAGE * LINE_PAGES)
#define LINES       512u /* direct-mapped */
#define ADDRESS_END (1ull << 47)

struct line {
	uint64_t address;          /* UINT64_MAX: empty */
	uint8_t pages[LINE_PAGES]; /* enum space_page */
	uint8_t *bytes;            /* LINE */
};

struct malloc_reader {
	struct space *space;
	uint64_t swapped;
	struct line lines[LINES];
	uint8_t *memory;
};

int reader_new(struct malloc_reader **out, struct space *space)
{
	struct malloc_reader *reader = calloc(1, sizeof(*reader));

	if (!reader)
		return -ENOMEM;
	reader->space = space_share(space);
	reader->memory = malloc((size_t)LINES * LINE);
	if (!reader->memory) {
		reader_free(reader);
		return -ENOMEM;
	}
	for (size_t i = 0; i < LINES; i++)
		reader->lines[i].bytes = reader->memory + i * LINE;
	reader_clear(reader);
	*out = reader;
	return 0;
}

void reader_free(struct malloc_reader *reader)
{
	if (!reader)
		return;
	space_close(reader->space);
	free(reader->memory);
	free(reader);
}

void reader_clear(struct malloc_reader *reader)
{
	for (size_t i = 0; i < LINES; i++)
		reader->lines[i].address = UINT64_MAX;
}

uint64_t reader_swapped(const struct malloc_reader *reader)
{
	return reader->swapped;
}

static bool is_content(uint8_t page)
{
	return page == SPACE_MEMORY || page == SPACE_ZERO || page == SPACE_FILE;
}

/* Pages that cannot be read do not keep the others of their line from being read. */
static int line_read(struct malloc_reader *reader, struct line *line, uint64_t address)
{
	int err = space_pages(reader->space, address, LINE_PAGES, line->pages);

	line->address = UINT64_MAX;
	for (unsigned int i = 0, last; i < LINE_PAGES && !err; i = last) {
		for (last = i + 1; last < LINE_PAGES && line->pages[last] == line->pages[i]; last++)
			;
		if (!is_content(line->pages[i]))
			continue;
		err = space_read(reader->space, address + i * PAGE, line->bytes + i * PAGE,
				 (size_t)(last - i) * PAGE);
		if (err != -EFAULT)
			continue;
		memset(line->pages + i, SPACE_NONE, last - i);
		err = 0;
	}
	if (!err)
		line->address = address;
	return err;
}

int reader_read(struct malloc_reader *reader, uint64_t address, void *out, size_t bytes, int fresh)
{
	uint8_t *to = out;

	if (address >= ADDRESS_END || bytes > ADDRESS_END - address)
		return -EFAULT;
	while (bytes) {
		uint64_t base = address & ~(uint64_t)(LINE - 1), at = address - base;
		struct line *line = &reader->lines[base / LINE % LINES];
		size_t piece = PAGE - at % PAGE < bytes ? PAGE - at % PAGE : bytes;
		int err = fresh || line->address != base ? line_read(reader, line, base) : 0;

		if (err)
			return err;
		if (line->pages[at / PAGE] == SPACE_SWAPPED) {
			reader->swapped++;
			return -ENODATA;
		}
		if (!is_content(line->pages[at / PAGE]))
			return -EFAULT;
		memcpy(to, line->bytes + at, piece);
		to += piece;
		address += piece;
		bytes -= piece;
	}
	return 0;
}

int reader_u64(struct malloc_reader *reader, uint64_t address, uint64_t *out)
{
	return reader_read(reader, address, out, sizeof(*out), 0);
}
