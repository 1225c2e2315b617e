/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/malloc/glibc_layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "object/elf/elf_file.h"
#include "util/array.h"

#define BANNER       "GNU C Library"
#define RELEASE      "release version 2."
#define BANNER_BYTES 160u       /* from BANNER to the end of the version */
#define RODATA_MAX   (4u << 20) /* searched for the banner */

/*
 * glibc 2.31: the oldest that is supported (Ubuntu 20.04). 2.32: safe linking. 2.35: heap_info has
 * a page size. 2.42: large blocks in the tcache. 2.43: no fastbins, another size of mmapped chunks.
 */
static const struct glibc_layout layouts[] = {
	{.first = 31,
	 .last = 31,
	 .fastbins = GLIBC_FASTBINS,
	 .heap_info_bytes = 32,
	 .tcache_bins = 64},
	{.first = 32,
	 .last = 34,
	 .fastbins = GLIBC_FASTBINS,
	 .heap_info_bytes = 32,
	 .tcache_bins = 64,
	 .safe_linking = 1},
	{.first = 35,
	 .last = 41,
	 .fastbins = GLIBC_FASTBINS,
	 .heap_info_bytes = 48,
	 .tcache_bins = 64,
	 .safe_linking = 1,
	 .hp_flags = 1},
	{.first = 42,
	 .last = 42,
	 .fastbins = GLIBC_FASTBINS,
	 .heap_info_bytes = 48,
	 .tcache_bins = 76,
	 .safe_linking = 1,
	 .tcache_slots = 1,
	 .hp_flags = 1},
	{.first = 43,
	 .last = 43,
	 .heap_info_bytes = 48,
	 .tcache_bins = 76,
	 .mmap_header = GLIBC_HEADER,
	 .safe_linking = 1,
	 .tcache_slots = 1,
	 .hp_flags = 1},
};

const struct glibc_layout *glibc_layout_for(unsigned int minor)
{
	for (size_t i = 0; i < ARRAY_SIZE(layouts); i++)
		if (minor >= layouts[i].first && minor <= layouts[i].last)
			return &layouts[i];
	return NULL;
}

/*
 * struct malloc_state: int mutex, flags; with fastbins: int have_fastchunks, fastbinsY[]; top,
 * last_remainder, bins[], binmap (16 bytes), next, next_free, attached_threads, system_mem,
 * max_system_mem.
 */
struct glibc_arena_offsets glibc_arena_offsets(const struct glibc_layout *layout)
{
	struct glibc_arena_offsets offsets = {.fastbins = 16};

	offsets.top = layout->fastbins ? offsets.fastbins + layout->fastbins * 8 : 8;
	offsets.bins = offsets.top + 16;
	offsets.next = offsets.bins + GLIBC_BINS * 16 + 16;
	offsets.system_mem = offsets.next + 24;
	offsets.bytes = offsets.next + 40;
	return offsets;
}

uint32_t glibc_tcache_chunk_bytes(const struct glibc_layout *layout)
{
	uint32_t bytes = layout->tcache_bins * (2 + 8) + 8; /* 8: the chunk's size */

	return (bytes + GLIBC_ALIGNMENT - 1) / GLIBC_ALIGNMENT * GLIBC_ALIGNMENT;
}

/* The number after RELEASE, if the banner is complete. */
static int banner_parse(const char *text, size_t bytes, unsigned int *minor)
{
	const char *at = memmem(text, bytes, RELEASE, sizeof(RELEASE) - 1);
	unsigned int value = 0, digits = 0;

	if (!at)
		return -ENOENT;
	for (at += sizeof(RELEASE) - 1; at < text + bytes && *at >= '0' && *at <= '9'; at++) {
		value = value * 10 + (unsigned int)(*at - '0');
		if (++digits > 3)
			return -ENOENT;
	}
	if (!digits || at == text + bytes)
		return -ENOENT;
	*minor = value;
	return 0;
}

int glibc_version_read(struct elf_file *file, unsigned int *minor)
{
	uint64_t vaddr, size;
	int bytes, err = -ENOENT;
	char *text, *at;

	if (elf_file_section(file, ".rodata", &vaddr, &size))
		return -ENOENT;
	if (size > RODATA_MAX)
		size = RODATA_MAX;
	text = malloc(size + 1);
	if (!text)
		return -ENOMEM;
	bytes = elf_file_read(file, vaddr, text, size);
	if (bytes < 0)
		err = bytes;
	at = bytes > 0 ? memmem(text, (size_t)bytes, BANNER, sizeof(BANNER) - 1) : NULL;
	if (at) {
		size_t left = (size_t)(text + bytes - at);

		err = banner_parse(at, left < BANNER_BYTES ? left : BANNER_BYTES, minor);
	}
	free(text);
	return err;
}
