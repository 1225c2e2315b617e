/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data that a file does not contain, since it is zero at first (.bss), is in anonymous memory
 * behind the file's maps. The file's program headers say how long it is; they are on the first page
 * of its lowest map. What is on no resident page stays unknown.
 */
#include <elf.h>
#include <errno.h>
#include <string.h>

#include "inspect/rss/reading.h"
#include "runtime/malloc/reader.h"

#define HEADERS_MAX 64u

struct bss_image {
	uint64_t bias;
	uint32_t count;
	Elf64_Phdr headers[HEADERS_MAX];
};

static uint64_t page_up(uint64_t address)
{
	return (address + MEMORY_PAGE - 1) / MEMORY_PAGE * MEMORY_PAGE;
}

/* 0; -ENOENT: no ELF file begins there; -ESRCH; -EPERM. */
static int image_read(struct malloc_reader *reader, uint64_t start, struct bss_image *image)
{
	Elf64_Ehdr file;
	int err = reader_read(reader, start, &file, sizeof(file), 0);

	if (err)
		return err == -ESRCH || err == -EPERM ? err : -ENOENT;
	if (memcmp(file.e_ident, ELFMAG, SELFMAG) != 0 ||
	    file.e_phentsize != sizeof(image->headers[0]) || !file.e_phnum ||
	    file.e_phnum > HEADERS_MAX || file.e_phoff > MEMORY_PAGE)
		return -ENOENT;
	image->count = file.e_phnum;
	if (reader_read(reader, start + file.e_phoff, image->headers,
			image->count * sizeof(image->headers[0]), 0))
		return -ENOENT;
	for (uint32_t i = 0; i < image->count; i++)
		if (image->headers[i].p_type == PT_LOAD) {
			image->bias = start - image->headers[i].p_vaddr / MEMORY_PAGE * MEMORY_PAGE;
			return 0;
		}
	return -ENOENT;
}

/* Only anonymous memory counts: a lying header takes nothing from files. */
static void segment_take(struct memory_reading *reading, const struct bss_image *image,
			 const Elf64_Phdr *header)
{
	uint64_t start = page_up(image->bias + header->p_vaddr + header->p_filesz);
	uint64_t end = page_up(image->bias + header->p_vaddr + header->p_memsz);
	const struct memory_map *map = memory_map_at(&reading->account, start);
	struct memory_region region;

	if (header->p_type != PT_LOAD || header->p_memsz <= header->p_filesz || !map ||
	    map->source != MEMORY_ANONYMOUS || map->name[0] || map->start != start ||
	    end > map->end)
		return;
	if (!memory_region_open(&reading->account, start, end, &region))
		memory_region_take(&region, end, MEMORY_BSS, 1);
}

int memory_bss_read(struct memory_reading *reading)
{
	struct memory_account *account = &reading->account;
	struct malloc_reader *reader;
	int err = reader_new(&reader, reading->space);

	if (err)
		return err;
	for (size_t i = 0; i < account->map_count && !err; i++) {
		const struct memory_map *map = &account->maps[i];
		struct bss_image image;

		if (map->source != MEMORY_FILE ||
		    (i && !strcmp(account->maps[i - 1].name, map->name)))
			continue;
		err = image_read(reader, map->start, &image);
		for (uint32_t n = 0; !err && n < image.count; n++)
			segment_take(reading, &image, &image.headers[n]);
		err = err == -ENOENT ? 0 : err;
	}
	reader_free(reader);
	return err;
}
