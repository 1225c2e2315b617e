/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/malloc/mimalloc_pages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool mimalloc_page_fits(const struct mimalloc_page *page, uint64_t most)
{
	uint64_t room = page->end - page->blocks;

	return page->blocks >= page->start && page->blocks < page->end &&
	       page->block_bytes % 8 == 0 && page->block_bytes <= room &&
	       page->reserved == (page->is_single ? 1 : room / page->block_bytes) &&
	       page->capacity <= page->reserved &&
	       (page->capacity <= 1 || page->end - page->start <= most);
}

/* Marks the blocks of a list. The number of them; -EAGAIN: it is none; -errno. */
static int64_t list_mark(struct mimalloc_pages *pages, const struct mimalloc_page *page,
			 uint64_t block, int fresh)
{
	int64_t count = 0;

	for (; block; count++) {
		uint64_t at = block - page->blocks, number = at / page->block_bytes;

		if (block < page->blocks || number >= page->capacity || at % page->block_bytes ||
		    pages->states[number] != ALLOCATOR_USED)
			return -EAGAIN;
		pages->states[number] = ALLOCATOR_FREE;
		int err = reader_read(pages->reader, block, &block, sizeof(block), fresh);
		if (err)
			return err;
	}
	return count;
}

int mimalloc_page_mark(struct mimalloc_pages *pages, const struct mimalloc_page *page, int fresh)
{
	uint64_t unused = 0;

	if (!mimalloc_page_fits(page, pages->most))
		return -EAGAIN;
	memset(pages->states, ALLOCATOR_USED, page->capacity);
	for (unsigned int i = 0; i < 3; i++) {
		int64_t count = list_mark(pages, page, page->lists[i], fresh);

		if (count < 0)
			return (int)count;
		unused += i < 2 ? (uint64_t)count : 0;
	}
	if (page->capacity - unused != page->used)
		return -EAGAIN;
	if (pages->more)
		pages->more(pages->context, page, pages->states);
	return 0;
}

bool mimalloc_page_is_unused(const struct mimalloc_pages *pages, const struct mimalloc_page *page)
{
	return !memchr(pages->states, ALLOCATOR_USED, page->capacity);
}

int mimalloc_page_put(struct mimalloc_pages *pages, const struct mimalloc_page *page,
		      enum allocator_kind unused)
{
	uint64_t bytes = page->block_bytes, behind = page->blocks + page->capacity * bytes;
	struct runs *runs = &pages->runs;
	struct allocator_class *class;

	if (mimalloc_page_is_unused(pages, page))
		return runs_put(runs, page->start, page->end - page->start, 1, unused);
	class = page->reserved > 1 ? runs_class(runs->totals, bytes) : NULL;
	if (class) {
		class->slabs++;
		class->slab_bytes += page->end - page->start;
		class->free += page->reserved - page->capacity;
	}
	int stop = runs_put(runs, page->start, page->blocks - page->start, 1, ALLOCATOR_FREE)
			   ?: runs_put_blocks(runs, page->blocks, bytes, pages->states,
					      page->capacity, class)
			   ?: runs_put(runs, behind, bytes, page->reserved - page->capacity,
				       ALLOCATOR_FREE);
	behind += (page->reserved - page->capacity) * bytes;
	return stop ?: runs_put(runs, behind, page->end - behind, 1, ALLOCATOR_FREE);
}

void mimalloc_version(const char *known, const struct statics *statics,
		      char version[ALLOCATOR_VERSION])
{
	const char *name = strstr(statics_file_name(statics), "mimalloc");
	const char *number = name ? strstr(name, ".so.") : NULL;

	strcpy(version, known);
	if (number && strspn(number + 4, "0123456789.") > 2 && strlen(number + 4) < 16)
		strcpy(version, number + 4);
}
