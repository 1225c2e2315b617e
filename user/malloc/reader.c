/* SPDX-License-Identifier: Apache-2.0 */
#include "malloc/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "process/pagemap.h"

#define PAGE        4096u
#define LINE_PAGES  4u
#define LINE        (PAGE * LINE_PAGES)
#define LINES       512u /* direct-mapped */
#define ADDRESS_END (1ull << 47)

enum page { PAGE_READ, PAGE_ZERO, PAGE_SWAPPED, PAGE_UNMAPPED };

struct line {
	uint64_t address; /* UINT64_MAX: empty */
	uint8_t pages[LINE_PAGES];
	uint8_t *bytes; /* LINE */
};

struct reader {
	pid_t pid;
	int pagemap;
	uint64_t swapped;
	struct line lines[LINES];
	uint8_t *memory;
};

int reader_new(struct reader **out, pid_t pid)
{
	struct reader *reader = calloc(1, sizeof(*reader));
	int err = -ENOMEM;

	if (!reader)
		return -ENOMEM;
	reader->pid = pid;
	reader->pagemap = -1;
	reader->memory = malloc((size_t)LINES * LINE);
	if (!reader->memory)
		goto out;
	reader->pagemap = pagemap_open(pid);
	if (reader->pagemap < 0) {
		err = reader->pagemap;
		goto out;
	}
	for (size_t i = 0; i < LINES; i++)
		reader->lines[i].bytes = reader->memory + i * LINE;
	reader_clear(reader);
	*out = reader;
	return 0;
out:
	reader_free(reader);
	return err;
}

void reader_free(struct reader *reader)
{
	if (!reader)
		return;
	if (reader->pagemap >= 0)
		close(reader->pagemap);
	free(reader->memory);
	free(reader);
}

void reader_clear(struct reader *reader)
{
	for (size_t i = 0; i < LINES; i++)
		reader->lines[i].address = UINT64_MAX;
}

uint64_t reader_swapped(const struct reader *reader)
{
	return reader->swapped;
}

/* Reads the resident pages of a line one by one: an unmapped one would end a longer read. */
static int pages_read(const struct reader *reader, struct line *line)
{
	for (unsigned int i = 0; i < LINE_PAGES; i++) {
		struct iovec local = {line->bytes + i * PAGE, PAGE};
		struct iovec remote = {(void *)(uintptr_t)(line->address + i * PAGE), PAGE};

		if (line->pages[i] != PAGE_READ)
			continue;
		if (process_vm_readv(reader->pid, &local, 1, &remote, 1, 0) == PAGE)
			continue;
		if (errno == ESRCH || errno == EPERM)
			return -errno;
		line->pages[i] = PAGE_UNMAPPED;
	}
	return 0;
}

static int line_read(struct reader *reader, struct line *line, uint64_t address)
{
	uint64_t entries[LINE_PAGES] = {0};
	struct iovec local = {line->bytes, LINE};
	struct iovec remote = {(void *)(uintptr_t)address, LINE};
	unsigned int there = 0;
	ssize_t got = pagemap_read(reader->pagemap, address, entries, LINE_PAGES);
	int err = 0;

	line->address = UINT64_MAX;
	if (got < 0)
		return (int)got;
	if (!got)
		return -ESRCH; /* its memory is gone */
	for (unsigned int i = 0; i < LINE_PAGES; i++) {
		line->pages[i] = entries[i] & PAGEMAP_SWAPPED ? PAGE_SWAPPED : PAGE_READ;
		there += (entries[i] & PAGEMAP_PRESENT) != 0;
	}
	line->address = address;
	if (there != LINE_PAGES ||
	    process_vm_readv(reader->pid, &local, 1, &remote, 1, 0) != LINE) {
		for (unsigned int i = 0; i < LINE_PAGES; i++)
			if (!(entries[i] & PAGEMAP_PRESENT) && line->pages[i] == PAGE_READ) {
				memset(line->bytes + i * PAGE, 0, PAGE);
				line->pages[i] = PAGE_ZERO;
			}
		err = pages_read(reader, line);
	}
	if (err)
		line->address = UINT64_MAX;
	return err;
}

int reader_read(struct reader *reader, uint64_t address, void *out, size_t bytes, int fresh)
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
		if (line->pages[at / PAGE] == PAGE_SWAPPED) {
			reader->swapped++;
			return -ENODATA;
		}
		if (line->pages[at / PAGE] == PAGE_UNMAPPED)
			return -EFAULT;
		memcpy(to, line->bytes + at, piece);
		to += piece;
		address += piece;
		bytes -= piece;
	}
	return 0;
}

int reader_u64(struct reader *reader, uint64_t address, uint64_t *out)
{
	return reader_read(reader, address, out, sizeof(*out), 0);
}
